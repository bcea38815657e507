#!/usr/bin/env python3
"""What the parts of the trained model are worth: held-out answers and perplexity with one part taken out at a time.

python3 ablate.py FOLDER TOKEN_MAP HELDOUT.npz          HELDOUT: make_data.py heldout-tokens
"""

import json
import pathlib
import sys

import torch

import model as toy
from compare import load
from train import buckets_of, exact_matches


def zero(m, *endings):
    for name in m.specs:
        if name.endswith(endings):
            m.p[toy.key(name)].data.zero_()


def no_selection(m):
    m.choose = lambda layer, p, x, lora, ratio, shared, turn: torch.zeros(*x.shape[:2], shared.rows.shape[1], dtype=torch.bool)


def first_rows(m):
    """The oldest visible rows instead of the indexer's choice: what a broken indexer would take."""
    zero(m, "indexer.weights_proj.weight")


def plain_caches(_):
    toy.cache = lambda x, kind: x


PARTS = {
    "nothing": lambda m: None,
    "the indexer's choice (the oldest rows instead)": first_rows,
    "all compressed rows": no_selection,
    "the limit on rows (all visible ones)": lambda m: m.dense.fill_(True),
    "Engram": lambda m: zero(m, "engram.wkv.weight"),
    "Engram of layer 1": lambda m: zero(m, "layers.1.engram.wkv.weight"),
    "Engram of layer 3": lambda m: zero(m, "layers.3.engram.wkv.weight"),
    "routed experts": lambda m: zero(m, *(f"experts.{e}.w2.weight" for e in range(4))),
    "shared experts": lambda m: zero(m, "shared_experts.w2.weight"),
    "cache formats": plain_caches,
}


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    token_map, buckets, cache = json.loads(pathlib.Path(argv[1]).read_text()), buckets_of(argv[2], 2048, "cpu"), toy.cache
    print("| taken out | thinking off | thinking on | perplexity |\n| --- | --- | --- | --- |")
    for part, remove in PARTS.items():
        m = load(argv[0], token_map)
        toy.cache = cache
        remove(m)
        scores, perplexity = exact_matches(m, buckets)
        shares = [[sum(v[k] for label, v in scores.items() if label.endswith("thinking") == on) for k in (0, 1)] for on in (False, True)]
        print(f"| {part} | " + " | ".join(f"{100 * r / n:.0f} %" for r, n in shares) + f" | {perplexity:.5f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
