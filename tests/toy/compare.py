#!/usr/bin/env python3
"""Holds the torch model against `dsf-serve score` on an exported folder: logits at every position and perplexity.

    python3 compare.py FOLDER TOKEN_MAP SEQUENCES.json DSF_SERVE [FLAG ...]

Reads the weights from the folder, as an engine does. SEQUENCES: a JSON array of arrays of token ids (make_data.py heldout-ids). Flags go to
dsf-serve score.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import config
from model import Toy, key

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
KINDS = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
    "I8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
}


def read_safetensors(path):
    data = bytearray(pathlib.Path(path).read_bytes())
    n = int.from_bytes(data[:8], "little")
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            yield name, torch.frombuffer(data[8 + n + begin : 8 + n + end], dtype=torch.uint8).view(KINDS[t["dtype"]]).view(t["shape"])


def load(folder, token_map):
    raw = {name: t for path in sorted(pathlib.Path(folder).glob("model-*.safetensors")) for name, t in read_safetensors(path)}
    model = Toy(config.complete(token_map), token_map).eval()
    for name, (kind, _) in model.specs.items():
        w = raw[name]
        if kind == "fp4":
            w = E2M1[torch.stack([w & 15, w >> 4], -1).flatten(-2).long()]
        w = w.float()
        if kind in ("fp8", "fp4", "table"):
            s = torch.exp2(raw[name.removesuffix("weight") + "scale"].float() - 127).repeat_interleave(32, -1)
            w = w * (s.repeat_interleave(32, 0) if kind == "fp8" else s)
        model.p[key(name)].data.copy_(w)
    model.use_weights()
    return model


def engine_logits(binary, folder, ids, flags):
    with tempfile.TemporaryDirectory() as scratch:
        ids_file, out = pathlib.Path(scratch) / "ids.json", pathlib.Path(scratch) / "logits.safetensors"
        ids_file.write_text(json.dumps(ids))
        subprocess.run(
            [binary, "score", "--model", folder, "--token-ids", ids_file, "--logits", out, "-j", "1", *flags],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return dict(read_safetensors(out))["logits"]


def loss(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="sum").item()


@torch.no_grad()
def main(argv):
    if len(argv) < 4:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    token_map, sequences = json.loads(pathlib.Path(argv[1]).read_text()), json.loads(pathlib.Path(argv[2]).read_text())
    model, differences, greedy, ours_loss, engine_loss = load(argv[0], token_map), [], 0, 0.0, 0.0
    for ids in sequences:
        ours, engine = model(torch.tensor([ids]))[0][0], engine_logits(argv[3], argv[0], ids, argv[4:])
        differences.append((ours - engine).abs().amax(-1))
        greedy += (ours.argmax(-1) != engine.argmax(-1)).sum().item()
        ours_loss, engine_loss = ours_loss + loss(ours, ids), engine_loss + loss(engine, ids)
    d, n = torch.cat(differences), sum(len(ids) - 1 for ids in sequences)
    print(
        f"{len(d)} positions: logit difference median {d.median():.1e}, 99 % {np.quantile(d, 0.99):.1e}, largest {d.max():.1e}; "
        f"greedy tokens differ at {greedy}; perplexity torch {math.exp(ours_loss / n):.5f}, dsf-serve {math.exp(engine_loss / n):.5f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
