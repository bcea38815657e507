#!/usr/bin/env python3
"""Makes the toy model's conversations: training token arrays and the held-out questions.

    python3 make_data.py text OUT.txt [N]            text for make_tokenizer.py
    python3 make_data.py tokens TOKENIZER OUT.npz [N] token ids and answer marks of N training conversations (N = 400000)
    python3 make_data.py heldout OUT.jsonl [N]       N held-out questions per skill and mode (N = 20)
    python3 make_data.py heldout-tokens TOKENIZER OUT.npz [N]    the held-out questions with their answers, for train.py
    python3 make_data.py heldout-ids TOKENIZER OUT.json [N]     the same as N sequences of up to 640 ids, for compare.py (N = 20)
    python3 make_data.py calibration TOKENIZER OUT.json [TOKENS]  ids of whole training conversations for `dsf-serve score --token-ids`

A twelfth of all items, by a hash of their keys, is held out: training never sees them, in no conversation. Seeded; the same everywhere.
"""

import json
import multiprocessing
import random
import sys

import numpy as np
from tokenizers import Tokenizer

import world
from prompt import render
from world import held_out

STYLES = [
    ("Answer briefly.", True),
    ("Give short answers.", True),
    ("You are a helpful assistant.", False),
    ("You answer the user's questions.", False),
]
CHUNK, LONGEST = 5000, 640
EFFORTS = ["low", "high", "max"]


def draw(rng, table, want_held):
    """An item of the table by weight, held out or not as wanted."""
    names = list(table)
    while True:
        maker = table[rng.choices(names, [table[n][1] for n in names])[0]][0]
        item = maker(rng)
        if held_out(item) == want_held:
            return item


def call_messages(item, thinking, effort):
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}
        for i, (name, arguments) in enumerate(item.calls)
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    if thinking:
        message["reasoning_content"] = item.reasons[EFFORTS.index(effort)]
    return [message] + [{"role": "tool", "tool_call_id": f"call_{i}", "content": r} for i, r in enumerate(item.results)]


def system_message(rng, item):
    """(messages, whether short answers are asked for); sometimes none."""
    if rng.random() < 0.6:
        return [], False
    text, short = rng.choice(STYLES if item.short is not None else STYLES[2:])
    return [{"role": "system", "content": text}], short


def question_messages(rng, item, thinking, effort, style=None):
    """Everything before the final answer, the answer message, and the call stage in between if any."""
    system, short = style if style is not None else system_message(rng, item)
    messages = [*system]
    for question, answer in item.before:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": item.question})
    stages = []
    if item.calls:
        called = call_messages(item, thinking, effort)
        stages.append((list(messages), called[0]))
        messages += called
    final = {"role": "assistant", "content": item.short if short else item.answer}
    if thinking:
        final["reasoning_content"] = "I have the result." if item.calls else item.reasons[EFFORTS.index(effort)]
    stages.append((list(messages), final))
    return stages


def conversation(rng):
    """Rendered parts of one training conversation."""
    thinking, effort = rng.random() < 0.45, rng.choice(EFFORTS)
    if rng.random() < 0.3:
        item = draw(rng, world.TOOLED, False)
        messages, final = question_messages(rng, item, thinking, effort)[-1]
        return render([*messages, final], thinking, effort, item.tools, item.schema)
    first = draw(rng, world.PLAIN, False)
    if thinking:
        history = [draw(rng, world.PLAIN, False)] if rng.random() < 0.2 else []
        first.before = (*((h.question, h.answer) for h in history if not h.before), *first.before)
        messages, final = question_messages(rng, first, thinking, effort)[-1]
        return render([*messages, final], thinking, effort)
    style = system_message(rng, first)
    messages = list(style[0])
    for item in [first] + [draw(rng, world.PLAIN, False) for _ in range(rng.choice([0, 0, 0, 1, 2]))]:
        asked, final = question_messages(rng, item, False, effort, ([], style[1]))[-1]
        messages += [*asked, final]
    return render(messages)


def answer_marks(parts, thinking):
    """Which answer parts count in the loss: with thinking only those that were written with it (the last ones)."""
    return [is_answer and (not thinking or "</think>" in text) for text, is_answer in parts]


def encode(tokenizer, parts):
    thinking = "Reasoning Effort:" in parts[0][0]
    ids, marks = [], []
    for (text, _), mark in zip(parts, answer_marks(parts, thinking)):
        piece = tokenizer.encode(text, add_special_tokens=False).ids
        ids += piece
        marks += [mark] * len(piece)
    return ids, marks


def held_out_questions(per_skill):
    rng = random.Random(77)
    for name, (maker, _) in {**world.PLAIN, **world.TOOLED}.items():
        for thinking in (False, True):
            seen = set()
            for _ in range(100 * per_skill):  # small families have fewer held-out items than asked for
                item = maker(rng)
                if len(seen) == per_skill:
                    break
                if not held_out(item) or item.key in seen:
                    continue
                seen.add(item.key)
                effort = rng.choice(EFFORTS)
                for stage, (messages, final) in enumerate(question_messages(rng, item, thinking, effort)):
                    skill = item.label or item.skill
                    skill += ("_answer" if stage else "_call") if item.calls else ""
                    case = {"skill": skill, "effort": effort if thinking else "none", "messages": messages, "expect": final}
                    yield {**case, **({"tools": item.tools} if item.tools else {}), **({"schema": item.schema} if item.schema else {})}


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    kind, rng = argv[0], random.Random(2026)
    if kind == "text":
        with open(argv[1], "w") as out:
            for _ in range(int(argv[2]) if len(argv) > 2 else 20000):
                out.write(json.dumps("".join(t for t, _ in conversation(rng))) + "\n")
    elif kind == "heldout":
        with open(argv[1], "w") as out:
            for case in held_out_questions(int(argv[2]) if len(argv) > 2 else 20):
                out.write(json.dumps(case, ensure_ascii=False) + "\n")
    else:
        tokenizer = Tokenizer.from_file(argv[1])
        if kind == "tokens":
            n = int(argv[3]) if len(argv) > 3 else 400000
            with multiprocessing.Pool() as pool:
                chunks = pool.starmap(chunk, [(argv[1], k, min(CHUNK, n - k)) for k in range(0, n, CHUNK)], 1)
            write_tokens(argv[2], sum(chunks, []))
        elif kind == "heldout-tokens":
            cases = list(held_out_questions(int(argv[3]) if len(argv) > 3 else 20))
            labels = [c["skill"] + ("" if c["effort"] == "none" else " thinking") for c in cases]
            write_tokens(argv[2], [encode_case(tokenizer, c) for c in cases], labels=np.array(labels))
        elif kind == "heldout-ids":
            write_sequences(argv[2], tokenizer, rng, int(argv[3]) if len(argv) > 3 else 20)
        else:
            ids, limit = [], int(argv[3]) if len(argv) > 3 else 16384
            while len(ids) < limit:
                ids += encode(tokenizer, conversation(rng))[0]
            json.dump(ids, open(argv[2], "w"), separators=(",", ":"))


def chunk(tokenizer, first, n):
    """n training conversations, the same whatever process makes them. Some stand behind each other in one sequence."""
    tokenizer, rng = Tokenizer.from_file(tokenizer), random.Random(2026000000 + first)
    out, joining = [], False
    for _ in range(n):
        ids, marks = encode(tokenizer, conversation(rng))
        if joining and len(out[-1][0]) + len(ids) <= LONGEST:
            out[-1] = (out[-1][0] + ids, out[-1][1] + marks)
        else:
            out.append((ids, marks))
            joining = rng.random() < 0.025
    return out


def encode_case(tokenizer, case):
    """Only the last answer counts."""
    effort = case["effort"]
    parts = render([*case["messages"], case["expect"]], effort != "none", effort, case.get("tools"), case.get("schema"))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text, _ in parts]
    return sum(ids, []), [False] * sum(map(len, ids[:-1])) + [True] * len(ids[-1])


def write_sequences(path, tokenizer, rng, n):
    cases, out = list(held_out_questions(20)), []
    rng.shuffle(cases)
    for ids in (encode_case(tokenizer, c)[0] for c in cases):
        if out and len(out[-1]) + len(ids) <= LONGEST:
            out[-1] += ids
        elif len(out) == n:
            break
        else:
            out.append(ids)
    with open(path, "w") as file:
        file.write("[" + ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in out) + "]\n")


def write_tokens(path, conversations, **more):
    ids, marks = zip(*conversations)
    lengths = np.array([len(i) for i in ids], np.int32)
    flat = np.concatenate([np.array(m, bool) for m in marks])
    np.savez_compressed(path, ids=np.concatenate([np.array(i, np.uint16) for i in ids]), marks=np.packbits(flat), lengths=lengths, **more)
    print(
        f"{len(ids)} conversations, {lengths.sum()} tokens, answers {flat.mean():.2f}, "
        f"lengths at 10, 50, 70, 90, 99, 100 %: {np.quantile(lengths, [0.1, 0.5, 0.7, 0.9, 0.99, 1]).astype(int).tolist()}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
