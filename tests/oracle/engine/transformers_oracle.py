#!/usr/bin/env python3
"""Holds dsf-serve against the model code of the public `transformers` package, in f32, on random configurations.

    python3 transformers_oracle.py OUT DSF_SERVE [NAME ...]

Makes the checkpoints of score_oracle.py, and the further ones below, in OUT, loads each into the package's DeepseekV41ForCausalLM, and
compares its logits at every position with those of `dsf-serve score`: the whole prompt at once, and half of it followed by single tokens;
with the cache formats on and off. Needs torch, numpy, sympy and a transformers that has the model (README.md); says so when it does not.
"""
import contextlib
import inspect
import json
import pathlib
import subprocess
import sys

import numpy as np

import score_oracle
from reference_model import E4M3, Checkpoint, plain, read_safetensors

try:
    import torch
    import transformers
    from transformers.cache_utils import DynamicCache, DynamicSlidingWindowLayer
    from transformers.models.deepseek_v41 import configuration_deepseek_v41 as hf_config
    from transformers.models.deepseek_v41 import modeling_deepseek_v41 as hf
except ImportError as error:
    sys.exit(f"transformers_oracle.py: this Python has no transformers with deepseek_v41 ({error}); see README.md")

score_oracle.CONFIGS.update(
    # No tables at all, one stream of ratio 1 only: the shortest path through the model.
    bare=dict(tokens=53, storage="bf16", num_hidden_layers=4, compress_ratios=[0, 1, 1, 1, 0], kv_source_layer_ids=[1],
              index_source_layer_ids=[1, 3], candidate_source_layer_id=1, engram_layer_ids=[], dspark_target_layer_ids=[2, 3], hc_mult=1,
              index_topk=6, sliding_window=4),
    # Four sources of ratio 2 one after the other, then ratio 1; odd numbers of heads and experts; Engram behind the first source.
    chain=dict(tokens=93, storage="bf16", num_hidden_layers=8, hidden_size=88, compress_ratios=[2, 2, 2, 2, 2, 1, 1, 1, 0],
               kv_source_layer_ids=[0, 1, 3, 4, 5], index_source_layer_ids=[0, 1, 3, 4, 5, 7], candidate_source_layer_id=5,
               num_attention_heads=5, o_groups=5, head_dim=64, qk_rope_head_dim=32, n_routed_experts=9, num_experts_per_tok=4,
               engram_layer_ids=[2], dspark_target_layer_ids=[5, 7], index_topk=11, sliding_window=9, hc_mult=3),
)
FAKE_QUANTS = ("_fake_quant_fp8_block", "_fake_quant_fp4_block")


@contextlib.contextmanager
def cache_formats(on):
    kept = {name: getattr(hf, name) for name in FAKE_QUANTS}
    if not on:
        for name in FAKE_QUANTS:
            setattr(hf, name, lambda x, *args, **kwargs: x)
    yield
    for name, function in kept.items():
        setattr(hf, name, function)


def weight(checkpoint, name):
    """The tensor of a state-dict name in f32; the package's bias_vl is read at image positions only, and there are none."""
    stem = name.removeprefix("model.").replace("lm_head", "head")
    if stem.endswith("gate.bias_vl"):
        return None
    if stem.endswith("engram.embed.weight"):
        scale = plain(*checkpoint.raw[stem.replace("weight", "scale")])
        return E4M3[checkpoint.raw[stem][1]] * np.repeat(scale, 32, 1)
    if stem.endswith("engram.embed.scale"):
        return None  # the f32 table holds the products
    if stem.endswith(".weight") and checkpoint.raw[stem][1].ndim == 2:
        return checkpoint.linear(stem.removesuffix(".weight"))
    return plain(*checkpoint.raw[stem])


def load(folder):
    config = json.loads((folder / "config.json").read_text())["text_config"]
    known = inspect.signature(hf_config.DeepseekV41TextConfig).parameters
    fields = {k: v for k, v in config.items() if k in known}
    fields["engram_pad_id"] = config["engram_pad_token_id"]
    model = hf.DeepseekV41ForCausalLM(hf_config.DeepseekV41TextConfig(**fields, attn_implementation="eager")).float().eval()
    checkpoint, state = Checkpoint(folder), model.state_dict()
    for name, tensor in state.items():
        value = weight(checkpoint, name)
        if value is None:
            tensor.zero_()
        else:
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(value)).float())
    if config["engram_layer_ids"]:
        token_map = json.loads((folder / "engram_token_map.json").read_text())
        hf.build_compressed_token_map = lambda tokenizer: (token_map, max(token_map) + 1)
        model.model.bind_tokenizer(None)
    return model


def new_cache(config):
    """As DynamicCache(config=...) of the version that has the model: compressed rows at KV sources, a window everywhere."""
    cache = DynamicCache()
    cache.layers = [hf.DeepseekV41CSACache(config) if i in config.kv_source_layer_ids else DynamicSlidingWindowLayer(config.sliding_window)
                    for i in range(config.num_hidden_layers)]
    return cache


@torch.no_grad()
def logits_of(model, ids, cuts):
    """Logits of all positions, the tokens given in pieces that end at cuts."""
    cache, rows, begin = new_cache(model.config), [], 0
    if model.model.engram_hash_state is not None:
        model.model.engram_hash_state.history = None
    for end in [*cuts, len(ids)]:
        out = model(input_ids=torch.tensor([ids[begin:end]]), past_key_values=cache, use_cache=True)
        rows.append(out.logits[0].double().numpy())
        begin = end
    return np.concatenate(rows)


def engine_logits(binary, folder, result, flags):
    command = [binary, "score", "--model", folder, "--token-ids", folder / "ids.json", "--logits", result, "--chunk", "16", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plain(*read_safetensors(result)["logits"])


def compare(out, binary, name):
    folder = out / name
    if not (folder / "ids.json").exists():
        score_oracle.make(out, name)
    ids = json.loads((folder / "ids.json").read_text())
    model = load(folder)
    half = len(ids) // 2
    for on, flags in ((False, ["--no-cache-fake-quant"]), (True, [])):
        engine = engine_logits(binary, folder, out / f"{name}.score.safetensors", flags)
        with cache_formats(on):
            whole, steps = logits_of(model, ids, []), logits_of(model, ids, range(half, len(ids)))
        report(name, on, engine, whole, steps)


def report(name, on, engine, whole, steps):
    """Where the package's own two ways differ by more than rounding, a selection met a tie: the engine has to agree with one of them."""
    torn = np.abs(whole - steps).max(-1) > 1e-3
    to_whole, to_steps = np.abs(engine - whole).max(-1), np.abs(engine - steps).max(-1)
    line = f"{name}: cache formats {'on' if on else 'off'}: largest logit difference {to_whole[~torn].max():.1e} (whole), "
    line += f"{to_steps[~torn].max():.1e} (half, then single tokens); the package with itself {np.abs(whole - steps).max(-1)[~torn].max():.1e}; "
    line += f"logits within {np.abs(whole).max():.1f}; greedy tokens differ at {(engine.argmax(-1) != whole.argmax(-1)).sum()} of {len(engine)}"
    if torn.any():
        line += f"; at {torn.sum()} positions the package differs from itself by up to {np.abs(whole - steps)[torn].max():.1e}, "
        line += f"the engine from the nearer of the two by {np.minimum(to_whole, to_steps)[torn].max():.1e}"
    print(line, flush=True)


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
    torch.set_num_threads(1)
    for name in argv[2:] or score_oracle.CONFIGS:
        compare(pathlib.Path(argv[0]), argv[1], name)


if __name__ == "__main__":
    main(sys.argv[1:])
