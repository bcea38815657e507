#!/usr/bin/env python3
"""An outside judge for dsf-bench: the public `openai` streaming client against the same scripted server, in turns with dsf-bench.

Compared where definitions agree: time from request to the first token text, completion and prompt counts from usage, tokens per second between
first and last token text, and the client's CPU time for an event (at 8 streams of small events). The openai package is no benchmark: it stamps after
parsing, which is the difference to expect.

Set-up: python3 -m venv v && v/bin/pip install openai zstandard
Usage:  v/bin/python tests/oracle/bench_judge.py BIN_DIR > tests/golden/bench_judge.json     (BIN_DIR holds dsf-bench and dsf-scripted-server)
"""
import concurrent.futures
import datetime
import io
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import openai
import zstandard

bin_dir = pathlib.Path(sys.argv[1])
SHAPES = {
    "plain": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64},
    "role_first": {"role_ms": 20, "first_ms": 200, "gap_ms": 10, "n_tokens": 64},
    "reasoning": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64, "reasoning_events": 20},
    "bundled": {"first_ms": 200, "gap_ms": 20, "n_tokens": 64, "tokens_per_event": 4, "first_event_tokens": 4},
    "crlf_comments": {"first_ms": 200, "gap_ms": 10, "n_tokens": 64, "crlf": True, "comment_every_ms": 50},
}


def serve(shape):
    process = subprocess.Popen([bin_dir / "dsf-scripted-server", "--shape", json.dumps(shape)], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def stream(client, n_tokens):
    start, stamps, usage, events = time.monotonic(), [], None, 0
    for chunk in client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x"}], max_tokens=n_tokens, stream=True,
                                                stream_options={"include_usage": True}):
        events += 1
        usage = chunk.usage or usage
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta and (delta.content or getattr(delta, "reasoning_content", None)):
            stamps.append(time.monotonic() - start)
    return stamps, usage, events


def by_openai(url, shape):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    stream(client, shape["n_tokens"])  # opens the connection
    runs = [stream(client, shape["n_tokens"]) for _ in range(5)]
    stamps, usage, _ = runs[-1]
    return {"ttft_ms": round(1e3 * statistics.median(r[0][0] for r in runs), 2), "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
            "d_ref": round(statistics.median((r[1].completion_tokens - 1) / (r[0][-1] - r[0][0]) for r in runs), 2)}


def bench(url, n_tokens, levels, repeats, out):
    subprocess.run([bin_dir / "dsf-bench", "--base-url", url, "--model", "scripted", "--label", "judge", "--thinking", "75", "--levels", levels, "--repeats", str(repeats),
                    "--output-tokens", str(n_tokens), "--skip-warmup", "--no-probe", "--cooldown-ms", "0", "--quiet", "--out", out], stdout=subprocess.DEVNULL, check=True)
    with open(out / "raw.jsonl.zst", "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))]


def by_bench(url, shape, out):
    requests = [r for r in bench(url, shape["n_tokens"], "1", 5, out) if r["type"] == "request"]
    t = lambda r, key: r["t"][key]
    return {"ttft_ms": round(statistics.median(t(r, "first_token") - t(r, "release") for r in requests) / 1e6, 2), "prompt_tokens": requests[-1]["counts"]["prompt"],
            "completion_tokens": requests[-1]["n_tokens"],
            "d_ref": round(statistics.median((r["n_tokens"] - 1) * 1e9 / (t(r, "last_token") - t(r, "first_token")) for r in requests), 2)}


report = {"provenance": f"tests/oracle/bench_judge.py, openai {openai.__version__}, CPython {platform.python_version()}, "
                        f"{datetime.date.today()}, loopback, medians of 5, load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores", "shapes": {}}
with tempfile.TemporaryDirectory() as scratch:
    for name, shape in SHAPES.items():
        process, url = serve(shape)
        report["shapes"][name] = {"script": {"ttft_ms": shape["first_ms"]}, "openai": by_openai(url, shape), "dsf_bench": by_bench(url, shape, pathlib.Path(scratch) / name)}
        process.terminate()
    process, url = serve({"first_ms": 50, "gap_ms": 1, "n_tokens": 2000})
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    cpu, wall = time.process_time(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        events = sum(e for _, _, e in pool.map(lambda _: stream(client, 2000), range(8)))
    report["overhead_8_streams"] = {"openai": {"events": events, "cpu_us_per_event": round(1e6 * (time.process_time() - cpu) / events, 2),
                                               "wall_s": round(time.monotonic() - wall, 2)}}
    records = bench(url, 2000, "8", 1, pathlib.Path(scratch) / "overhead")
    level = [r for r in records if r["type"] == "level_end"][0]
    events = sum(len(r["events"]["t"]) for r in records if r["type"] == "request")
    report["overhead_8_streams"]["dsf_bench"] = {"events": events, "cpu_us_per_event": round(level["client_cpu_ns"] / 1e3 / events, 2), "wall_s": round(level["wall_ns"] / 1e9, 2)}
    process.terminate()
print(json.dumps(report, indent=1))
