#!/usr/bin/env python3
"""Trains the small tokenizer of the unit tests and records what the public `tokenizers` package makes of tricky strings. Run by hand:

    pip install tokenizers
    tests/oracle/make_mini_tokenizer.py         # writes tests/golden/tokenizer/mini_tokenizer.json and mini_vectors.jsonl
"""
import datetime
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tokenizer_compare import random_text  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
            " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
SPECIAL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
ORDINARY = ["<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>",
            "<｜authority｜>", "<｜domain｜>", "<｜title｜>", "<｜read_url｜>"]
CASES = ["", " ", "\n", "a", "Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ", "1234567 12 3", "  leading  and   inner\n\n\ttabs\r\n", "don't I'LL _x .foo #bar",
         "naïve café é", "日本語テキストabc", "🙂👩‍👩‍👧", "a\u00a0b\u3000c", "x" * 40, "ab" * 60, "the " * 30,
         "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">", "<｜User｜>Hello<｜Assistant｜><think>x</think>y<｜end▁of▁sentence｜>",
         "<｜User", "<think", "<<think>>", "<｜end▁of▁sentence｜<｜end▁of▁sentence｜>", "   \n   \n x", "a  1", "a  中", "\x00\x01ab", "\u0301x",
         "e\u0301\u0302", "½²٣", "１２３４", "!a!!b", "\r", " \r\n \r\n", "\t\tif (x) {\r\n\t\t\treturn y;\r\n\t\t}"]


def main():
    corpus = [p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("common/*/include/dsf/*/*.h"))]
    corpus += ["The quick brown fox jumps over the lazy dog. Hello world, how can I help you today? " * 4, "日本語テキスト 毕老师 你好 推理 答案 " * 4,
               "Привет мир naïve café über straße " * 4]
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS] +
                                                [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                        special_tokens=SPECIAL, show_progress=False))
    doc = json.loads(tok.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    next_id = len(doc["model"]["vocab"])
    doc["added_tokens"] = [{"id": i, "content": c, **flags, "normalized": False, "special": True} for i, c in enumerate(SPECIAL)]
    doc["added_tokens"] += [{"id": next_id + i, "content": c, **flags, "normalized": True, "special": False} for i, c in enumerate(ORDINARY)]
    doc["added_tokens"].append({"id": next_id + len(ORDINARY), "content": "<｜deepseek_image｜>", **flags, "normalized": False, "special": True})
    doc["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in doc["model"]["merges"]]
    out = ROOT / "tests/golden/tokenizer"
    text = json.dumps(doc, ensure_ascii=False, separators=(",", ":"))
    (out / "mini_tokenizer.json").write_text(text + "\n", encoding="utf-8")

    parsing = Tokenizer.from_str(text)
    plain = Tokenizer.from_str(json.dumps({**doc, "added_tokens": []}))
    rng = random.Random(20261130)
    cases = CASES + [random_text(rng) for _ in range(120 - len(CASES))]
    encode = lambda judge, t: judge.encode(t, add_special_tokens=False).ids  # noqa: E731
    rows = [json.dumps({"text": t, "parse": encode(parsing, t), "off": encode(plain, t)}, ensure_ascii=True) for t in cases]
    source = {"provenance": f"PyPI tokenizers {tokenizers.__version__}; tests/oracle/make_mini_tokenizer.py; {datetime.date.today()}"}
    (out / "mini_vectors.jsonl").write_text("\n".join([json.dumps(source)] + rows) + "\n")


main()
