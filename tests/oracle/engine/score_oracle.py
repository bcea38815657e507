#!/usr/bin/env python3
"""Holds dsf-serve against the float64 reference on random configurations that no shared data covers.

    python3 score_oracle.py check TINY_V41                      the reference itself, against the shared data of two implementations
    python3 score_oracle.py make OUT [NAME ...]                 checkpoint, ids, logits and drafts per configuration, in OUT/NAME
    python3 score_oracle.py compare OUT DSF_SERVE [NAME ...]    dsf-serve score --logits on each, against the stored logits

Needs numpy. Run by hand; what was found is in tests/golden/engine/README.md, and the smallest configuration is stored there whole.
"""
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np

from reference_model import E2M1, E4M3, FakeQuant, Model, engram_layout, nearest_even, plain, read_safetensors

BASE = dict(
    model_type="deepseek_v41_text", vocab_size=96, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=6,
    num_attention_heads=4, head_dim=32, qk_rope_head_dim=8, q_lora_rank=32, o_lora_rank=16, o_groups=2, swiglu_limit=10.0,
    rms_norm_eps=1e-20, max_position_embeddings=4096, rope_theta=10000, compress_rope_theta=160000,
    rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=64),
    n_routed_experts=5, n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, routed_scaling_factor=1.5,
    sliding_window=6, compress_ratios=[0, 2, 2, 1, 1, 1, 0], kv_source_layer_ids=[1, 3], index_source_layer_ids=[1, 3, 5],
    index_n_heads=8, index_head_dim=32, index_topk=5, candidate_source_layer_id=3, candidate_topk_blocks=3, candidate_block_size=4,
    hc_mult=2, hc_sinkhorn_iters=20, hc_eps=1e-6, engram_layer_ids=[1], engram_max_ngram_size=3, engram_vocab_size=30,
    engram_n_heads=2, engram_head_dim=32, engram_pad_token_id=2, engram_compressed_vocab_size=70, num_nextn_predict_layers=1,
    dspark_target_layer_ids=[3, 5], dspark_block_size=3, dspark_noise_token_id=5, dspark_markov_rank=8, dspark_n_routed_experts=3,
    dspark_num_experts_per_tok=1)

CONFIGS = {
    # Small enough to be stored. The drafter takes one expert, the backbone two; two streams.
    "small": dict(tokens=40, storage="bf16", vocab_size=64, hidden_size=32, moe_intermediate_size=16, num_attention_heads=2, q_lora_rank=16,
                  o_lora_rank=8, n_routed_experts=3, dspark_n_routed_experts=2, engram_compressed_vocab_size=48),
    # Sources and Engram at other places, ratio 1 before ratio 2, an index source that shares its rows, no candidate blocks.
    "lists": dict(tokens=70, storage="bf16", num_hidden_layers=9, compress_ratios=[1, 1, 0, 2, 2, 2, 0, 1, 1, 0, 0],
                  kv_source_layer_ids=[0, 3, 7], index_source_layer_ids=[0, 1, 3, 5, 7], candidate_source_layer_id=-1,
                  engram_layer_ids=[0, 4, 6], num_nextn_predict_layers=2, dspark_target_layer_ids=[0, 4, 8], index_topk=9),
    # Nothing a power of two; clamps that act; a wide n-gram; three streams; an epsilon that shows; blocks of 3.
    "odd": dict(tokens=61, storage="bf16", hidden_size=72, moe_intermediate_size=40, num_attention_heads=6, head_dim=96,
                qk_rope_head_dim=24, q_lora_rank=40, o_lora_rank=24, o_groups=3, swiglu_limit=0.05, rms_norm_eps=1e-3,
                n_routed_experts=7, num_experts_per_tok=3, sliding_window=5, index_n_heads=9, index_head_dim=64, index_topk=7,
                candidate_block_size=3, candidate_topk_blocks=4, hc_mult=3, hc_sinkhorn_iters=5, hc_eps=1e-3, gate_temp=0.7,
                engram_max_ngram_size=5, engram_n_heads=3, dspark_n_routed_experts=6, dspark_num_experts_per_tok=4,
                num_nextn_predict_layers=3, compress_ratios=[0, 2, 2, 1, 1, 1, 0, 0, 0], dspark_block_size=5,
                engram_pad_token_id=7, rope_scaling=None),
    # The release's storage: E4M3 linears with 32x32 scales, FP4 experts.
    "native": dict(tokens=80, storage="native", hidden_size=96, moe_intermediate_size=64, q_lora_rank=64, o_lora_rank=32, head_dim=64,
                   qk_rope_head_dim=16, hc_mult=4, num_hidden_layers=7, compress_ratios=[0, 2, 2, 2, 1, 1, 1, 0],
                   kv_source_layer_ids=[1, 2, 4], index_source_layer_ids=[1, 2, 4, 6], candidate_source_layer_id=4,
                   dspark_target_layer_ids=[4, 6], index_topk=12, sliding_window=16),
}
# Stored as E4M3 in the release; the experts as FP4.
FP8 = ("wq_a", "wq_b", "attn.wkv", "wo_a", "wo_b", "engram.wkv", "main_proj", "shared_experts.w1", "shared_experts.w2", "shared_experts.w3")


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, raw array)."""
    header, data = {}, b""
    for name, (dtype, raw) in tensors.items():
        blob = np.ascontiguousarray(raw).tobytes()
        header[name] = {"dtype": dtype, "shape": list(raw.shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def bf16(x):
    u = np.asarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


class Maker:
    def __init__(self, config, storage, seed):
        self.c, self.storage, self.rng, self.out = config, storage, np.random.default_rng(seed), {}

    def f32(self, name, value):
        self.out[name] = ("F32", np.asarray(value, np.float32))

    def norm(self, name, *shape):
        self.out[name + ".weight"] = ("BF16", bf16(self.rng.uniform(0.5, 1.5, shape)))

    def linear(self, name, out, inputs, gain=1.0):
        w = self.rng.normal(0, gain / inputs**0.5, (out, inputs))
        if self.storage == "native" and ".experts." in name:
            b = w.reshape(out, -1, 32)
            e = np.ceil(np.log2(np.abs(b).max(-1) / 6))
            values = nearest_even(b / 2.0 ** e[..., None], E2M1[:8]).reshape(out, inputs)
            codes = (np.searchsorted(E2M1[:8], np.abs(values)) + 8 * (values < 0)).astype(np.uint8)
            self.out[name + ".weight"] = ("I8", codes[:, 0::2] | codes[:, 1::2] << 4)
            self.out[name + ".scale"] = ("F8_E8M0", (e + 127).astype(np.uint8))
        elif self.storage == "native" and name.endswith(FP8):
            pad = np.pad(w, ((0, -out % 32), (0, -inputs % 32)))
            blocks = np.abs(pad).reshape(pad.shape[0] // 32, 32, -1, 32).max((1, 3))
            e = np.ceil(np.log2(blocks / 448))
            s = np.repeat(np.repeat(2.0**e, 32, 0), 32, 1)[:out, :inputs]
            values = nearest_even(w / s, E4M3[:127])
            self.out[name + ".weight"] = ("F8_E4M3", (np.searchsorted(E4M3[:127], np.abs(values)) + 128 * (values < 0)).astype(np.uint8))
            self.out[name + ".scale"] = ("F8_E8M0", (e + 127).astype(np.uint8))
        else:
            self.out[name + ".weight"] = ("BF16", bf16(w))

    def block(self, p, n_experts):
        c, d, s = self.c, self.c["hidden_size"], self.c["hc_mult"]
        m, q, normal = (2 + s) * s, c["num_attention_heads"] * c["head_dim"], self.rng.normal
        for part in ("attn", "ffn"):
            self.f32(f"{p}hc_{part}_fn", normal(0, (s * d) ** -0.5, (m, s * d)))
            self.f32(f"{p}hc_{part}_base", normal(0, 0.5, m))
            self.f32(f"{p}hc_{part}_scale", self.rng.uniform(0.5, 1.5, 3))
            self.norm(f"{p}{part}_norm", d)
        self.linear(p + "attn.wq_a", c["q_lora_rank"], d)
        self.norm(p + "attn.q_norm", c["q_lora_rank"])
        self.linear(p + "attn.wq_b", q, c["q_lora_rank"])
        self.linear(p + "attn.wkv", c["head_dim"], d)
        self.norm(p + "attn.kv_norm", c["head_dim"])
        self.linear(p + "attn.wo_a", c["o_groups"] * c["o_lora_rank"], q // c["o_groups"])
        self.linear(p + "attn.wo_b", d, c["o_groups"] * c["o_lora_rank"], 1.5)
        self.f32(p + "attn.attn_sink", normal(0, 0.5, c["num_attention_heads"]))
        self.linear(p + "ffn.gate", n_experts, d, 1.5)
        self.f32(p + "ffn.gate.bias", normal(0, 0.2, n_experts))
        for e in [f"experts.{i}" for i in range(n_experts)] + ["shared_experts"]:
            self.linear(f"{p}ffn.{e}.w1", c["moe_intermediate_size"], d)
            self.linear(f"{p}ffn.{e}.w3", c["moe_intermediate_size"], d)
            self.linear(f"{p}ffn.{e}.w2", d, c["moe_intermediate_size"], 0.5)

    def sources(self, layer, p):
        c, d = self.c, self.c["hidden_size"]
        if layer in c["kv_source_layer_ids"]:
            self.linear(p + "compressor.wkv", c["head_dim"], d)
            if c["compress_ratios"][layer] > 1:
                self.linear(p + "compressor.wgate", c["head_dim"], d)
            self.norm(p + "compressor.norm", c["head_dim"])
            self.linear(p + "indexer.wk", c["index_head_dim"], c["head_dim"])
            self.norm(p + "indexer.k_norm", c["index_head_dim"])
        if layer in c["index_source_layer_ids"]:
            self.linear(p + "indexer.wq_b", c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"])
            self.linear(p + "indexer.weights_proj", c["index_n_heads"], d)

    def engram(self, layer, p):
        c, d, s, hd = self.c, self.c["hidden_size"], self.c["hc_mult"], self.c["engram_head_dim"]
        columns = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"]
        rows = c["engram_num_embeddings"][c["engram_layer_ids"].index(layer)]
        self.out[p + "embed.weight"] = ("F8_E4M3", self.rng.integers(0, 120, (rows, hd), np.uint8) + 128 * self.rng.integers(0, 2, (rows, hd), np.uint8))
        self.out[p + "embed.scale"] = ("F8_E8M0", self.rng.integers(118, 123, (rows, hd // 32), np.uint8))
        self.linear(p + "wkv", (s + 1) * d, columns * hd)
        for part in ("q_weight", "k_weight"):
            self.out[p + part] = ("BF16", bf16(self.rng.normal(0, 1.5, (s, d))))

    def model(self):
        c, d, v = self.c, self.c["hidden_size"], self.c["vocab_size"]
        self.out["embed.weight"] = ("BF16", bf16(self.rng.normal(0, 1, (v, d))))
        for layer in range(c["num_hidden_layers"]):
            p = f"layers.{layer}."
            self.block(p, c["n_routed_experts"])
            self.sources(layer, p + "attn.")
            if layer in c["engram_layer_ids"]:
                self.engram(layer, p + "engram.")
        self.norm("norm", d)
        self.linear("head", v, d, 2.0)
        last = c["num_nextn_predict_layers"] - 1
        for k in range(last + 1):
            self.block(f"mtp.{k}.", c["dspark_n_routed_experts"])
        self.linear("mtp.0.main_proj", d, len(c["dspark_target_layer_ids"]) * d)
        self.norm("mtp.0.main_norm", d)
        self.norm(f"mtp.{last}.norm", d)
        self.linear(f"mtp.{last}.markov_head.embed", v, c["dspark_markov_rank"])
        self.linear(f"mtp.{last}.markov_head.head", v, c["dspark_markov_rank"], 2.0)
        self.linear(f"mtp.{last}.confidence_head.proj", 1, d + c["dspark_markov_rank"])
        return self.out


def token_map(c, rng):
    """Onto compressed_vocab_size ids, numbered by first appearance."""
    keys = np.concatenate([np.arange(c["engram_compressed_vocab_size"]), rng.integers(0, c["engram_compressed_vocab_size"], c["vocab_size"] - c["engram_compressed_vocab_size"])])
    seen = {}
    return [seen.setdefault(int(k), len(seen)) for k in rng.permutation(keys)]


def quiet_prompt(model, n, rng, tries=40):
    """The prompt whose logits move least under noise at the cache formats: few values next to a rounding boundary."""
    best = None
    for _ in range(tries):
        ids = [int(i) for i in rng.integers(8, model.c["vocab_size"], n)]
        moved = np.abs(model.forward(ids, FakeQuant(True))[0] - model.forward(ids, FakeQuant(True, 1e-6))[0]).max()
        if best is None or moved < best[0]:
            best = (moved, ids)
        if moved < 1e-4:
            break
    return best


def make(out, name, seed=2026):
    spec = dict(CONFIGS[name])
    n, storage = spec.pop("tokens"), spec.pop("storage")
    c = {**BASE, **spec}
    if c["rope_scaling"] is None:
        del c["rope_scaling"]
    c["engram_num_embeddings"] = [sum(primes) for _, primes, _ in engram_layout(c)]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, len(name)])
    top = dict(architectures=["DeepseekV41ForCausalLM"], model_type="deepseek_v41", bos_token_id=0, eos_token_id=1, pad_token_id=2, text_config=c)
    (folder / "config.json").write_text(json.dumps(top, indent=1) + "\n")
    (folder / "engram_token_map.json").write_text(json.dumps(token_map(c, rng)) + "\n")
    write_safetensors(folder / "model.safetensors", Maker(c, storage, [seed, 1]).model())
    model = Model(folder)
    moved, ids = quiet_prompt(model, n, rng)
    (folder / "ids.json").write_text(json.dumps(ids) + "\n")
    golden = {"input_ids": ("I32", np.array(ids, np.int32))}
    for suffix, on in (("_nofq", False), ("", True)):
        logits, taps = model.forward(ids, FakeQuant(on))
        draft_ids, draft_logits, confidence = model.draft(taps, ids[0], FakeQuant(on))
        golden["logits" + suffix] = ("F32", logits.astype(np.float32))
        golden["draft_ids" + suffix] = ("I32", np.array(draft_ids, np.int32))
        golden["draft_logits" + suffix] = ("F32", draft_logits.astype(np.float32))
        golden["draft_confidence" + suffix] = ("F32", confidence.astype(np.float32))
    write_safetensors(out / f"{name}.golden.safetensors", golden)
    print(f"{name}: {n} tokens, logits within {np.abs(golden['logits'][1]).max():.1f}, noise at the cache formats moves them by {moved:.1e}", flush=True)


def compare(out, binary, name):
    folder = out / name
    golden = read_safetensors(out / f"{name}.golden.safetensors")
    for suffix, flags in (("_nofq", ["--no-cache-fake-quant"]), ("", [])):
        for chunk in (7, 512):
            result = out / f"{name}.score.safetensors"  # not among the shards
            subprocess.run([binary, "score", "--model", folder, "--token-ids", folder / "ids.json", "--logits", result, "--chunk", str(chunk), *flags],
                           check=True, stdout=subprocess.DEVNULL)
            error = np.abs(plain(*read_safetensors(result)["logits"]) - plain(*golden["logits" + suffix])).max()
            print(f"{name}: cache formats {'off' if suffix else 'on'}, chunk {chunk}: largest logit difference {error:.1e}", flush=True)


def check(folder):
    model, golden = Model(folder), read_safetensors(folder / "golden.safetensors")
    value = lambda name: plain(*golden[name])
    for suffix, on in (("_nofq", False), ("", True)):
        for i in range(3):
            ids, more = ([int(v) for v in value(f"prompt{i}.{part}")] for part in ("input_ids", "cont_ids"))
            logits, taps = model.forward(ids + more[:-1], FakeQuant(on))
            n = len(ids)
            prefill = np.abs(logits[:n] - value(f"prompt{i}.logits{suffix}")).max()
            decode = np.abs(logits[n - 1 :] - value(f"prompt{i}.cont_logits{suffix}")).max()
            draft = np.abs(model.draft(taps[: n + 1], more[1], FakeQuant(on))[1] - value(f"prompt{i}.draft_logits{suffix}")[0]).max()
            print(f"prompt{i}{suffix}: prefill {prefill:.1e}, decode {decode:.1e}, first draft {draft:.1e}", flush=True)


def main(argv):
    if len(argv) >= 2 and argv[0] == "check":
        return check(pathlib.Path(argv[1]))
    if len(argv) >= 2 and argv[0] == "make":
        return [make(pathlib.Path(argv[1]), name) for name in argv[2:] or CONFIGS]
    if len(argv) >= 3 and argv[0] == "compare":
        return [compare(pathlib.Path(argv[1]), argv[2], name) for name in argv[3:] or CONFIGS]
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
