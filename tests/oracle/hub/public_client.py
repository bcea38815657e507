#!/usr/bin/env python3
"""The public huggingface_hub client against the loopback Hub; prints the call trace.

Run by hand:  python3 tests/oracle/hub/public_client.py build/dev/bin/dsf-hub > tests/golden/hub/public_client_trace.json
Needs: pip install huggingface_hub. Makes its own repository in a temporary folder, so the trace does not depend on any other file.
"""
import hashlib, json, os, pathlib, subprocess, sys, tempfile, time, urllib.request

hub_binary = pathlib.Path(sys.argv[1]).resolve()
work = pathlib.Path(tempfile.mkdtemp(prefix="dsf-oracle-"))
repo = work / "root/org/repo"
(repo / "sub").mkdir(parents=True)
files = {
    "config.json": b'{"a": 1}\n',
    "empty.txt": b"",
    "sub/d ir \u00e9#%.txt": b"odd name\n",
    "model-00001-of-00002.safetensors": bytes((i * 7 + 3) % 256 for i in range(300_000)),
    "model-00002-of-00002.safetensors": bytes((i * 11 + 5) % 251 for i in range(100_000)),
}
for name, content in files.items():
    (repo / name).write_bytes(content)
(repo / ".hub.json").write_text('{"refs": {"refs/pr/1": "pr", "v1": "tag"}}')

port_file = work / "port"
hub = subprocess.Popen([hub_binary, "serve", "--root", work / "root", "--port-file", port_file, "--page-size", "2", "--resolve-cache"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    while not port_file.exists() and hub.poll() is None:
        time.sleep(0.05)
    endpoint = f"http://127.0.0.1:{port_file.read_text().strip()}"
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ.update(HF_ENDPOINT=endpoint, HF_HOME=str(work / "home"), HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_UPDATE_CHECK="1",
                      HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_TOKEN="hf_good")
    import huggingface_hub

    def log(clear=True):
        request = urllib.request.Request(endpoint + "/__log", method="DELETE" if clear else "GET")
        return json.load(urllib.request.urlopen(request))

    def check(folder):
        for name, content in files.items():
            got = (pathlib.Path(folder) / name).read_bytes()
            assert hashlib.sha256(got).digest() == hashlib.sha256(content).digest(), name

    def shorten(entries):
        out = []
        for e in entries:
            target = e["target"].split("?")[0] + ("?..." if "Signature" in e["target"] else ("?" + e["target"].split("?")[1] if "?" in e["target"] else ""))
            out.append(f'{e["host"]} {e["method"]} {target} {"auth" if e["authorization"] else "-"} {e["range"] or "-"} -> {e["status"]}')
        return sorted(out)

    trace = {}
    huggingface_hub.snapshot_download("org/repo", revision="main", local_dir=work / "local")
    check(work / "local")
    trace["snapshot_download, local_dir"] = shorten(log())
    huggingface_hub.snapshot_download("org/repo", revision="main", local_dir=work / "local")
    trace["the same again"] = shorten(log())
    check(huggingface_hub.snapshot_download("org/repo", revision="refs/pr/1"))
    trace["snapshot_download, shared cache, refs/pr/1"] = shorten(log())
    info = huggingface_hub.HfApi().model_info("org/repo", files_metadata=True)
    assert {s.rfilename: s.size for s in info.siblings} == {n: len(c) for n, c in files.items()}
    paths = huggingface_hub.HfApi().get_paths_info("org/repo", ["config.json", "none"])
    assert [p.path for p in paths] == ["config.json"]
    refs = huggingface_hub.HfApi().list_repo_refs("org/repo", include_pull_requests=True)
    assert refs.branches[0].name == "main" and refs.tags[0].name == "v1"
    trace["model_info, get_paths_info, list_repo_refs"] = shorten(log())
    for bad, kind in (("org/none", "RepositoryNotFoundError"), ("org/repo", "RevisionNotFoundError")):
        try:
            huggingface_hub.HfApi().model_info(bad, revision="main" if bad == "org/none" else "nowhere")
            raise AssertionError("no error")
        except Exception as e:
            assert type(e).__name__ == kind, e
    log()
    print(json.dumps({
        "provenance": f"huggingface_hub {huggingface_hub.__version__}, Python {sys.version.split()[0]}, tests/oracle/hub/public_client.py, "
                      f"{time.strftime('%Y-%m-%d', time.gmtime())}; lines of one step are sorted, since the client works in parallel",
        "trace": trace}, indent=1, ensure_ascii=False))
finally:
    hub.terminate()
    hub.wait()
