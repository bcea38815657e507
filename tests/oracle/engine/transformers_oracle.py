#!/usr/bin/env python3
"""Holds dsf-serve against the model code of the public `transformers` package, in f32, on random configurations or a given checkpoint.

    python3 transformers_oracle.py OUT DSF_SERVE [NAME ...]
    python3 transformers_oracle.py --folder FOLDER SEQUENCES.json DSF_SERVE

The first makes the checkpoints of score_oracle.py, and the further ones below, in OUT, loads each into the package's
DeepseekV41ForCausalLM, and compares its logits at every position with those of `dsf-serve score`: the whole prompt at once, and half of it
followed by single tokens; with the cache formats on and off. The second does so with a checkpoint in native form and a JSON array of arrays
of token ids, whole and in pieces of 64, and compares perplexities. Needs torch, numpy, sympy and a transformers that has the model
(README.md); says so when it does not.
"""
import contextlib
import inspect
import json
import math
import pathlib
import subprocess
import sys
import tempfile

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
FORMATS = ((False, ["--no-cache-fake-quant"]), (True, []))
PIECE = 64
TORN = 1e-3  # what no rounding of f32 explains: a selection or a cache value went the other way


@contextlib.contextmanager
def cache_formats(on):
    kept = {name: getattr(hf, name) for name in FAKE_QUANTS}
    if not on:
        for name in FAKE_QUANTS:
            setattr(hf, name, lambda x, *args, **kwargs: x)
    yield
    for name, function in kept.items():
        setattr(hf, name, function)


@contextlib.contextmanager
def lower_of_equals():
    """Top-k that takes the lower of equal entries, as the engine does; torch's may take any, and may take another in another batch."""
    kept = torch.Tensor.topk

    def topk(x, k, dim=-1, largest=True, sorted=True):
        if not largest:
            return kept(x, k, dim, largest, sorted)
        values, indices = x.sort(dim=dim, descending=True, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    torch.Tensor.topk = topk
    yield
    torch.Tensor.topk = kept


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
        bind_token_map(model.model, folder)
    return model


def bind_token_map(backbone, folder):
    """By the package's own function where the checkpoint has a tokenizer; random checkpoints have only the map."""
    if (folder / "tokenizer.json").exists():
        backbone.bind_tokenizer(transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")))
        return
    token_map = json.loads((folder / "engram_token_map.json").read_text())
    hf.build_compressed_token_map = lambda tokenizer: (token_map, max(token_map) + 1)
    backbone.bind_tokenizer(None)


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


def engine_logits(binary, folder, ids, result, flags):
    command = [binary, "score", "--model", folder, "--token-ids", ids, "--logits", result, "--chunk", "16", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plain(*read_safetensors(result)["logits"])


def compare(out, binary, name):
    folder = out / name
    if not (folder / "ids.json").exists():
        score_oracle.make(out, name)
    ids = json.loads((folder / "ids.json").read_text())
    model = load(folder)
    half = len(ids) // 2
    for on, flags in FORMATS:
        engine = engine_logits(binary, folder, folder / "ids.json", out / f"{name}.score.safetensors", flags)
        with cache_formats(on):
            whole, steps = logits_of(model, ids, []), logits_of(model, ids, range(half, len(ids)))
        report(name, on, engine, whole, steps)


def report(name, on, engine, whole, steps):
    """Where the package's own two ways differ by more than rounding, a selection met a tie: the engine has to agree with one of them."""
    torn = np.abs(whole - steps).max(-1) > TORN
    to_whole, to_steps = np.abs(engine - whole).max(-1), np.abs(engine - steps).max(-1)
    line = f"{name}: cache formats {'on' if on else 'off'}: largest logit difference {to_whole[~torn].max():.1e} (whole), "
    line += f"{to_steps[~torn].max():.1e} (half, then single tokens); the package with itself {np.abs(whole - steps).max(-1)[~torn].max():.1e}; "
    line += f"logits within {np.abs(whole).max():.1f}; greedy tokens differ at {(engine.argmax(-1) != whole.argmax(-1)).sum()} of {len(engine)}"
    if torn.any():
        line += f"; at {torn.sum()} positions the package differs from itself by up to {np.abs(whole - steps)[torn].max():.1e}, "
        line += f"the engine from the nearer of the two by {np.minimum(to_whole, to_steps)[torn].max():.1e}"
    print(line, flush=True)


def both_ways(model, ids):
    return logits_of(model, ids, []), logits_of(model, ids, range(PIECE, len(ids), PIECE))


def compare_folder(folder, sequences, binary):
    model = load(folder)
    for on, flags in FORMATS:
        runs = []
        for ids in sequences:
            with tempfile.TemporaryDirectory() as scratch, cache_formats(on):
                (pathlib.Path(scratch) / "ids.json").write_text(json.dumps(ids))
                engine = engine_logits(binary, folder, f"{scratch}/ids.json", f"{scratch}/score.safetensors", flags)
                both = both_ways(model, ids)
                with lower_of_equals():
                    runs.append((engine, *both, *both_ways(model, ids)))
        engine, whole, pieces, lower, lower_pieces = (np.concatenate(logits) for logits in zip(*runs))
        print(f"cache formats {'on' if on else 'off'}: {len(whole)} positions", flush=True)
        report_pair("the engine and the package", engine, whole)
        report_pair(f"the package in pieces of {PIECE} and whole", pieces, whole)
        report_pair("the engine and the package with the lower of equals", engine, lower)
        report_pair("the package with the lower of equals in pieces and whole", lower_pieces, lower)
        report_pair("the package with the lower of equals and as it is", lower, whole)
        losses = [sum(loss(run[i], ids) for run, ids in zip(runs, sequences)) for i in (0, 1, 3)]
        count = sum(len(ids) - 1 for ids in sequences)
        line = "  perplexity: engine {:.6f}, package {:.6f}, with the lower of equals {:.6f}"
        print(line.format(*(math.exp(value / count) for value in losses)), flush=True)


def report_pair(what, a, b):
    d = np.abs(a - b).max(-1)
    line = f"  {what}: logit difference median {np.median(d):.1e}, 99 % {np.quantile(d, 0.99):.1e}, largest {d.max():.1e}; "
    line += f"above {TORN:.0e} at {(d > TORN).sum()} positions; greedy tokens differ at {(a.argmax(-1) != b.argmax(-1)).sum()}"
    print(line, flush=True)


def loss(logits, ids):
    """Of all tokens behind the first, summed, in nats."""
    logits, top = logits[:-1], logits[:-1].max(-1)
    return (top + np.log(np.exp(logits - top[:, None]).sum(-1)) - logits[np.arange(len(logits)), ids[1:]]).sum()


def main(argv):
    if len(argv) < 2 or (argv[0] == "--folder" and len(argv) != 4):
        sys.exit(__doc__)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
    torch.set_num_threads(1)
    if argv[0] == "--folder":
        return compare_folder(pathlib.Path(argv[1]), json.loads(pathlib.Path(argv[2]).read_text()), argv[3])
    for name in argv[2:] or score_oracle.CONFIGS:
        compare(pathlib.Path(argv[0]), argv[1], name)


if __name__ == "__main__":
    main(sys.argv[1:])
