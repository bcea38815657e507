#!/usr/bin/env python3
"""Learns the toy model's tokenizer from text of make_data.py: byte-level BPE with the release's pre-tokenizer and special tokens.

    python3 make_tokenizer.py TEXT.jsonl OUT_FOLDER [VOCAB]     tokenizer.json and token_map.json

Digits are never merged, so that a number is read digit by digit; everything else is as serving.md 1 says. token_map.json holds the Engram
ids (engram.md 2) for training; engines make their own from tokenizer.json. Needs `tokenizers`.
"""

import json
import pathlib
import re
import sys
import unicodedata

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import config

FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
TOOL = [
    f"<｜tool▁{t}｜>"
    for t in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "outputs▁begin", "outputs▁end", "output▁begin", "output▁end", "sep")
]
TASKS = [f"<｜{t}｜>" for t in ("action", "query", "authority", "domain", "title", "read_url")]
LAST = [
    "<｜System｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<|EOT|>",
    *TOOL,
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    *TASKS,
    "<｜deepseek_image｜>",
    "<|place_holder_mm_span_0436|>",
    "<｜image｜>",
]
SPECIAL = {*FIRST, "<|EOT|>", *LAST[-3:]}
RAW = {*FIRST, *LAST[-3:]}  # found on the text as given
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
    "\\s+(?!\\S)|\\s+",
]


def learn(texts, vocab):
    """Pieces in order of rank and their merges."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            digits,
            *(pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    )
    return json.loads(tokenizer.to_str())["model"]


def write(model, path, vocab):
    pieces = [*FIRST, *sorted(model["vocab"], key=model["vocab"].get)]
    assert len(pieces) + len(LAST) == vocab, f"{len(pieces)} pieces learned; too little text for {vocab}"
    ids = {**{t: i for i, t in enumerate(FIRST)}, **{t: vocab - len(LAST) + i for i, t in enumerate(LAST)}}
    added = [
        dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=t not in RAW, special=t in SPECIAL)
        for t, i in ids.items()
    ]
    level = dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)
    split = [dict(type="Split", pattern={"Regex": s}, behavior="Isolated", invert=False) for s in SPLITS]
    whole = dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=added,
        normalizer=dict(type="Sequence", normalizers=[]),
        pre_tokenizer=dict(type="Sequence", pretokenizers=[*split, dict(level, add_prefix_space=False, use_regex=False)]),
        post_processor=dict(level, trim_offsets=False),
        decoder=level,
        model=dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab={t: i for i, t in enumerate(pieces)},
            merges=[m if isinstance(m, str) else " ".join(m) for m in model["merges"]],
        ),
    )
    with open(path, "w") as out:
        json.dump(whole, out, ensure_ascii=False, indent=0)
        out.write("\n")
    return {t: i for i, t in enumerate(pieces)} | ids


def normalize(text):
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c.lower() for c in text if not unicodedata.category(c).startswith("M"))
    text = re.sub("[ \t\r\n]+", " ", text)
    return " " if text == " " else text.strip()


def engram_map(ids):
    """Raw id -> Engram id; ids: token -> id, without gaps."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    seen, out = {}, []
    for token in sorted(ids, key=ids.get):
        spelled = all(c in byte_of for c in token)
        text = bytes(byte_of[c] for c in token).decode("utf-8", "replace") if spelled else token
        name = token if "\ufffd" in text else normalize(text) or text
        out.append(seen.setdefault(name, len(seen)))
    return out


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    vocab, out = int(argv[2]) if len(argv) > 2 else config.VOCAB, pathlib.Path(argv[1])
    texts = [json.loads(line) for line in open(argv[0])]
    for token in [*FIRST, *LAST]:  # the learner sees text between control tokens only
        texts = [t.replace(token, "\n") for t in texts]
    ids = write(learn(texts, vocab - len(FIRST) - len(LAST)), out / "tokenizer.json", vocab)
    (out / "token_map.json").write_text(json.dumps(engram_map(ids)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
