#!/usr/bin/env python3
"""Compares our encoder with the public `tokenizers` package on texts chosen to hurt. Run by hand.

    pip install tokenizers
    ninja -C build/dev tokenize_lines
    tests/oracle/tokenizer_compare.py TOKENIZER_JSON build/dev/tests/unit/tokenizer/tokenize_lines [N] [SEED] [FILE...]

N random texts (default 20000) are compared with added tokens parsed and not parsed; every FILE is compared whole and line by line.
"""
import json
import random
import subprocess
import sys

from tokenizers import Tokenizer

MARKERS = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>",
           "<｜deepseek_image｜>", "<｜System｜>", "<|EOT|>"]
WORDS = ["the", "Hello", "don't", "I'LL", "naïve", "日本語", "テキスト", "毕老师", "Привет", "مرحبا", "हिन्दी", "한국어", "x", "foo_bar", "http://a.b/c?d=1",
         "1234567", "3.14", "٣٤٥", "Ⅷ", "½", "e\u0301", "👩‍👩‍👧", "🙂", "\u200d", "\ufeff", "\x00", "\x7f", "\u3000", "\u00a0", "\u0085", "\u2028",
         "\r\n", "\n\n", "\t", "    ", " ", "_", "^", "`", "~", "¿", "…", "、", "。", "「", "々", "ヾ", "龥", "龦", "㐀", "𠀀", "𝔘", "Ĭ", "Ġ", "Ċ"]


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 24)):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(WORDS) * rng.choice([1, 1, 1, 2, 5]))
        elif kind < 0.55:
            parts.append(rng.choice(MARKERS)[: rng.choice([None, None, -1, 3])])
        elif kind < 0.75:
            parts.append("".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randrange(1, 12))))
        elif kind < 0.85:
            parts.append("".join(rng.choice(" \t\n\r\x0b\x0c\u00a0\u3000") for _ in range(rng.randrange(1, 6))))
        else:
            cp = rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x10000),
                             rng.randrange(0x10000, 0x20000), rng.randrange(0x1F300, 0x1FB00), rng.randrange(0x110000)])
            parts.append(chr(cp) if not 0xD800 <= cp < 0xE000 else "?")
    return "".join(parts)


def ours(binary, tokenizer, mode, texts):
    payload = "".join(json.dumps(t) + "\n" for t in texts)
    run = subprocess.run([binary, tokenizer, mode], input=payload.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def main():
    tokenizer, binary = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    texts = [random_text(rng) for _ in range(n)]
    for name in sys.argv[5:]:
        text = open(name, encoding="utf-8").read()
        texts += [text] + text.splitlines(keepends=True)
    bare = json.load(open(tokenizer, encoding="utf-8"))
    # The package renumbers added tokens behind a gap, so gaps get a token each.
    known = {t["id"] for t in bare["added_tokens"]} | set(bare["model"]["vocab"].values())
    gap = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    bare["added_tokens"] += [{"id": i, "content": f"<gap {i}>", **gap} for i in range(max(known)) if i not in known]
    bare["added_tokens"].sort(key=lambda t: t["id"])
    parsing = Tokenizer.from_str(json.dumps(bare))
    # The same model without added tokens: what "off" has to equal.
    bare["added_tokens"] = []
    plain = Tokenizer.from_str(json.dumps(bare))
    bad = 0
    for mode, judge in (("parse", parsing), ("off", plain)):
        want = [e.ids for e in judge.encode_batch(texts, add_special_tokens=False)]
        for text, a, b in zip(texts, ours(binary, tokenizer, mode, texts), want):
            if a != b:
                bad += 1
                if bad < 10:
                    print("DIFFERS", mode, ascii(text[:200]), "ours", a[:40], "theirs", b[:40])
    print(f"{len(texts)} texts, 2 modes, {bad} differences")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
