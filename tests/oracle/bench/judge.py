#!/usr/bin/env python3
"""Outside judges for dsf-bench: public streaming clients against the same scripted server (`dsf-bench mock`), in turns with dsf-bench, in one run.

Judges: `vllm` is the request function of `vllm bench serve` (vllm/benchmarks/lib/endpoint_request_func.py, unmodified, with aiohttp; it stands alone, so the rest of
vLLM is not needed); `openai` is the public openai client. Compared where definitions agree: time from request to first token, completion and prompt counts from usage,
tokens per second between first and last event. Then the client's limit: eight live streams, client pinned to one core and server to the other, events per second and
CPU time for an event. The numbers of both clients are what they report themselves, CPU time is what the kernel charged.

Set-up: python3 -m venv v && v/bin/pip install aiohttp regex tqdm openai zstandard
        v/bin/pip download --no-deps vllm && unzip -j vllm-*.whl vllm/benchmarks/lib/endpoint_request_func.py
Usage:  v/bin/python tests/oracle/bench/judge.py BIN_DIR endpoint_request_func.py VLLM_VERSION > tests/golden/bench_judge.json
"""
import asyncio
import datetime
import importlib.util
import io
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import aiohttp
import openai
import zstandard

bin_dir, request_file, vllm_version = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
spec = importlib.util.spec_from_file_location("endpoint_request_func", request_file)
vllm = importlib.util.module_from_spec(spec)
sys.modules["endpoint_request_func"] = vllm
spec.loader.exec_module(vllm)

RUNS = 7
SHAPES = {
    "plain": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64},
    "role_first": {"role_ms": 20, "first_ms": 200, "gap_ms": 10, "n_tokens": 64},
    "reasoning": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64, "reasoning_events": 20},
    "bundled": {"first_ms": 200, "gap_ms": 20, "n_tokens": 64, "tokens_per_event": 4, "first_event_tokens": 4},
    "comments": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64, "comment_every_ms": 50},
}
# Eight streams at once. Paced: 50,000 events/s in all. Flood: as fast as the server can, 16 events a write, so that the client is the limit.
LOADS = {"paced_50000": {"first_ms": 50, "gap_ms": 0.16, "n_tokens": 10000}, "flood": {"first_ms": 50, "gap_ms": 0, "n_tokens": 50000, "events_per_write": 16}}
SERVER_CORE, CLIENT_CORE = 0, 1


def serve(shape, core=None):
    command = [bin_dir / "dsf-bench", "mock", "--shape", json.dumps(shape)]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def vllm_input(url, n_tokens):
    return vllm.RequestFuncInput(prompt="x", chat_messages=[{"role": "user", "content": "x"}], api_url=url + "/chat/completions", prompt_len=1, output_len=n_tokens,
                                 model="scripted")


async def vllm_streams(url, n_tokens, n_streams, rounds):
    async with aiohttp.ClientSession(timeout=vllm.AIOHTTP_TIMEOUT) as session:
        out = []
        for _ in range(rounds):
            out.append(await asyncio.gather(*(vllm.async_request_openai_chat_completions(vllm_input(url, n_tokens), session) for _ in range(n_streams))))
        return out


def by_vllm(url, shape):
    runs = [r[0] for r in asyncio.run(vllm_streams(url, shape["n_tokens"], 1, RUNS + 1))][1:]  # the first one opens the connection
    assert all(r.success for r in runs), runs[0].error
    return {"ttft_ms": round(1e3 * statistics.median(r.ttft for r in runs), 2), "prompt_tokens": runs[-1].prompt_len, "completion_tokens": runs[-1].output_tokens,
            "d_ref": round(statistics.median((r.output_tokens - 1) / (r.latency - r.ttft) for r in runs), 2)}


def openai_stream(client, n_tokens):
    start, stamps, usage = time.monotonic(), [], None
    for chunk in client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x"}], max_tokens=n_tokens, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta and (delta.content or getattr(delta, "reasoning_content", None)):
            stamps.append(time.monotonic() - start)
    return stamps, usage


def by_openai(url, shape):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    openai_stream(client, shape["n_tokens"])  # opens the connection
    runs = [openai_stream(client, shape["n_tokens"]) for _ in range(RUNS)]
    usage = runs[-1][1]
    return {"ttft_ms": round(1e3 * statistics.median(r[0][0] for r in runs), 2), "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
            "d_ref": round(statistics.median((r[1].completion_tokens - 1) / (r[0][-1] - r[0][0]) for r in runs), 2)}


def bench(url, n_tokens, levels, repeats, out, core=None):
    command = [bin_dir / "dsf-bench", "--base-url", url, "--model", "scripted", "--label", "judge", "--thinking", "75", "--levels", levels, "--repeats", str(repeats),
               "--output-tokens", str(n_tokens), "--skip-warmup", "--no-probe", "--metrics-url", "none", "--cooldown-ms", "0", "--quiet", "--out", out]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # 1: client_bound is what a flood is about; the records say what was measured
    with open(out / "raw.jsonl.zst", "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))]


def by_bench(url, shape, out):
    requests = [r for r in bench(url, shape["n_tokens"], "1", RUNS, out) if r["type"] == "request"]
    t = lambda r, key: r["t"][key]
    return {"ttft_ms": round(statistics.median(t(r, "first_token") - t(r, "release") for r in requests) / 1e6, 2),
            "ttfr_ms": round(statistics.median(t(r, "first_event") - t(r, "release") for r in requests) / 1e6, 2), "prompt_tokens": requests[-1]["counts"]["prompt"],
            "completion_tokens": requests[-1]["n_tokens"],
            "d_ref": round(statistics.median((r["n_tokens"] - 1) * 1e9 / (t(r, "last_token") - t(r, "first_token")) for r in requests), 2)}


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def load_by_vllm(url, shape):
    os.sched_setaffinity(0, {CLIENT_CORE})
    cpu, wall = cpu_seconds(), time.monotonic()
    (streams,) = asyncio.run(vllm_streams(url, shape["n_tokens"], 8, 1))
    cpu, wall = cpu_seconds() - cpu, time.monotonic() - wall
    os.sched_setaffinity(0, range(os.cpu_count()))
    assert all(r.success for r in streams), streams[0].error
    events = sum(len(r.itl) + 1 + 1 for r in streams)  # gaps, the first event, usage
    return {"events": events, "events_per_s": round(events / wall), "cpu_us_per_event": round(1e6 * cpu / events, 2)}


def load_by_bench(url, shape, out):
    records = bench(url, shape["n_tokens"], "8", 1, out, CLIENT_CORE)
    level = [r for r in records if r["type"] == "level_end"][0]
    events = sum(len(r["events"]["t"]) for r in records if r["type"] == "request")
    assert all(r["status"] == "ok" for r in records if r["type"] == "request")
    return {"events": events, "events_per_s": round(events * 1e9 / level["wall_ns"]), "cpu_us_per_event": round(level["client_cpu_ns"] / 1e3 / events, 2)}


report = {"provenance": f"tests/oracle/bench/judge.py, vllm bench serve's request function ({vllm_version}) on aiohttp {aiohttp.__version__}, openai {openai.__version__}, "
                        f"CPython {platform.python_version()}, {datetime.date.today()}, loopback, medians of {RUNS}, load average at start {os.getloadavg()[0]:.1f} on "
                        f"{os.cpu_count()} cores", "shapes": {}, "eight_streams": {}}
with tempfile.TemporaryDirectory() as scratch:
    for name, shape in SHAPES.items():
        process, url = serve(shape)
        report["shapes"][name] = {"script": {"ttft_ms": shape["first_ms"]}, "dsf_bench": by_bench(url, shape, pathlib.Path(scratch) / name), "vllm": by_vllm(url, shape),
                                  "openai": by_openai(url, shape)}
        process.terminate()
    for name, shape in LOADS.items():
        process, url = serve(shape, SERVER_CORE)
        rounds = {"dsf_bench": [], "vllm": []}
        for i in range(3):  # in turns, so that both see the same machine
            rounds["dsf_bench"].append(load_by_bench(url, shape, pathlib.Path(scratch) / f"{name}{i}"))
            rounds["vllm"].append(load_by_vllm(url, shape))
        report["eight_streams"][name] = {who: sorted(list_, key=lambda r: r["events_per_s"])[1] for who, list_ in rounds.items()}  # the median of three
        process.terminate()
report["load_average_at_end"] = round(os.getloadavg()[0], 1)
print(json.dumps(report, indent=1))
