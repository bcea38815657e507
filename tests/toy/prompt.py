"""The V4.1 prompt format as far as the toy data needs it (serving.md 2): roles system, user, assistant and tool, tools, a response schema,
thinking and efforts. `python3 prompt.py VECTORS` holds it against the shared prompt vectors.

A rendered conversation is a list of (text, is_answer) parts; an answer part ends with the end-of-sentence marker and always follows a
control marker, so that the parts may be tokenized one by one.
"""

import json
import sys

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT, DSML = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜"
EFFORTS = {None: 75, "low": 50, "medium": 75, "high": 75, "max": 100}

TOOLS = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML} calls>" block like the following:

<{DSML} calls>
<{DSML} invoke name="$TOOL_NAME">
<{DSML} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML} parameter>
...
</{DSML} invoke>
<{DSML} invoke name="$TOOL_NAME2">
...
</{DSML} invoke>
</{DSML} calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

%s

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
RESPONSE_FORMAT = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n%s"


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def effort_line(effort):
    n = effort if isinstance(effort, int) else EFFORTS[effort]
    return f"Reasoning Effort: {n} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"


def calls_text(calls):
    """The DSML block of an assistant turn's tool calls."""
    invokes = []
    for call in calls:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        parameters = "\n".join(
            f'<{DSML} parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{value if isinstance(value, str) else dumps(value)}</{DSML} parameter>"
            for key, value in arguments.items()
        )
        invokes.append(f'<{DSML} invoke name="{call["function"]["name"]}">\n{parameters}\n</{DSML} invoke>')
    return f"\n\n<{DSML} calls>\n" + "\n".join(invokes) + f"\n</{DSML} calls>"


def merge(messages, tools, schema):
    """System first if anything is attached to it; tool and user messages as user turns made of blocks."""
    turns = []
    if (tools or schema) and (not messages or messages[0]["role"] != "system"):
        messages = [{"role": "system", "content": ""}, *messages]
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role not in ("user", "tool"):
            turns.append(dict(message, content=content))
            continue
        block = f"<tool_result>{content}</tool_result>" if role == "tool" else content
        if turns and turns[-1]["role"] == "user":
            turns[-1]["content"] += "\n\n" + block
        else:
            turns.append({"role": "user", "content": block})
    return turns


def render(messages, thinking=False, effort=None, tools=None, schema=None, open_turn=True):
    """Parts of the whole prompt. open_turn: the header of the next answer is the last part."""
    turns = merge(messages, tools, schema)
    keep = bool(tools)  # declared tools keep all reasoning
    last_user = max((i for i, t in enumerate(turns) if t["role"] == "user" or (t["role"] == "system" and i)), default=-1)
    parts, text = [], BOS
    if thinking:
        text += SYSTEM + effort_line(effort)
    elif turns and turns[0]["role"] == "system":
        text += SYSTEM
    for i, turn in enumerate(turns):
        if turn["role"] == "assistant":
            reasoning = (turn.get("reasoning_content") or "") + "</think>" if thinking and (keep or i > last_user) else ""
            calls = calls_text(turn["tool_calls"]) if turn.get("tool_calls") else ""
            parts += [(text, False), (reasoning + turn["content"] + calls + EOS, True)]
            text = ""
            continue
        if turn["role"] == "system":
            text += (SYSTEM if i else "") + turn["content"]
            if not i and tools:
                text += "\n\n" + TOOLS % "\n".join(dumps(tool["function"]) for tool in tools)
            if not i and schema:
                text += "\n\n" + RESPONSE_FORMAT % dumps(schema)
        else:
            text += USER + turn["content"]
        following = turns[i + 1]["role"] if i + 1 < len(turns) else None
        if (turn["role"] == "user" or i) and (following == "assistant" or (following is None and open_turn)):
            text += ASSISTANT + ("<think>" if thinking and (keep or i >= last_user) else "</think>")
    return [*parts, (text, False)] if text else parts


def in_scope(case):
    """What the toy data uses: text of four roles, whole arguments; no order of results, reminders, tasks or continuations."""
    roles = ("system", "user", "assistant", "tool")
    plain = all(
        m["role"] in roles and isinstance(m.get("content") or "", str) and not {"reasoning", "task"} & set(m) for m in case["messages"]
    )
    calls = [c for m in case["messages"] for c in m.get("tool_calls") or []]
    return plain and len(calls) < 2 and "cont" not in case and case["messages"][-1]["role"] != "assistant"


def check(vectors):
    cases = [case for case in json.load(open(vectors))["cases"] if in_scope(case)]
    for case in cases:
        parts = render(case["messages"], case["thinking"], case.get("effort"), case.get("tools"), case.get("response_format"))
        text = "".join(t for t, _ in parts)
        if text != case["prompt"]:
            sys.exit(f"{case['name']}:\n{text}\n---\n{case['prompt']}")
    print(f"{len(cases)} prompt vectors agree: {', '.join(case['name'].split()[0] for case in cases)}")


if __name__ == "__main__":
    check(sys.argv[1])
