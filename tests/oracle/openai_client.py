#!/usr/bin/env python3
"""Drives a running dsf-serve with the public `openai` package and writes what it saw, without anything that changes between runs.

Set-up: python3 -m venv v && v/bin/pip install openai
Server: dsf-make-checkpoint --native M && dsf-serve --model M --port 8000 --served-model-name tiny
Usage:  v/bin/python tests/oracle/openai_client.py http://127.0.0.1:8000 tiny > tests/golden/openai_client.json

The model has random weights, so its words mean nothing; what is judged is the protocol: the client has to accept every object, the stream
has to equal the whole reply, a forced tool call has to be a call, and every error has to arrive as the right exception.
"""
import json
import platform
import sys

import openai

base_url, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=base_url + "/v1", api_key="none", max_retries=0, timeout=300)
OFF = {"chat_template_kwargs": {"thinking": False}}
TOOLS = [{"type": "function", "function": {"name": name, "description": "made for this test",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
         for name in ("get_weather", "get_time")]
report = {"provenance": f"tests/oracle/openai_client.py, openai {openai.__version__}, CPython {platform.python_version()}, 2026-11-30, "
                        "dsf-make-checkpoint --native with its default seed, --backend cpu"}


def ask(**more):
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 24, "seed": 7, "temperature": 0.7,
            "extra_body": OFF}
    return client.chat.completions.create(**{**body, **more})


def whole(**more):
    reply = ask(**more)
    choice = reply.choices[0]
    assert reply.object == "chat.completion" and choice.message.role == "assistant"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    return reply, choice


def streamed(**more):
    text, reasoning, finish, usage, calls = "", "", None, None, {}
    for chunk in ask(stream=True, stream_options={"include_usage": True}, **more):
        assert chunk.object == "chat.completion.chunk"
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                entry = calls.setdefault(call.index, ["", ""])
                entry[0] += call.function.name or ""
                entry[1] += call.function.arguments or ""
    return text, reasoning, finish, usage, [calls[i] for i in sorted(calls)]


reply, choice = whole()
text, _, finish, usage, _ = streamed()
assert (text, finish) == (choice.message.content or "", choice.finish_reason) and usage == reply.usage
report["chat"] = {"finish": finish, "completion_tokens": usage.completion_tokens, "stream_equals_whole": True}

thinking = {"extra_body": {"reasoning_effort": 50}}
reply, choice = whole(**thinking)
text, reasoning, finish, usage, _ = streamed(**thinking)
assert (reasoning, finish) == (choice.message.reasoning_content or "", choice.finish_reason)
report["thinking"] = {"finish": finish, "reasoning_tokens": usage.completion_tokens_details.reasoning_tokens, "stream_equals_whole": True}

for label, tool_choice in (("named", {"type": "function", "function": {"name": "get_time"}}), ("required", "required")):
    text, _, finish, usage, calls = streamed(tools=TOOLS, tool_choice=tool_choice, max_tokens=60)
    assert calls and calls[0][0] in ("get_weather", "get_time")
    report["tool_" + label] = {"name": calls[0][0], "finish": finish, "content": text}

reply, choice = whole(logprobs=True, top_logprobs=3, max_tokens=4)
assert len(choice.logprobs.content) == reply.usage.completion_tokens and len(choice.logprobs.content[0].top_logprobs) == 3
report["logprobs"] = {"tokens": len(choice.logprobs.content)}

completion = client.completions.create(model=model, prompt=["One", "Two"], max_tokens=5, seed=1)
report["completions"] = {"choices": len(completion.choices), "finish": [c.finish_reason for c in completion.choices]}
report["models"] = [m.id for m in client.models.list().data]
assert client.models.retrieve(model).id == model

schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 30}},
          "required": ["city", "days"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "stay", "schema": schema, "strict": True}}
reply, choice = whole(response_format=form, max_tokens=200)
value = json.loads(choice.message.content)
assert choice.finish_reason == "stop" and list(value) == ["city", "days"] and len(value["city"]) <= 12 and 1 <= value["days"] <= 30
text, _, finish, _, _ = streamed(response_format=form, max_tokens=200)
assert (text, finish) == (choice.message.content, "stop")
cut = whole(response_format={"type": "json_object"}, max_tokens=2)[1]
assert cut.message.content.startswith("{")
report["json_schema"] = {"finish": finish, "members": list(value), "stream_equals_whole": True, "json_object_cut": cut.finish_reason}

reply = ask(n=3, max_tokens=6)
assert [c.index for c in reply.choices] == [0, 1, 2] and reply.choices[0].message.content == ask(max_tokens=6).choices[0].message.content
seen = {chunk.choices[0].index for chunk in ask(n=3, max_tokens=6, stream=True) if chunk.choices}
report["n"] = {"choices": len(reply.choices), "different": len({c.message.content for c in reply.choices}), "streamed_indices": sorted(seen)}

errors = {}
for label, call in {
        "unknown model": lambda: ask(model="nobody"),
        "temperature": lambda: ask(temperature=-1),
        "no messages": lambda: ask(messages=[]),
        "context": lambda: ask(max_tokens=10**7),
        "n": lambda: ask(n=1000),
        "undeclared tool": lambda: ask(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "nope"}}),
        "image": lambda: ask(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
        "schema keyword": lambda: ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}),
        "unknown path": lambda: client.embeddings.create(model=model, input="x"),
}.items():
    try:
        call()
        errors[label] = "no error"
    except openai.APIStatusError as e:
        errors[label] = {"exception": type(e).__name__, "status": e.status_code, "code": e.code, "param": e.param, "type": e.type}
report["errors"] = errors
json.dump(report, sys.stdout, indent=1, ensure_ascii=False)
print()
