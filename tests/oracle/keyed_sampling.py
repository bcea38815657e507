#!/usr/bin/env python3
"""Writes tests/golden/keyed_sampling.json: the keyed draw and default seeds of serving.md 5.3, with Python's integers.

Usage: python3 tests/oracle/keyed_sampling.py > tests/golden/keyed_sampling.json
"""
import hashlib
import json
import platform
from fractions import Fraction

MASK = (1 << 64) - 1


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def uniform(seed, position, token):
    h = mix(seed + 0x9E3779B97F4A7C15 & MASK)
    h = mix(h ^ (position * 0xD1B54A32D192ED03 & MASK))
    h = mix(h ^ token)
    return float(Fraction(h >> 11, 1 << 53) + Fraction(1, 1 << 54))  # exact, then rounded once to nearest even


def seed_for(ids, salt):
    text = ",".join(map(str, ids)) + "|" + str(salt)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") & (1 << 63) - 1


DRAWS = [(0, 0, 0), (1, 1, 1), (42, 100, 510), (3541722407261185182, 463552, 314), (6622313928416904403, 774070, 510),
         (9223372036854775807, 1048575, 129279)]
SEEDS = [([0], 0), ([0, 128803, 19923, 128804, 128822], 0), ([0, 128803, 19923, 128804, 128822], 7)]

print(json.dumps({
    "provenance": "tests/oracle/keyed_sampling.py, CPython " + platform.python_version() + ", 2026-11-30",
    "uniform": [{"seed": s, "position": p, "id": i, "u": uniform(s, p, i).hex()} for s, p, i in DRAWS],
    "seed_for": [{"ids": ids, "salt": salt, "seed": seed_for(ids, salt)} for ids, salt in SEEDS],
}, indent=1))
