#!/usr/bin/env python3
"""Asks a running dsf-serve the held-out questions over HTTP and prints a Markdown table. Standard library only.

    python3 evaluate.py URL HELDOUT.jsonl [--limit N] [--jobs J] [--failures FILE] [--drafts]

Greedy. An answer is right when its content, or its tool calls with their arguments, equal what is expected; a call is well formed when it
names a declared tool, with all required parameters of the right types and no others. --drafts: also what the server counted of drafts.
"""

import argparse
import collections
import concurrent.futures
import json
import sys
import time
import urllib.request

TYPES = {"string": str, "integer": int}


def fetch(url, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return reply.read().decode()


def ask(url, model, case):
    body = dict(model=model, messages=case["messages"], reasoning_effort=case["effort"], temperature=0, max_tokens=320)
    if "tools" in case:
        body["tools"] = case["tools"]
    if "schema" in case:
        body["response_format"] = dict(type="json_schema", json_schema=dict(name="answer", schema=case["schema"]))
    return json.loads(fetch(url + "/v1/chat/completions", body))


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []]


def well_formed(call, tools):
    name, arguments = call
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    if name not in declared or set(arguments) != set(declared[name]["required"]):
        return False
    return all(type(v) is TYPES[declared[name]["properties"][k]["type"]] for k, v in arguments.items())


def judge(case, reply):
    """(right, calls well formed, None where no call was made or wanted)."""
    message, wanted = reply["choices"][0]["message"], case["expect"]
    try:
        calls = calls_of(message)
    except ValueError:
        return False, False
    content = message.get("content") or ""
    right = content == wanted["content"] and calls == calls_of(wanted)
    formed = None
    if calls or wanted.get("tool_calls"):
        formed = bool(calls) and "DSML" not in content and all(well_formed(c, case.get("tools", [])) for c in calls)
    return right, formed


def counters(url):
    """Of drafts: name -> count, or [count by place]."""
    out = {}
    for line in fetch(url + "/metrics").splitlines():
        name, _, rest = line.partition("{")
        if name.startswith(("vllm:spec_decode_", "dsf:draft_")):
            value = int(float(rest.split()[-1]))
            if "_per_pos" in name:
                out.setdefault(name, []).append(value)
            else:
                out[name] = value
    return out


def report_drafts(before, after):
    moved = lambda name: after[name] - before.get(name, 0)  # noqa: E731
    places = lambda name: [v - w for v, w in zip(after[name], before.get(name, []) + [0] * len(after[name]))]  # noqa: E731
    rounds, accepted = moved("vllm:spec_decode_num_drafts_total"), moved("vllm:spec_decode_num_accepted_tokens_total")
    drafted, kept = places("dsf:draft_tokens_per_pos_total"), places("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    print(
        f"\nDrafts: {accepted / rounds:.2f} accepted of {sum(drafted) / rounds:.2f} a step, {rounds} steps.\n"
    )
    print("| place | drafted | accepted | of all steps | of those with a draft there |\n| --- | --- | --- | --- | --- |")
    for i, (d, k) in enumerate(zip(drafted, kept)):
        print(f"| {i + 1} | {d} | {k} | {100 * k / rounds:.0f} % | {100 * k / max(d, 1):.0f} % |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("heldout")
    p.add_argument("--limit", type=int, default=0, help="questions per skill and mode; 0 is all")
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--failures")
    p.add_argument("--drafts", action="store_true")
    a = p.parse_args()
    cases, taken = [], collections.Counter()
    for case in map(json.loads, open(a.heldout)):
        mode = (case["skill"], case["effort"] != "none")
        taken[mode] += 1
        if not a.limit or taken[mode] <= a.limit:
            cases.append(case)
    model = json.loads(fetch(a.url + "/v1/models"))["data"][0]["id"]
    before, begin = counters(a.url), time.time()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        replies = list(pool.map(lambda c: ask(a.url, model, c), cases))
    seconds = time.time() - begin
    table, formed, failures, tokens = collections.defaultdict(lambda: [[0, 0], [0, 0]]), [], [], 0
    for case, reply in zip(cases, replies):
        right, form = judge(case, reply)
        cell = table[case["skill"]][case["effort"] != "none"]
        cell[0] += right
        cell[1] += 1
        formed += [form] if form is not None else []
        tokens += reply["usage"]["completion_tokens"]
        if not right:
            failures.append(dict(case, got=reply["choices"][0]["message"]))
    print("| skill | thinking off | thinking on |\n| --- | --- | --- |")
    total = [[sum(c[m][k] for c in table.values()) for k in (0, 1)] for m in (0, 1)]
    for skill, cells in [*sorted(table.items()), ("**all**", total)]:
        print(f"| {skill} | " + " | ".join(f"{r} of {n} ({100 * r / max(n, 1):.0f} %)" for r, n in cells) + " |")
    print(f"\nTool calls well formed: {sum(formed)} of {len(formed)}. {len(cases)} requests, {tokens} tokens in {seconds:.0f} s.")
    if a.drafts:
        report_drafts(before, counters(a.url))
    if a.failures:
        with open(a.failures, "w") as out:
            out.writelines(json.dumps(f, ensure_ascii=False) + "\n" for f in failures)


if __name__ == "__main__":
    sys.exit(main())
