#!/usr/bin/env python3
"""Renders manifests/templates/deepseek-v4.1-chat.jinja with the public `transformers` package and compares with prompt vectors. Run by hand:

    pip install transformers jinja2
    tests/oracle/chat_template_check.py PROMPT_VECTORS_JSON            # writes tests/golden/chat_template/result.txt
    ninja -C build/dev render_lines
    tests/oracle/chat_template_check.py PROMPT_VECTORS_JSON build/dev/tests/unit/tokenizer/render_lines [N] [SEED]

The second form also makes N random conversations (default 2000) and holds the template against our own encoder.

The vectors end as the reference encoder does; the template always opens a turn, so four cases get their header here. Arguments that are
strings of a JSON object are decoded first, as engines do before they call a template.
"""
import copy
import datetime
import hashlib
import json
import pathlib
import random
import subprocess
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "manifests/templates/deepseek-v4.1-chat.jinja"
OPENED = {"E3b": "<｜Assistant｜><think>", "E19": "<｜Assistant｜><think>", "E17": "<｜Assistant｜></think>", "E18": "<｜Assistant｜></think>"}
CANNOT = {"E16": "holds the user-turn form of a developer message; the template has the system form"}


def decode_arguments(messages):
    for message in messages:
        for call in message.get("tool_calls") or []:
            try:
                value = json.loads(call["function"]["arguments"])
            except ValueError:
                continue
            if isinstance(value, dict):
                call["function"]["arguments"] = value
    return messages


def render(template, case):
    messages = decode_arguments(copy.deepcopy(case["messages"]))
    if case.get("cont"):
        messages[-1]["wo_eos"] = True
    options = {"thinking": case["thinking"], "add_generation_prompt": True}
    if "effort" in case:
        options["reasoning_effort"] = case["effort"]
    if "response_format" in case:
        options["response_format"] = case["response_format"]
    rendered, _ = render_jinja_template([messages], tools=case.get("tools"), chat_template=template, **options)
    return rendered[0]


def random_conversation(rng):
    text = lambda: rng.choice(["", "a", "x\ny", "東京 \"q\"", "<think>", "{\"k\": 1}", "\n\n"])  # noqa: E731
    ids = ["a", "b", "c", "zz"]
    messages = []
    for _ in range(rng.randrange(1, 9)):
        role = rng.choice(["system", "developer", "user", "user", "tool", "tool", "assistant", "assistant", "assistant", "latest_reminder"])
        m = {"role": role, "content": text()}
        if role in ("user", "tool") and rng.random() < 0.4:
            parts = [{"type": "text", "text": text()}, {"type": "image_url", "image_url": {"url": "u"}}]
            if role == "user":
                parts.append({"type": "tool_result", "tool_use_id": rng.choice(ids), "content": rng.choice([text(), [{"type": "text", "text": "r"}]])})
            m["content"] = [rng.choice(parts) for _ in range(rng.randrange(0, 4))]
        if role == "tool":
            m["tool_call_id"] = rng.choice(ids)
        if role == "user" and rng.random() < 0.1:
            m["task"] = rng.choice(["action", "title", "query"])
        if role == "assistant":
            if rng.random() < 0.5:
                m["reasoning_content"] = text()
            if rng.random() < 0.5:
                values = {"s": text(), "n": rng.choice([1, 2.5, 1e16, None, True, {"k": ["v", "é"]}]), "q": [1, {"z": text()}]}
                arguments = {k: v for k, v in values.items() if rng.random() < 0.6}
                m["tool_calls"] = [{"id": i, "type": "function", "function": {"name": "f", "arguments": arguments}}
                                   for i in rng.sample(ids[:3], rng.randrange(1, 4))]
            if rng.random() < 0.1:
                m["prefix"] = True
        messages.append(m)
    request = {"messages": messages, "chat_template_kwargs": {"thinking": rng.random() < 0.6}, "drop_thinking": rng.random() < 0.7}
    if rng.random() < 0.3:
        request["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"}}}}}]
    if rng.random() < 0.2:
        request["response_format"] = {"type": "object", "description": "é"}
    if rng.random() < 0.5:
        request["reasoning_effort"] = rng.choice(["low", "high", "max", "none", 1, 42])
    return request


def compare_random(template, binary, n, seed):
    rng = random.Random(seed)
    requests = [random_conversation(rng) for _ in range(n)]
    payload = "".join(json.dumps(r) + "\n" for r in requests)
    run = subprocess.run([binary], input=payload.encode(), stdout=subprocess.PIPE, check=True)
    bad = 0
    for request, line in zip(requests, run.stdout.splitlines()):
        options = {k: request[k] for k in ("drop_thinking", "response_format", "reasoning_effort") if k in request}
        rendered, _ = render_jinja_template([request["messages"]], tools=request.get("tools"), chat_template=template,
                                            add_generation_prompt=True, **request["chat_template_kwargs"], **options)
        if rendered[0] != json.loads(line):
            bad += 1
            if bad < 4:
                print("DIFFERS", json.dumps(request, ensure_ascii=False), "\n template", repr(rendered[0]), "\n ours", repr(json.loads(line)))
    print(f"{n} random conversations, {bad} differ")
    return bad


def main():
    vectors = pathlib.Path(sys.argv[1]).read_bytes()
    template = TEMPLATE.read_text(encoding="utf-8")
    lines, bad = [], 0
    for case in json.loads(vectors)["cases"]:
        key = case["name"].split()[0]
        got, want = render(template, case), case["prompt"] + OPENED.get(key, "")
        if key in CANNOT:
            verdict = "not expressed: " + CANNOT[key]
        elif got == want:
            verdict = "equal"
        else:
            verdict, bad = "DIFFERS", bad + 1
            print(key, "\n got", repr(got), "\nwant", repr(want))
        lines.append(f"{key}: {verdict}")
    head = [f"# provenance: PyPI transformers {transformers.__version__}; tests/oracle/chat_template_check.py; {datetime.date.today()}",
            f"# template sha256 {hashlib.sha256(TEMPLATE.read_bytes()).hexdigest()}",
            f"# vectors sha256 {hashlib.sha256(vectors).hexdigest()}"]
    (ROOT / "tests/golden/chat_template/result.txt").write_text("\n".join(head + lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} cases, {bad} differ")
    if len(sys.argv) > 2:
        bad += compare_random(template, sys.argv[2], int((sys.argv[3:] or [2000])[0]), int((sys.argv[4:] or [1])[0]))
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
