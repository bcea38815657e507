#!/usr/bin/env python3
"""Writes a trained state of train.py as a checkpoint folder in the release's layout.

    python3 export.py STATE TOKENIZER TOKEN_MAP OUT       STATE: a folder with state-*.safetensors, or `random` for untrained weights

Shards are at most 1 MiB. What an EXL3 pack keeps as it is (embedding, norms, mixes, sinks, router, Markov and confidence heads) stands in
shards of its own before the matrices; each Engram layer is one shard at the end, as in the release.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np
import torch

import config
from formats import encode, whole
from model import Toy, key
from train import restore

LIMIT = 1 << 20


def codes_e4m3(values):
    return values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def codes_e2m1(values):
    """Two codes a byte, the even column in the low half."""
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = torch.searchsorted(grid, values.abs()).to(torch.uint8) + 8 * (values < 0).to(torch.uint8)
    return (codes[:, 0::2] | codes[:, 1::2] << 4).numpy()


def exponents(s, shape):
    return (torch.frexp(s.squeeze(-1))[1] - 1 + 127).to(torch.uint8).reshape(shape).numpy()


def stored_tensors(name, kind, w):
    """[(name, dtype, array)] of one weight in its storage form."""
    if kind == "f32":
        return [(name, "F32", w.numpy())]
    if kind == "bf16":
        return [(name, "BF16", w.to(torch.bfloat16).view(torch.int16).numpy())]
    values, s = encode(w, kind)
    values, scale = whole(values, w.shape, kind), name.removesuffix("weight") + "scale"
    scale_shape = (w.shape[0] // 32, w.shape[1] // 32) if kind == "fp8" else (w.shape[0], w.shape[1] // 32)
    data = (name, "I8", codes_e2m1(values)) if kind == "fp4" else (name, "F8_E4M3", codes_e4m3(values))
    return [data, (scale, "F8_E8M0", exponents(s, scale_shape))]


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, dtype, raw in tensors:
        blob = np.ascontiguousarray(raw).tobytes()
        header[name] = {"dtype": dtype, "shape": list(raw.shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def shards_of(model):
    """Lists of stored tensors: unpacked ones, matrices, then one list per Engram layer."""
    unpacked, matrices, engram = [], [], {i: [] for i in model.c["engram_layer_ids"]}
    for name, (kind, _) in model.specs.items():
        tensors = stored_tensors(name, kind, model.p[key(name)].detach().float())
        layer = int(name.split(".")[1]) if ".engram." in name else None
        packed = kind in ("fp8", "fp4") or name.startswith("head.") or "compressor.w" in name or "indexer.wk" in name
        (engram[layer] if layer is not None else matrices if packed else unpacked).extend(tensors)
    return [*split(unpacked), *split(matrices), *engram.values()]


def split(tensors):
    shards, size = [[]], 0
    for t in tensors:
        cost = t[2].nbytes + 160
        if shards[-1] and size + cost > LIMIT:
            shards.append([])
            size = 0
        shards[-1].append(t)
        size += cost
    return shards


def config_json(c, ids):
    return dict(
        architectures=["DeepseekV41ForCausalLM"],
        model_type="deepseek_v41",
        dtype="bfloat16",
        transformers_version="5.6.0",
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        image_token_id=ids["<｜deepseek_image｜>"],
        quantization_config=dict(
            quant_method="fp8", activation_scheme="dynamic", weight_block_size=[32, 32], scale_fmt="ue8m0", expert_dtype="fp4"
        ),
        text_config=c,
    )


def write_folder(model, tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*"):
        old.unlink()
    ids = {t["content"]: t["id"] for t in json.loads(tokenizer.read_text())["added_tokens"]}
    shards = shards_of(model)
    entries, total = {}, 0
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(out / name, tensors)
        size = (out / name).stat().st_size
        if size > LIMIT:
            sys.exit(f"export.py: {name} has {size} bytes, more than 1 MiB")
        entries |= {t[0]: name for t in tensors}
        total += sum(t[2].nbytes for t in tensors)
    put = lambda name, value: (out / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")  # noqa: E731
    put("model.safetensors.index.json", dict(metadata=dict(total_size=total), weight_map=dict(sorted(entries.items()))))
    put("config.json", config_json(model.c, ids))
    put(
        "tokenizer_config.json",
        dict(
            add_bos_token=False,
            add_eos_token=False,
            bos_token="<｜begin▁of▁sentence｜>",
            clean_up_tokenization_spaces=False,
            eos_token="<｜end▁of▁sentence｜>",
            model_max_length=4096,
            pad_token="<｜end▁of▁sentence｜>",
            tokenizer_class="PreTrainedTokenizerFast",
            unk_token=None,
        ),
    )
    put(
        "generation_config.json",
        dict(
            _from_model_config=True,
            bos_token_id=0,
            eos_token_id=1,
            do_sample=True,
            temperature=1.0,
            top_p=0.95,
            transformers_version="5.6.0",
        ),
    )
    shutil.copy(tokenizer, out / "tokenizer.json")
    print(
        f"{len(shards)} shards, {len(entries)} tensors, {total} bytes of tensors, "
        f"{sum(f.stat().st_size for f in out.iterdir())} bytes of files"
    )


def main(argv):
    if len(argv) != 4:
        sys.exit(__doc__)
    token_map = json.loads(pathlib.Path(argv[2]).read_text())
    model = Toy(config.complete(token_map), token_map)
    if argv[0] != "random":
        restore(model, argv[0])
    write_folder(model, pathlib.Path(argv[1]), pathlib.Path(argv[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
