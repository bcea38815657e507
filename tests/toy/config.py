"""The toy model's configuration, and what every tensor of the release layout is (names, shapes, storage). No torch here."""

import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent / "oracle/engine"))
from reference_model import engram_layout  # noqa: E402

VOCAB = 1024
SPECIALS = 29  # control tokens at the end of the vocabulary; the first of them is <｜System｜>

TEXT = dict(
    model_type="deepseek_v41_text",
    vocab_size=VOCAB,
    hidden_size=128,
    moe_intermediate_size=256,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=128,
    qk_rope_head_dim=32,
    q_lora_rank=128,
    o_lora_rank=128,
    o_groups=2,
    hidden_act="silu",
    swiglu_limit=10.0,
    rms_norm_eps=1e-20,
    attention_bias=False,
    attention_dropout=0.0,
    initializer_range=0.02,
    use_cache=True,
    tie_word_embeddings=False,
    max_position_embeddings=4096,
    rope_theta=10000,
    rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=1024),
    compress_rope_theta=160000,
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    scoring_func="sqrtsoftplus",
    topk_method="noaux_tc",
    norm_topk_prob=True,
    routed_scaling_factor=1.5,
    # 0 window; 1 full at ratio 2 with Engram; 2 reuse; 3 full at ratio 1, candidate source, Engram; 4 reindex; 5 reuse
    sliding_window=64,
    compress_ratios=[0, 2, 2, 1, 1, 1, 0],
    kv_source_layer_ids=[1, 3],
    index_source_layer_ids=[1, 3, 4],
    index_n_heads=4,
    index_head_dim=128,
    index_topk=48,
    candidate_source_layer_id=3,
    candidate_topk_blocks=12,
    candidate_block_size=8,
    hc_mult=4,
    hc_sinkhorn_iters=20,
    hc_eps=1e-6,
    engram_layer_ids=[1, 3],
    engram_max_ngram_size=3,
    engram_vocab_size=1024,
    engram_n_heads=2,
    engram_head_dim=32,
    engram_pad_token_id=2,
    num_nextn_predict_layers=1,
    dspark_block_size=5,
    dspark_noise_token_id=VOCAB - SPECIALS,
    dspark_target_layer_ids=[3, 4, 5],
    dspark_markov_rank=32,
    dspark_n_routed_experts=2,
    dspark_num_experts_per_tok=1,
)


def complete(token_map):
    """TEXT with what follows from the tokenizer's map onto compressed ids."""
    c = dict(TEXT, engram_compressed_vocab_size=max(token_map) + 1)
    c["engram_num_embeddings"] = [sum(primes) for _, primes, _ in engram_layout(c)]
    return c


def tensors(c):
    """name -> (kind, logical shape). Kinds: fp8 and fp4 (a .scale beside the weight), table, bf16, f32; as in the release."""
    d, s, v, hd = c["hidden_size"], c["hc_mult"], c["vocab_size"], c["head_dim"]
    out = {"embed.weight": ("bf16", (v, d)), "head.weight": ("bf16", (v, d)), "norm.weight": ("bf16", (d,))}
    blocks = [(f"layers.{i}.", c["n_routed_experts"]) for i in range(c["num_hidden_layers"])]
    blocks += [(f"mtp.{i}.", c["dspark_n_routed_experts"]) for i in range(c["num_nextn_predict_layers"])]
    q, m = c["num_attention_heads"] * hd, (2 + s) * s
    for p, experts in blocks:
        for part in ("attn", "ffn"):
            out |= {
                f"{p}{part}_norm.weight": ("bf16", (d,)),
                f"{p}hc_{part}_fn": ("f32", (m, s * d)),
                f"{p}hc_{part}_base": ("f32", (m,)),
                f"{p}hc_{part}_scale": ("f32", (3,)),
            }
        a = p + "attn."
        out |= {
            a + "wq_a.weight": ("fp8", (c["q_lora_rank"], d)),
            a + "q_norm.weight": ("bf16", (c["q_lora_rank"],)),
            a + "wq_b.weight": ("fp8", (q, c["q_lora_rank"])),
            a + "wkv.weight": ("fp8", (hd, d)),
            a + "kv_norm.weight": ("bf16", (hd,)),
            a + "wo_a.weight": ("fp8", (c["o_groups"] * c["o_lora_rank"], q // c["o_groups"])),
            a + "wo_b.weight": ("fp8", (d, c["o_groups"] * c["o_lora_rank"])),
            a + "attn_sink": ("f32", (c["num_attention_heads"],)),
        }
        f = p + "ffn."
        out |= {f + "gate.weight": ("bf16", (experts, d)), f + "gate.bias": ("f32", (experts,)), f + "gate.bias_vl": ("f32", (experts,))}
        for e, kind in [(f"experts.{i}.", "fp4") for i in range(experts)] + [("shared_experts.", "fp8")]:
            for w, shape in (
                ("w1", (c["moe_intermediate_size"], d)),
                ("w3", (c["moe_intermediate_size"], d)),
                ("w2", (d, c["moe_intermediate_size"])),
            ):
                out[f"{f}{e}{w}.weight"] = (kind, shape)
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}.attn."
        if i in c["kv_source_layer_ids"]:
            out |= {
                p + "compressor.wkv.weight": ("bf16", (hd, d)),
                p + "compressor.norm.weight": ("bf16", (hd,)),
                p + "indexer.wk.weight": ("bf16", (c["index_head_dim"], hd)),
                p + "indexer.k_norm.weight": ("bf16", (c["index_head_dim"],)),
            }
            if c["compress_ratios"][i] > 1:
                out[p + "compressor.wgate.weight"] = ("bf16", (hd, d))
        if i in c["index_source_layer_ids"]:
            out |= {
                p + "indexer.wq_b.weight": ("fp8", (c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"])),
                p + "indexer.weights_proj.weight": ("bf16", (c["index_n_heads"], d)),
            }
    columns = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"]
    for i, rows in zip(c["engram_layer_ids"], c["engram_num_embeddings"]):
        p = f"layers.{i}.engram."
        out |= {
            p + "embed.weight": ("table", (rows, c["engram_head_dim"])),
            p + "wkv.weight": ("fp8", ((s + 1) * d, columns * c["engram_head_dim"])),
            p + "q_weight": ("bf16", (s, d)),
            p + "k_weight": ("bf16", (s, d)),
        }
    last, r = f"mtp.{c['num_nextn_predict_layers'] - 1}.", c["dspark_markov_rank"]
    out |= {
        "mtp.0.main_proj.weight": ("fp8", (d, len(c["dspark_target_layer_ids"]) * d)),
        "mtp.0.main_norm.weight": ("bf16", (d,)),
        last + "norm.weight": ("bf16", (d,)),
        last + "markov_head.embed.weight": ("bf16", (v, r)),
        last + "markov_head.head.weight": ("bf16", (v, r)),
        last + "confidence_head.proj.weight": ("bf16", (1, d + r)),
    }
    return out


def stored_bytes(kind, shape):
    n = int(np.prod(shape))
    return {"fp8": n + n // 1024, "fp4": n // 2 + n // 32, "table": n + n // 32, "bf16": 2 * n, "f32": 4 * n}[kind]
