#!/usr/bin/env python3
"""Holds the torch model against `dsf-serve score` on an exported folder: logits at every position and perplexity.

    python3 compare.py FOLDER TOKEN_MAP IDS.json DSF_SERVE [TOKENS]

Reads the weights from the folder, as an engine does. IDS: a JSON array of token ids, of which TOKENS are taken (400).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import config
from model import Toy, key

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
KINDS = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.uint8, "I8": torch.uint8, "I32": torch.int32, "I64": torch.int64}


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


@torch.no_grad()
def main(argv):
    if len(argv) < 4:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    token_map, ids = json.loads(pathlib.Path(argv[1]).read_text()), json.loads(pathlib.Path(argv[2]).read_text())
    ids = ids[: int(argv[4]) if len(argv) > 4 else 400]
    model = load(argv[0], token_map)
    ours = model(torch.tensor([ids]))[0][0]
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "ids.json").write_text(json.dumps(ids))
        out = pathlib.Path(scratch) / "logits.safetensors"
        subprocess.run([argv[3], "score", "--model", argv[0], "--token-ids", f"{scratch}/ids.json", "--logits", out, "-j", "1"], check=True)
        engine = dict(read_safetensors(out))["logits"]
    difference = (ours - engine).abs().amax(-1)
    perplexity = lambda z: torch.exp(torch.nn.functional.cross_entropy(z[:-1], torch.tensor(ids[1:]))).item()  # noqa: E731
    print(f"{len(ids)} positions, logits within {engine.abs().max():.1f}: difference median {difference.median():.1e}, 99 % {np.quantile(difference, 0.99):.1e}, "
          f"largest {difference.max():.1e}; greedy tokens differ at {(ours.argmax(-1) != engine.argmax(-1)).sum()}; "
          f"perplexity torch {perplexity(ours):.5f}, dsf-serve {perplexity(engine):.5f}")


if __name__ == "__main__":
    main(sys.argv[1:])
