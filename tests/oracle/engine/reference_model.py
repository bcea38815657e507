"""The text model of DeepSeek-V4.1-Flash in float64 numpy, written from the formulas alone.

Whole sequences at once and dense masks: no cache, no chunk, no ring, so that it shares no structure with the engine it judges. Row ids
come from numpy's own random generator. Held against tests' shared tiny_v41 data (two independent implementations) by score_oracle.py
before it is used on anything else.
"""
import json
import pathlib
import struct

import numpy as np

# ---- storage ------------------------------------------------------------------------------------------------------------------------

def _e4m3_values():
    codes = np.arange(256)
    sign, exponent, mantissa = np.where(codes & 128, -1.0, 1.0), (codes >> 3) & 15, codes & 7
    values = sign * np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    values[[127, 255]] = np.nan
    return values


E4M3 = _e4m3_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def read_safetensors(path):
    """name -> (dtype name, array of raw elements)."""
    data = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    kinds = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "I8": "u1", "U8": "u1",
             "F8_E4M3": "u1", "F8_E8M0": "u1"}
    out = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        raw = np.frombuffer(data[8 + n + begin : 8 + n + end], kinds[t["dtype"]]).reshape(t["shape"])
        out[name] = (t["dtype"], raw)
    return out


def plain(dtype, raw):
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "F8_E4M3":
        return E4M3[raw]
    if dtype == "F8_E8M0":
        return 2.0 ** (raw.astype(np.float64) - 127)
    return raw.astype(np.float64) if dtype.startswith("F") else raw.astype(np.int64)


class Checkpoint:
    def __init__(self, folder):
        self.raw = {}
        for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
            self.raw.update(read_safetensors(path))

    def vector(self, name):
        return plain(*self.raw[name])

    def linear(self, name):
        """[out, in]; E4M3 with 32x32 block scales, FP4 with a scale per row and 32 inputs, or plain."""
        dtype, raw = self.raw[name + ".weight"]
        if name + ".scale" not in self.raw:
            return plain(dtype, raw)
        scale = plain(*self.raw[name + ".scale"])
        if dtype == "I8":
            codes = np.stack([raw & 15, raw >> 4], -1).reshape(raw.shape[0], -1)
            return E2M1[codes] * np.repeat(scale, 32, 1)
        weight = plain(dtype, raw)
        return weight * np.repeat(np.repeat(scale, 32, 0), 32, 1)[: weight.shape[0], : weight.shape[1]]


# ---- small formulas -----------------------------------------------------------------------------------------------------------------

def sigmoid(z):
    return 0.5 * (1 + np.tanh(z / 2))


def rmsnorm(x, w, eps):
    return w * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def nearest_even(x, grid):
    """Magnitudes of x on an ascending grid of codes 0, 1, ..; ties to the even code."""
    a = np.minimum(np.abs(x), grid[-1])
    hi = np.clip(np.searchsorted(grid, a), 1, len(grid) - 1)
    low, high = grid[hi - 1], grid[hi]
    up = (a - low > high - a) | ((a - low == high - a) & (hi % 2 == 0))
    return np.sign(x) * np.where(up, high, low)


def ceil_pow2(x):
    return 2.0 ** np.ceil(np.log2(x))


class FakeQuant:
    """The cache formats; off gives the identity. noise moves inputs a little, to find prompts with values next to a boundary."""

    def __init__(self, on, noise=0.0):
        self.on, self.noise, self.rng = on, noise, np.random.default_rng(1)

    def __call__(self, x, kind):
        if not self.on:
            return x
        if self.noise:
            size = np.abs(x) + np.sqrt((x * x).mean(-1, keepdims=True))  # what an f32 sum's error is relative to
            x = x + self.noise * size * self.rng.standard_normal(x.shape)
        x = x.astype(np.float32).astype(np.float64)
        block = 16 if kind == "compressed" else 32
        b = x.reshape(*x.shape[:-1], -1, block)
        amax = np.abs(b).max(-1, keepdims=True)
        if kind == "window":
            s = ceil_pow2(np.maximum(amax, 1e-4) / 448)
            return (nearest_even(b / s, E4M3[:127]) * s).reshape(x.shape)
        if kind == "compressed":
            s = nearest_even(np.maximum(amax, 6 * 2.0**-9) / 6, E4M3[:127])
        else:
            s = ceil_pow2(np.maximum(amax, 6 * 2.0**-126) / 6)
        return (nearest_even(b / s, E2M1[:8]) * s).reshape(x.shape)


def frequencies(rd, theta, yarn):
    i = np.arange(rd // 2)
    f = theta ** (-2.0 * i / rd)
    if yarn:
        corner = lambda turns: rd * np.log(yarn["original_max_position_embeddings"] / (2 * np.pi * turns)) / (2 * np.log(theta))
        low, high = max(np.floor(corner(yarn["beta_fast"])), 0), min(np.ceil(corner(yarn["beta_slow"])), rd - 1)
        ramp = np.clip((i - low) / (high - low), 0, 1)
        f = f / yarn["factor"] * ramp + f * (1 - ramp)
    return f.astype(np.float32)


def rope(x, positions, freq, inverse=False):
    """x: [T, ..., n]; complex rotation of the last pairs."""
    angle = (np.asarray(positions, np.float32)[:, None] * freq[None]).astype(np.float64)
    turn = np.exp(-1j * angle if inverse else 1j * angle).reshape(len(angle), *[1] * (x.ndim - 2), -1)
    n = 2 * len(freq)
    tail = x[..., -n:]
    z = (tail[..., 0::2] + 1j * tail[..., 1::2]) * turn
    return np.concatenate([x[..., :-n], np.stack([z.real, z.imag], -1).reshape(tail.shape)], -1)


def best(score, k):
    """Indices of the k largest finite scores (plus infinity included), ties to the lower index, as a mask."""
    order = np.argsort(-score, kind="stable")[:k]
    mask = np.zeros(len(score), bool)
    mask[[i for i in order if score[i] > -np.inf]] = True
    return mask


# ---- Engram rows --------------------------------------------------------------------------------------------------------------------

def engram_layout(c):
    """Per layer: multipliers, primes, offsets."""
    is_prime = lambda n: n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
    seen, layers = set(), []
    for layer in c["engram_layer_ids"]:
        bound = max(1, (2**63 - 1) // c["engram_compressed_vocab_size"] // 2)
        draws = np.random.default_rng(10007 * layer).integers(0, bound, c["engram_max_ngram_size"], dtype=np.int64)
        primes = []
        for _ in range(2, c["engram_max_ngram_size"] + 1):
            current = c["engram_vocab_size"] - 1
            for _ in range(c["engram_n_heads"]):
                current += 1
                while current in seen or not is_prime(current):
                    current += 1
                seen.add(current)
                primes.append(current)
        layers.append(([int(2 * d + 1) for d in draws], primes, [sum(primes[:i]) for i in range(len(primes))]))
    return layers


def engram_rows(c, token_map, ids, layout):
    multipliers, primes, offsets = layout
    x, pad, heads = [token_map[i] for i in ids], token_map[c["engram_pad_token_id"]], c["engram_n_heads"]
    out = []
    for p in range(len(x)):
        r, row = 0, []
        for back in range(c["engram_max_ngram_size"]):
            r ^= (x[p - back] if p >= back else pad) * multipliers[back]
            if back:
                row += [r % primes[i] + offsets[i] for i in range((back - 1) * heads, back * heads)]
        out.append(row)
    return np.array(out)


# ---- the model ----------------------------------------------------------------------------------------------------------------------

class Model:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        whole = json.loads((folder / "config.json").read_text())
        self.c = whole.get("text_config", whole)
        self.w = Checkpoint(folder)
        self.token_map = json.loads((folder / "engram_token_map.json").read_text())
        c = self.c
        self.freq = {False: frequencies(c["qk_rope_head_dim"], c["rope_theta"], None),
                     True: frequencies(c["qk_rope_head_dim"], c["compress_rope_theta"], c.get("rope_scaling"))}

    def mix(self, x, prefix):
        c, s, eps = self.c, self.c["hc_mult"], self.c["hc_eps"]
        fn, base, scale = (self.w.vector(f"{prefix}_{part}") for part in ("fn", "base", "scale"))
        v = x.reshape(len(x), -1)
        m = (v @ fn.T) / np.sqrt((v * v).mean(-1, keepdims=True) + c["rms_norm_eps"])
        pre = sigmoid(m[:, :s] * scale[0] + base[:s]) + eps
        post = 2 * sigmoid(m[:, s : 2 * s] * scale[1] + base[s : 2 * s])
        comb = np.exp((m[:, 2 * s :] * scale[2] + base[2 * s :]).reshape(-1, s, s))
        comb = comb / comb.sum(2, keepdims=True) + eps
        comb = comb / (comb.sum(1, keepdims=True) + eps)
        for _ in range(c["hc_sinkhorn_iters"] - 1):
            comb = comb / (comb.sum(2, keepdims=True) + eps)
            comb = comb / (comb.sum(1, keepdims=True) + eps)
        return pre, post, comb

    def norm(self, x, name):
        return rmsnorm(x, self.w.vector(name + ".weight"), self.c["rms_norm_eps"])

    def block(self, prefix, x, pre, n_chosen, attention):
        collapse = lambda weights: np.einsum("ts,tsd->td", weights, x)
        expand = lambda y, post, comb: post[:, :, None] * y[:, None, :] + np.einsum("tjk,tjd->tkd", comb, x)
        a_pre, post, comb = self.mix(x, prefix + "hc_attn")
        x = expand(attention(self.norm(collapse(pre), prefix + "attn_norm")), post, comb)
        f_pre, post, comb = self.mix(x, prefix + "hc_ffn")
        return expand(self.moe(prefix + "ffn.", self.norm(collapse(a_pre), prefix + "ffn_norm"), n_chosen), post, comb), f_pre

    def expert(self, prefix, x, weight):
        limit = self.c["swiglu_limit"]
        g = np.minimum(x @ self.w.linear(prefix + "w1").T, limit)
        u = np.clip(x @ self.w.linear(prefix + "w3").T, -limit, limit)
        return (weight * g * sigmoid(g) * u) @ self.w.linear(prefix + "w2").T

    def moe(self, prefix, x, n_chosen):
        z = x @ self.w.linear(prefix + "gate").T / self.c.get("gate_temp", 1.0)
        s = np.sqrt(np.where(z > 20, z, np.log1p(np.exp(np.minimum(z, 20)))))
        chosen = np.stack([best(row, n_chosen) for row in s + self.w.vector(prefix + "gate.bias")])
        weight = np.where(chosen, s, 0)
        weight = weight / (weight.sum(1, keepdims=True) + 1e-20) * self.c["routed_scaling_factor"]
        y = self.expert(prefix + "shared_experts.", x, 1.0)
        for e in range(s.shape[1]):
            rows = chosen[:, e]
            y[rows] += self.expert(f"{prefix}experts.{e}.", x[rows], weight[rows, e : e + 1])
        return y

    def query(self, p, x, positions, freq):
        c = self.c
        lora = self.norm(x @ self.w.linear(p + "wq_a").T, p + "q_norm")
        q = (lora @ self.w.linear(p + "wq_b").T).reshape(len(x), c["num_attention_heads"], c["head_dim"])
        return lora, rope(q, positions, freq)

    def window_rows(self, p, x, positions, freq, fq):
        return fq(rope(self.norm(x @ self.w.linear(p + "wkv").T, p + "kv_norm"), positions, freq), "window")

    def softmax_over(self, p, q, rows, mask, positions, freq):
        """rows: [n, hd] for every query, or [T, n, hd]; mask: [T, n]."""
        c = self.c
        s = np.einsum("thd,nd->thn", q, rows) * c["head_dim"] ** -0.5
        s = np.where(mask[:, None, :], s, -np.inf)
        sink = self.w.vector(p + "attn_sink")[None, :, None]
        top = np.maximum(s.max(-1, keepdims=True), sink)
        e = np.exp(s - top)
        o = np.einsum("thn,nd->thd", e / (e.sum(-1, keepdims=True) + np.exp(sink - top)), rows)
        o = rope(o, positions, freq, inverse=True).reshape(len(q), c["o_groups"], -1)
        wo_a = self.w.linear(p + "wo_a").reshape(c["o_groups"], c["o_lora_rank"], -1)
        return np.einsum("tgi,goi->tgo", o, wo_a).reshape(len(q), -1) @ self.w.linear(p + "wo_b").T

    def attention(self, layer, x, shared, fq):
        c, p, n = self.c, f"layers.{layer}.attn.", len(x)
        ratio, t = c["compress_ratios"][layer], np.arange(len(x))
        freq = self.freq[ratio > 0]
        lora, q = self.query(p, x, t, freq)
        rows = self.window_rows(p, x, t, freq, fq)
        mask = (t[None] <= t[:, None]) & (t[None] > t[:, None] - c["sliding_window"])
        if ratio:
            if layer in c["kv_source_layer_ids"]:
                shared["rows"], shared["keys"] = self.compress(p, x, ratio, freq, fq)
            if layer in c["index_source_layer_ids"]:
                shared["chosen"] = self.choose(layer, p, x, lora, ratio, freq, shared, fq)
            rows = np.concatenate([rows, shared["rows"]])
            mask = np.concatenate([mask, shared["chosen"]], 1)
        return self.softmax_over(p, q, rows, mask, t, freq)

    def compress(self, p, x, ratio, freq, fq):
        groups = len(x) // ratio
        at = lambda name: (x[: groups * ratio] @ self.w.linear(p + name).T).reshape(groups, ratio, -1)
        value = at("compressor.wkv")
        if ratio > 1:
            gate = at("compressor.wgate")
            e = np.exp(gate - gate.max(1, keepdims=True))
            value = value * (e / e.sum(1, keepdims=True))
        latent = self.norm(value.sum(1), p + "compressor.norm")
        positions = np.arange(groups) * ratio
        keys = fq(rope(self.norm(latent @ self.w.linear(p + "indexer.wk").T, p + "indexer.k_norm"), positions, freq), "index")
        return fq(rope(latent, positions, freq), "compressed"), keys

    def choose(self, layer, p, x, lora, ratio, freq, shared, fq):
        c, n = self.c, len(x)
        heads, dim = c["index_n_heads"], c["index_head_dim"]
        q = fq(rope((lora @ self.w.linear(p + "indexer.wq_b").T).reshape(n, heads, dim), np.arange(n), freq), "index")
        weight = x @ self.w.linear(p + "indexer.weights_proj").T * (dim * heads) ** -0.5
        score = np.einsum("th,thg->tg", weight, np.maximum(np.einsum("thd,gd->thg", q, shared["keys"]), 0))
        visible = (np.arange(n) + 1) // ratio
        score = np.where(np.arange(score.shape[1])[None] < visible[:, None], score, -np.inf)
        source = c.get("candidate_source_layer_id", -1)
        if layer == source:
            shared["kept"] = np.stack([self.candidates(row, v) for row, v in zip(score, visible)])
        elif 0 <= source < layer:
            score = np.where(shared["kept"], score, -np.inf)
        return np.stack([best(row, c["index_topk"]) for row in score]) if score.shape[1] else np.zeros(score.shape, bool)

    def candidates(self, score, visible):
        size, count = self.c["candidate_block_size"], len(score)
        padded = np.concatenate([score, np.full(-count % size, -np.inf)]).reshape(-1, size).max(1)
        if visible > 0:
            padded[(visible - 1) // size] = np.inf
        return np.repeat(best(padded, self.c["candidate_topk_blocks"]), size)[:count]

    def engram(self, layer, x, ids):
        c, p, s, d = self.c, f"layers.{layer}.engram.", self.c["hc_mult"], self.c["hidden_size"]
        rows = engram_rows(c, self.token_map, ids, engram_layout(c)[c["engram_layer_ids"].index(layer)])
        values = plain(*self.w.raw[p + "embed.weight"])[rows] * np.repeat(plain(*self.w.raw[p + "embed.scale"])[rows], 32, -1)
        kv = values.reshape(len(ids), -1) @ self.w.linear(p + "wkv").T
        key, value = kv[:, : s * d].reshape(-1, s, d), kv[:, s * d :]
        unit = lambda v: v / np.sqrt((v * v).mean(-1, keepdims=True) + c["rms_norm_eps"])
        qk = self.w.vector(p + "q_weight") * self.w.vector(p + "k_weight")
        dot = (unit(x) * qk * unit(key)).sum(-1) * d**-0.5
        gate = sigmoid(np.where(dot < 0, -1, 1) * np.sqrt(np.maximum(np.abs(dot), 1e-6)))
        return x + gate[:, :, None] * value[:, None, :]

    def start(self, ids):
        s = self.c["hc_mult"]
        x = np.repeat(self.w.linear("embed")[np.asarray(ids)][:, None, :], s, 1)
        pre = np.zeros((len(ids), s))
        pre[:, 0] = 1
        return x, pre

    def forward(self, ids, fq):
        """Logits of every position [T, V], and the drafter's taps [T, n_targets * D]."""
        c = self.c
        (x, pre), shared, taps = self.start(ids), {}, []
        for layer in range(c["num_hidden_layers"]):
            if layer in c["engram_layer_ids"]:
                x = self.engram(layer, x, ids)
            if layer in c.get("dspark_target_layer_ids", []):
                taps.append(x.mean(1))
            attention = lambda h: self.attention(layer, h, shared, fq)
            x, pre = self.block(f"layers.{layer}.", x, pre, c["num_experts_per_tok"], attention)
        h = self.norm(np.einsum("ts,tsd->td", pre, x), "norm")
        return h @ self.w.linear("head").T, np.concatenate(taps, 1) if taps else None

    def draft(self, taps, pending, fq):
        """One draft pass behind the positions of taps: ids, logits [block, V], confidence [block]."""
        c, n = self.c, self.c["dspark_block_size"]
        first, last = "mtp.0.", f"mtp.{c['num_nextn_predict_layers'] - 1}."
        past = np.arange(max(0, len(taps) - c["sliding_window"]), len(taps))
        main = self.norm(taps[past] @ self.w.linear(first + "main_proj").T, first + "main_norm")
        positions, freq = len(taps) + np.arange(n), self.freq[False]
        x, pre = self.start([pending] + [c["dspark_noise_token_id"]] * (n - 1))
        for k in range(c["num_nextn_predict_layers"]):
            p = f"mtp.{k}.attn."

            def attention(h):
                rows = np.concatenate([self.window_rows(p, main, past, freq, fq), self.window_rows(p, h, positions, freq, fq)])
                return self.softmax_over(p, self.query(p, h, positions, freq)[1], rows, np.ones((n, len(rows)), bool), positions, freq)

            x, pre = self.block(f"mtp.{k}.", x, pre, c["dspark_num_experts_per_tok"], attention)
        h = np.einsum("ts,tsd->td", pre, x)
        logits = self.norm(h, last + "norm") @ self.w.linear("head").T
        embed, head = self.w.linear(last + "markov_head.embed"), self.w.linear(last + "markov_head.head")
        confidence, ids, token = [], [], pending
        for i in range(n):
            logits[i] += head @ embed[token]
            confidence.append(np.concatenate([h[i], embed[token]]) @ self.w.vector(last + "confidence_head.proj.weight").ravel())
            token = int(np.argmax(logits[i]))
            ids.append(token)
        return ids, logits, np.array(confidence)
