#!/usr/bin/env python3
"""Judges random texts of JSON-schema grammars by the public `jsonschema` package. Run by hand:

    pip install jsonschema rfc3339-validator
    ninja -C build/dev grammar_samples
    tests/oracle/grammar_oracle.py build/dev/tests/unit/grammar/grammar_samples TOKENIZER_JSON [N]

The schemas below, and as many random ones again; N texts of each (default 40). Ends with the number of texts and of invalid ones.
"""
import json
import random
import subprocess
import sys

import jsonschema

FIXED = [
    {"type": "object"},
    {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"], "additionalProperties": {"type": "null"}},
    {"type": "object", "properties": {"a": {"const": "x\"y"}}, "required": ["a", "free"]},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"v": {"type": "boolean"}, "k": {"type": "array", "maxItems": 2,
     "items": {"$ref": "#/$defs/t"}}}, "required": ["v"], "additionalProperties": False}}},
    {"anyOf": [{"type": "string", "minLength": 2, "maxLength": 5}, {"type": "integer", "minimum": -7, "maximum": 1234}, {"enum": [[1, {"a": None}], 2.5]}]},
    {"type": "number", "exclusiveMinimum": -0.25, "maximum": 17.125},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "string", "maxLength": 1}], "items": False, "minItems": 2},
    *({"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "ipv4", "email")),
    {"type": "string", "pattern": "^(\\+\\d{1,3} )?\\d{3}-\\d{4}$"},
    {"type": "string", "pattern": "[^a-z]end"},
    {"type": ["boolean", "array"], "items": {"type": "string", "pattern": "^\\S{1,4}$"}, "maxItems": 3},
]


def random_schema(rng, depth=0):
    kind = rng.choice(["string", "integer", "number", "boolean", "enum"] + ["object", "array", "anyOf"] * (depth < 3))
    if kind == "object":
        names = rng.sample(["id", "name", "x y", "é", "q\"", "tab\t", "n/a"], rng.randrange(0, 4))
        out = {"type": "object", "properties": {n: random_schema(rng, depth + 1) for n in names},
               "required": [n for n in names if rng.random() < 0.5]}
        if rng.random() < 0.7:
            out["additionalProperties"] = rng.choice([False, {"type": "integer"}])
        return out
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": low, "maxItems": low + rng.randrange(3)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randrange(1, 4))]}
    if kind == "enum":
        return {"enum": rng.sample([None, True, 3, -1.5, "a", "ab", "a\nb", [], {"k": "v"}], 3)}
    if kind == "string":
        low = rng.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(6)}
    if kind == "boolean":
        return {"type": "boolean"}
    low = rng.choice([rng.randrange(-2000, 2000), round(rng.uniform(-50, 50), rng.randrange(4))])
    low_key, high_key = rng.choice(["minimum", "exclusiveMinimum"]), rng.choice(["maximum", "exclusiveMaximum"])
    return {"type": kind, low_key: low, high_key: low + rng.choice([3, 40.5, 100000])}


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    rng = random.Random(2026)
    schemas = FIXED + [random_schema(rng) for _ in range(60)]
    lines = "".join(json.dumps(s) + "\n" for s in schemas)
    out = subprocess.run([argv[0], argv[1], argv[2] if len(argv) > 2 else "40"], input=lines, capture_output=True, text=True, check=True).stdout
    n_texts = n_wrong = 0
    for schema, line in zip(schemas, out.removesuffix("\n").split("\n"), strict=True):
        judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        texts = json.loads(line)
        if not texts:
            print("no text ended:", json.dumps(schema))
        for text in texts:
            n_texts += 1
            errors = list(judge.iter_errors(json.loads(text)))
            if errors:
                n_wrong += 1
                print(json.dumps(schema), "\n  ", text, "\n  ", errors[0].message)
    print(f"{len(schemas)} schemas, {n_texts} texts, {n_wrong} invalid")
    return n_wrong != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
