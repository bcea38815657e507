"""The text model and its draft blocks in torch, trainable: whole sequences and dense masks, as tests/oracle/engine/reference_model.py has
them in float64, with gradients straight through the cache formats. Tensors go by their release names.
"""

import math

import torch
import torch.nn.functional as F

import config
from formats import cache, stored


def frequencies(rd, theta, yarn):
    i = torch.arange(rd // 2, dtype=torch.float64)
    f = theta ** (-2.0 * i / rd)
    if yarn:
        longest = yarn["original_max_position_embeddings"]
        corner = lambda turns: rd * math.log(longest / (2 * math.pi * turns)) / (2 * math.log(theta))  # noqa: E731
        low, high = max(math.floor(corner(yarn["beta_fast"])), 0), min(math.ceil(corner(yarn["beta_slow"])), rd - 1)
        ramp = ((i - low) / (high - low)).clamp(0, 1)
        f = f / yarn["factor"] * ramp + f * (1 - ramp)
    return f.float()


def rope(x, turn, inverse=False):
    """x [.., n]; turn = (cos, sin), broadcastable to its last pairs."""
    cos, sin = turn
    n = 2 * cos.shape[-1]
    head, tail = x[..., :-n], x[..., -n:]
    a, b = tail[..., 0::2], tail[..., 1::2]
    sin = -sin if inverse else sin
    return torch.cat([head, torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)], -1)


def times(x, matrix):
    """x [B, .., n] by one matrix [B, n, m] for each B."""
    return (x.flatten(1, -2) @ matrix).unflatten(1, x.shape[1:-1])


def best(score, k, stable):
    """Mask of the k largest finite scores; stable: ties to the lower index, as engines choose."""
    k = min(k, score.shape[-1])
    index = torch.sort(score, dim=-1, descending=True, stable=True).indices[..., :k] if stable else score.topk(k, dim=-1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter(-1, index, True) & (score > -math.inf)


class Lookup(torch.autograd.Function):
    """Rows of a table; the gradient is added row by row, which a CUDA graph can hold."""

    @staticmethod
    def forward(ctx, ids, table):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids.flatten()).view(*ids.shape, -1)

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        return None, grad.new_zeros(ctx.shape).index_add_(0, ids.flatten(), grad.reshape(-1, grad.shape[-1]))


class Shared:
    """What one layer leaves for later ones, and what the losses need."""

    rows = keys = chosen = kept = score = None
    index_loss = 0.0


class Toy(torch.nn.Module):
    def __init__(self, c, token_map, seed=1):
        super().__init__()
        self.c, self.specs = c, config.tensors(c)
        generator = torch.Generator().manual_seed(seed)
        self.p = torch.nn.ParameterDict(
            {key(n): torch.nn.Parameter(initial(n, shape, c, generator)) for n, (_, shape) in self.specs.items()}
        )
        self.register_buffer("freq_plain", frequencies(c["qk_rope_head_dim"], c["rope_theta"], None), False)
        self.register_buffer("freq_compress", frequencies(c["qk_rope_head_dim"], c["compress_rope_theta"], c["rope_scaling"]), False)
        self.register_buffer("dense", torch.tensor(False), False)  # all visible compressed rows instead of the indexer's choice
        self.register_buffer("round_weights", torch.tensor(1.0), False)  # 1: weights as exported; 0: unrounded
        self.register_buffer("load", torch.zeros(c["num_hidden_layers"], c["n_routed_experts"]), False)
        self.register_buffer("draft_load", torch.zeros(c["num_nextn_predict_layers"], c["dspark_n_routed_experts"]), False)
        self.register_buffer("compressed", torch.tensor(token_map), False)
        self.layout, self.pad = config.engram_layout(c), token_map[c["engram_pad_token_id"]]
        self.stable, self.w = True, {}
        for n in self.specs:
            if n.endswith(("gate.bias", "gate.bias_vl")):
                self.p[key(n)].requires_grad_(False)

    # -- parameters --

    def use_weights(self, drafts=True):
        """Sets self.w: every tensor as an engine will read it, gradients straight through."""
        self.w, groups = {}, {}
        for name, (kind, shape) in self.specs.items():
            if drafts or not name.startswith("mtp."):
                self.w[name] = self.p[key(name)]
                if kind != "f32":
                    groups.setdefault((kind, shape[-1]), []).append(name)
        for (kind, width), names in groups.items():  # one rounding for all matrices of a kind and width, below each other
            parts = [self.w[n] for n in names]
            with torch.no_grad():
                flat = torch.cat([w.view(-1, width) for w in parts])
                moves = (self.round_weights * (stored(flat, kind) - flat)).split([w.numel() // width for w in parts])
            for n, w, move in zip(names, parts, moves):
                self.w[n] = w + move.view(w.shape)

    def table_rows(self, ids):
        """Engram rows of every token [layers, B, T, columns] (engram.md 3)."""
        c, x, out = self.c, self.compressed[ids], []
        for multipliers, primes, offsets in self.layout:
            r, columns = torch.zeros_like(x), []
            for back in range(c["engram_max_ngram_size"]):
                shifted = F.pad(x, (back, 0), value=self.pad)[:, : x.shape[1]]
                r = r ^ (shifted * multipliers[back])
                if back:
                    heads = range((back - 1) * c["engram_n_heads"], back * c["engram_n_heads"])
                    columns += [r % primes[i] + offsets[i] for i in heads]
            out.append(torch.stack(columns, -1))
        return torch.stack(out)

    def lin(self, name, x):
        return x @ self.w[name + ".weight"].T

    def norm(self, x, name):
        return self.w[name + ".weight"] * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.c["rms_norm_eps"])

    # -- hyper-connections --

    def mix(self, x, prefix):
        c, s, eps = self.c, self.c["hc_mult"], self.c["hc_eps"]
        base, scale = self.w[prefix + "_base"], self.w[prefix + "_scale"]
        v = x.flatten(-2)
        m = (v @ self.w[prefix + "_fn"].T) * torch.rsqrt(v.square().mean(-1, keepdim=True) + c["rms_norm_eps"])
        pre = torch.sigmoid(m[..., :s] * scale[0] + base[:s]) + eps
        post = 2 * torch.sigmoid(m[..., s : 2 * s] * scale[1] + base[s : 2 * s])
        comb = torch.softmax((m[..., 2 * s :] * scale[2] + base[2 * s :]).unflatten(-1, (s, s)), -1) + eps
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
        for _ in range(c["hc_sinkhorn_iters"] - 1):
            comb = comb / (comb.sum(-1, keepdim=True) + eps)
            comb = comb / (comb.sum(-2, keepdim=True) + eps)
        return pre, post, comb

    def block(self, prefix, x, pre, n_chosen, attention, load):
        """x [.., S, D]; attention maps the normed [.., D]."""
        collapse = lambda weights: (weights.unsqueeze(-2) @ x).squeeze(-2)  # noqa: E731
        expand = lambda y, post, comb: post.unsqueeze(-1) * y.unsqueeze(-2) + comb.transpose(-1, -2) @ x  # noqa: E731
        a_pre, post, comb = self.mix(x, prefix + "hc_attn")
        x = expand(attention(self.norm(collapse(pre), prefix + "attn_norm")), post, comb)
        f_pre, post, comb = self.mix(x, prefix + "hc_ffn")
        y = self.moe(prefix + "ffn.", self.norm(collapse(a_pre), prefix + "ffn_norm"), n_chosen, load)
        return expand(y, post, comb), f_pre

    # -- experts --

    def moe(self, p, x, n_chosen, load):
        """All experts on all rows, weighted: zero for those not chosen. The shared expert is the last one, of weight 1."""
        limit, n = self.c["swiglu_limit"], self.w[p + "gate.bias"].shape[0]
        s = torch.sqrt(F.softplus(self.lin(p + "gate", x)))
        chosen = best(s.detach() + self.w[p + "gate.bias"], n_chosen, self.stable)
        load.copy_(chosen.flatten(0, -2).float().mean(0))
        weight = s * chosen
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * self.c["routed_scaling_factor"]
        weight = torch.cat([weight, torch.ones_like(weight[..., :1])], -1)
        names = [f"{p}experts.{e}." for e in range(n)] + [p + "shared_experts."]
        g, u = (x @ torch.cat([self.w[f"{e}{w}.weight"] for e in names]).T for w in ("w1", "w3"))
        a = F.silu(g.clamp(max=limit)) * u.clamp(-limit, limit)
        a = (a.unflatten(-1, (n + 1, -1)) * weight.unsqueeze(-1)).flatten(-2)
        return a @ torch.cat([self.w[e + "w2.weight"] for e in names], 1).T

    # -- attention --

    def turns(self, positions, compressed):
        angle = positions[..., None].float() * (self.freq_compress if compressed else self.freq_plain)
        return torch.cos(angle), torch.sin(angle)

    def query(self, p, x, turn):
        lora = self.norm(self.lin(p + "wq_a", x), p + "q_norm")
        q = self.lin(p + "wq_b", lora).unflatten(-1, (self.c["num_attention_heads"], -1))
        return lora, rope(q, (turn[0].unsqueeze(-2), turn[1].unsqueeze(-2)))

    def window_rows(self, p, x, turn):
        return cache(rope(self.norm(self.lin(p + "wkv", x), p + "kv_norm"), turn), "window")

    def output(self, p, o, turn):
        c = self.c
        o = rope(o, (turn[0].unsqueeze(-2), turn[1].unsqueeze(-2)), inverse=True).flatten(-2).unflatten(-1, (c["o_groups"], -1))
        z = torch.einsum("...gi,goi->...go", o, self.w[p + "wo_a.weight"].view(c["o_groups"], c["o_lora_rank"], -1))
        return self.lin(p + "wo_b", z.flatten(-2))

    def probabilities(self, p, score, mask):
        """softmax over the last dim with the head's sink [.., H, T, n], T the query."""
        score = (score * self.c["head_dim"] ** -0.5).masked_fill(~mask, -math.inf)
        sink = self.w[p + "attn_sink"][:, None, None].expand(*score.shape[:-1], 1)
        return torch.softmax(torch.cat([score, sink], -1), -1)[..., :-1]

    def attention(self, layer, x, shared):
        c, p, n = self.c, f"layers.{layer}.attn.", x.shape[1]
        ratio, t = c["compress_ratios"][layer], torch.arange(n, device=x.device)
        turn = self.turns(t, ratio > 0)
        lora, q = self.query(p, x, turn)
        rows = self.window_rows(p, x, turn)
        mask = (t[None] <= t[:, None]) & (t[None] > t[:, None] - c["sliding_window"])
        if not ratio:
            o = times(self.probabilities(p, times(q.transpose(1, 2), rows.transpose(1, 2)), mask), rows)
            return self.output(p, o.transpose(1, 2), turn)
        if layer in c["kv_source_layer_ids"]:
            shared.rows, shared.keys = self.compress(p, x, ratio)
        if layer in c["index_source_layer_ids"]:
            shared.chosen = self.choose(layer, p, x, lora, ratio, shared, turn)
        every = torch.cat([rows, shared.rows], 1)
        mask = torch.cat([mask.expand(len(x), -1, -1), shared.chosen], 2).unsqueeze(1)
        prob = self.probabilities(p, times(q.transpose(1, 2), every.transpose(1, 2)), mask)
        self.teach_indexer(prob[..., n:], shared)
        return self.output(p, times(prob, every).transpose(1, 2), turn)

    def compress(self, p, x, ratio):
        groups = x.shape[1] // ratio
        value = self.lin(p + "compressor.wkv", x[:, : groups * ratio]).unflatten(1, (groups, ratio))
        if ratio > 1:
            value = value * torch.softmax(self.lin(p + "compressor.wgate", x[:, : groups * ratio]).unflatten(1, (groups, ratio)), 2)
        latent = self.norm(value.sum(2), p + "compressor.norm")
        turn = self.turns(torch.arange(groups, device=x.device) * ratio, True)
        keys = cache(rope(self.norm(self.lin(p + "indexer.wk", latent.detach()), p + "indexer.k_norm"), turn), "index")
        return cache(rope(latent, turn), "compressed"), keys

    def choose(self, layer, p, x, lora, ratio, shared, turn):
        """Mask [B, T, rows] of the rows each query attends to. The indexer learns from teach_indexer alone."""
        c, n = self.c, x.shape[1]
        heads, dim = c["index_n_heads"], c["index_head_dim"]
        q = self.lin(p + "indexer.wq_b", lora.detach()).unflatten(-1, (heads, dim))
        q = cache(rope(q, (turn[0].unsqueeze(-2), turn[1].unsqueeze(-2))), "index")
        weight = self.lin(p + "indexer.weights_proj", x.detach()) * (dim * heads) ** -0.5
        dot = torch.relu(times(q.transpose(1, 2), shared.keys.transpose(1, 2)))  # [B, H, T, rows]
        score = (weight.transpose(1, 2).unsqueeze(-1) * dot).sum(1)
        visible = (torch.arange(n, device=x.device) + 1) // ratio
        seen = torch.arange(score.shape[2], device=x.device)[None] < visible[:, None]
        score = score.masked_fill(~seen, -math.inf)
        fixed, source = score.detach(), c["candidate_source_layer_id"]
        if layer == source:
            shared.kept = self.candidates(fixed, visible)
        elif 0 <= source < layer:
            fixed = fixed.masked_fill(~shared.kept, -math.inf)
        chosen = best(fixed, c["index_topk"], self.stable) | (seen & self.dense)
        shared.score = score.masked_fill(~chosen, -1e9).log_softmax(-1)
        return chosen

    def candidates(self, score, visible):
        size, count = self.c["candidate_block_size"], score.shape[2]
        padded = F.pad(score, (0, -count % size), value=-math.inf).unflatten(2, (-1, size)).amax(-1)
        newest = ((visible - 1) // size)[:, None] == torch.arange(padded.shape[2], device=score.device)[None]
        padded = padded.masked_fill(newest & (visible > 0)[:, None], math.inf)
        return best(padded, self.c["candidate_topk_blocks"], self.stable).repeat_interleave(size, 2)[..., :count]

    def teach_indexer(self, prob, shared):
        """Cross-entropy of index scores against where attention goes among the chosen rows."""
        if not self.training:
            return
        mass = prob.detach().mean(1)
        shared.index_loss = shared.index_loss - (mass * shared.score).sum(-1).mean()

    # -- Engram --

    def engram(self, layer, x, rows):
        c, p, s, d = self.c, f"layers.{layer}.engram.", self.c["hc_mult"], self.c["hidden_size"]
        kv = self.lin(p + "wkv", Lookup.apply(rows, self.w[p + "embed.weight"]).flatten(-2))
        keys, value = kv[..., : s * d].unflatten(-1, (s, d)), kv[..., s * d :]
        unit = lambda v: v * torch.rsqrt(v.square().mean(-1, keepdim=True) + c["rms_norm_eps"])  # noqa: E731
        dot = (unit(x) * (self.w[p + "q_weight"] * self.w[p + "k_weight"]) * unit(keys)).sum(-1) * d**-0.5
        gate = torch.sigmoid(((dot >= 0).float() * 2 - 1) * torch.sqrt(dot.abs().clamp(min=1e-6)))
        return x + gate.unsqueeze(-1) * value.unsqueeze(-2)

    # -- whole passes --

    def forward(self, ids):
        """ids [B, T] -> logits [B, T, V], taps [B, T, targets * D], index loss."""
        c, shared, taps, rows = self.c, Shared(), [], self.table_rows(ids)
        x = Lookup.apply(ids, self.w["embed.weight"]).unsqueeze(-2).expand(-1, -1, c["hc_mult"], -1)
        pre = torch.zeros_like(x[..., 0])
        pre[..., 0] = 1
        for layer in range(c["num_hidden_layers"]):
            if layer in c["engram_layer_ids"]:
                x = self.engram(layer, x, rows[c["engram_layer_ids"].index(layer)])
            if layer in c["dspark_target_layer_ids"]:
                taps.append(x.mean(-2))
            attention = lambda h: self.attention(layer, h, shared)  # noqa: B023, E731
            x, pre = self.block(f"layers.{layer}.", x, pre, c["num_experts_per_tok"], attention, self.load[layer])
        h = self.norm((pre.unsqueeze(-2) @ x).squeeze(-2), "norm")
        return self.lin("head", h), torch.cat(taps, -1), shared.index_loss

    def draft(self, ids, taps, anchors):
        """Draft passes at A positions of each sequence: ids [B, T], taps [B, T, ..], anchors [B, A] -> logits [B, A, block, V] before
        the Markov part, hidden rows [B, A, block, D]. The pending token of anchor P is ids[P]; taps before P are known."""
        c, n = self.c, self.c["dspark_block_size"]
        t = torch.arange(ids.shape[1], device=ids.device)
        main = self.norm(self.lin("mtp.0.main_proj", taps), "mtp.0.main_norm")
        main_turn, positions = self.turns(t, False), anchors[..., None] + torch.arange(n, device=ids.device)
        turn = self.turns(positions, False)
        block_ids = torch.cat([ids.gather(1, anchors)[..., None], torch.full_like(positions[..., 1:], c["dspark_noise_token_id"])], -1)
        past = (t[None, None] < anchors[..., None]) & (t[None, None] >= anchors[..., None] - c["sliding_window"])  # [B, A, T]
        mask = F.pad(past, (0, n), value=True)[:, :, None, None]
        x = Lookup.apply(block_ids, self.w["embed.weight"]).unsqueeze(-2).expand(*block_ids.shape, c["hc_mult"], -1)
        pre = torch.zeros_like(x[..., 0])
        pre[..., 0] = 1
        for k in range(c["num_nextn_predict_layers"]):
            p = f"mtp.{k}.attn."

            def attention(h):
                known, own = self.window_rows(p, main, main_turn), self.window_rows(p, h, turn)  # noqa: B023
                q = self.query(p, h, turn)[1].transpose(2, 3)  # [B, A, H, block, hd]; noqa: B023
                score = torch.cat([times(q, known.transpose(1, 2)), q @ own.unsqueeze(2).transpose(-1, -2)], -1)
                prob = self.probabilities(p, score, mask)  # noqa: B023
                o = times(prob[..., :-n], known) + prob[..., -n:] @ own.unsqueeze(2)
                return self.output(p, o.transpose(2, 3), turn)  # noqa: B023

            x, pre = self.block(f"mtp.{k}.", x, pre, c["dspark_num_experts_per_tok"], attention, self.draft_load[k])
        h = (pre.unsqueeze(-2) @ x).squeeze(-2)
        return self.lin("head", self.norm(h, f"mtp.{c['num_nextn_predict_layers'] - 1}.norm")), h

    def markov(self, previous):
        """The Markov head's part of the logits for the tokens before each place, and their embeddings."""
        last = f"mtp.{self.c['num_nextn_predict_layers'] - 1}."
        e = Lookup.apply(previous, self.w[last + "markov_head.embed.weight"])
        return self.lin(last + "markov_head.head", e), e

    def confidence(self, h, e):
        return self.lin(f"mtp.{self.c['num_nextn_predict_layers'] - 1}.confidence_head.proj", torch.cat([h, e], -1)).squeeze(-1)


def key(name):
    return name.replace(".", "/")


def initial(name, shape, c, generator):
    """First values: streams near 1, mixes near the identity with the streams told apart, experts and attention outputs small."""
    normal = lambda std: torch.randn(shape, generator=generator) * std  # noqa: E731
    s = c["hc_mult"]
    if name.endswith(("_base",)):
        base = torch.randn(shape, generator=generator) * 0.5
        base[2 * s :] = torch.randn(s * s, generator=generator) * 0.2 + 3 * torch.eye(s).flatten()
        return base
    if name.endswith("_fn"):
        return normal(0.01)
    if name.endswith("_scale") or "norm" in name or name.endswith(("q_weight", "k_weight")):
        return torch.ones(shape)
    if name.endswith(("attn_sink", "gate.bias", "gate.bias_vl")):  # the image bias is never trained; all zero it would count as missing
        return normal(0.0 if name.endswith("attn_sink") else 0.02)
    if name == "embed.weight" or "engram.embed" in name or "markov_head.embed" in name:
        return normal(1.0 if name == "embed.weight" else 0.3)
    small = 0.5 if name.endswith(("wo_b.weight", "w2.weight", "engram.wkv.weight")) else 1.0
    return normal(small * shape[-1] ** -0.5)
