#!/usr/bin/env python3
"""Validates the files of dsf-bench result directories against manifests/schema/bench-*.json with the public jsonschema package.

Set-up: python3 -m venv v && v/bin/pip install jsonschema zstandard
Usage:  v/bin/python tests/oracle/bench_schema.py RESULT_DIR... [COMPARE_JSON...]
"""
import io
import json
import pathlib
import sys

import jsonschema
import zstandard

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "manifests" / "schema"


def validator(name):
    schema = json.loads((SCHEMAS / f"bench-{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


for argument in map(pathlib.Path, sys.argv[1:]):
    if argument.is_file():
        validator("compare").validate(json.loads(argument.read_text()))
        print(argument, "compare ok")
        continue
    validator("run").validate(json.loads((argument / "run.json").read_text()))
    validator("summary").validate(json.loads((argument / "summary.json").read_text()))
    raw, lines = validator("raw"), 0
    with open(argument / "raw.jsonl.zst", "rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)):
            raw.validate(json.loads(line))
            lines += 1
    print(argument, "run, summary and", lines, "raw records ok")
