#!/usr/bin/env python3
"""Trains the toy model: the backbone, then its draft blocks on the frozen backbone.

    python3 train.py DATA OUT [--seconds S] [--draft-seconds S] [--batch-tokens N] [--resume STATE] [--steps N --draft-steps N]

DATA: tokens.npz and heldout.npz of make_data.py, token_map.json. OUT gets state-*.safetensors (weights in f32), log.jsonl, scores.json.
One process, one GPU (a step is one CUDA graph per length) or, for trials, the CPU. README.md has the command that was run.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import config
from model import Toy, key

LENGTHS = (80, 144, 448, 640)
SPARSE_FROM, ROUNDED_FROM = 0.3, 0.45  # parts of the backbone's run: from when on the indexer selects, weights are rounded


class Bucket:
    """Conversations of one padded length on the device."""

    def __init__(self, length, ids, marks, labels, batch, device):
        self.labels, self.length, self.batch, self.count = labels, length, batch, len(ids)
        self.ids = torch.full((len(ids), length), 2, dtype=torch.int16)
        self.marks = torch.zeros((len(ids), length), dtype=torch.bool)
        for i, (a, m) in enumerate(zip(ids, marks)):
            self.ids[i, : len(a)] = torch.from_numpy(a.astype(np.int16))
            self.marks[i, : len(m)] = torch.from_numpy(m)
        self.ids, self.marks = self.ids.to(device), self.marks.to(device)
        self.index = torch.zeros(batch, dtype=torch.long, device=device)

    def take(self):
        return self.ids[self.index].long(), self.marks[self.index]


def read(path):
    z = np.load(path)
    ends = np.cumsum(z["lengths"])
    marks = np.unpackbits(z["marks"])[: ends[-1]].astype(bool)
    cut = lambda a: [a[e - n : e] for e, n in zip(ends, z["lengths"])]  # noqa: E731
    return cut(z["ids"]), cut(marks), z["labels"] if "labels" in z else None


def buckets_of(path, batch_tokens, device):
    ids, marks, labels = read(path)
    out, low = [], 0
    for length in LENGTHS:
        own = [i for i in range(len(ids)) if low < len(ids[i]) <= length]
        low = length
        if own:
            of = lambda a: [a[i] for i in own]  # noqa: B023, E731
            out.append(
                Bucket(length, of(ids), of(marks), of(labels) if labels is not None else None, max(1, batch_tokens // length), device)
            )
    return out


class Stepper:
    """Runs `work(bucket)` followed by an optimizer step; on a GPU as one captured graph per bucket."""

    def __init__(self, model, names, buckets, work, lr, device, eager):
        self.params = [model.p[key(n)] for n in names]
        for n in model.specs:
            model.p[key(n)].requires_grad_(n in set(names))
        self.lr = torch.zeros((), device=device)
        cuda = device == "cuda" and not eager
        self.optimizer = torch.optim.AdamW(self.params, lr=self.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True, capturable=cuda)
        self.peak, self.work, self.buckets, self.cuda, self.graphs = lr, work, buckets, cuda, {}
        self.weights = np.array([b.count / b.batch for b in buckets])
        self.stats = torch.zeros(6, device=device)
        self.rng = np.random.default_rng(5)

    def once(self, bucket):
        self.optimizer.zero_grad(set_to_none=True)
        loss, stats = self.work(bucket)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.stats += torch.stack([*stats, norm.detach(), torch.ones_like(norm)])

    def capture(self):
        if not self.cuda:
            return
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        for bucket in self.buckets:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.once(bucket)
            torch.cuda.current_stream().wait_stream(side)
            self.optimizer.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.once(bucket)
            self.graphs[bucket.length] = graph

    def step(self, done):
        """done: 0..1 of the whole run, for the learning rate."""
        self.lr.fill_(self.peak * min(1.0, done * 50 + 0.02) * min(1.0, (1 - done) / 0.45))
        bucket = self.buckets[self.rng.choice(len(self.buckets), p=self.weights / self.weights.sum())]
        bucket.index.copy_(torch.randint(bucket.count, (bucket.batch,), device=bucket.index.device))
        if self.cuda:
            self.graphs[bucket.length].replay()
        else:
            self.once(bucket)

    def take_stats(self):
        s = self.stats.tolist()
        self.stats.zero_()
        return [v / max(s[-1], 1) for v in s[:-1]], int(s[-1])


def run(stepper, seconds, steps, log, phase, on_progress):
    """Until `seconds` have passed, or for `steps`."""
    begin, n, last = time.time(), 0, 0
    while True:
        done = n / steps if steps else (time.time() - begin) / seconds
        if done >= 1:
            break
        on_progress(done)
        stepper.step(done)
        n += 1
        if n % 50 == 0 and stepper.cuda:
            torch.cuda.synchronize()  # keeps the clock honest: replays are queued
        if n % 100 == 0 or not stepper.cuda:
            values, _ = stepper.take_stats()
            line = dict(phase=phase, step=n, seconds=round(time.time() - begin, 1), values=[round(v, 4) for v in values])
            log.write(json.dumps(line) + "\n")
            log.flush()
            if n - last >= 500 or not stepper.cuda:
                last = n
                print(json.dumps(line), flush=True)
    print(f"{phase}: {n} steps in {time.time() - begin:.1f} s", flush=True)


def backbone_work(model):
    def work(bucket):
        ids, marks = bucket.take()
        model.use_weights(drafts=False)
        logits, _, index_loss = model(ids)
        target, answer = ids[:, 1:], marks[:, 1:].float()
        ce = F.cross_entropy(logits[:, :-1].flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
        other = ((target != 2) & ~marks[:, 1:]).float()
        own = (ce * answer).sum() / answer.sum().clamp(min=1)
        rest = (ce * other).sum() / other.sum().clamp(min=1)
        with torch.no_grad():
            right = ((logits[:, :-1].argmax(-1) == target).float() * answer).sum() / answer.sum().clamp(min=1)
            for layer in range(model.c["num_hidden_layers"]):
                load, bias = model.load[layer], model.p[key(f"layers.{layer}.ffn.gate.bias")]
                bias.add_(2e-3 * (load.mean() - load).sign())
        return own + 0.1 * rest + 0.1 * index_loss, (own.detach(), rest.detach(), index_loss.detach(), right)

    return work


def draft_work(model, n_anchors=24):
    block = model.c["dspark_block_size"]

    def work(bucket):
        ids, marks = bucket.take()
        model.use_weights()
        with torch.no_grad():
            logits, taps, _ = model(ids)
            chance = torch.rand(marks.shape, device=ids.device) + marks.float()
            anchors = chance[:, 1:-block].topk(n_anchors, -1).indices + 1
            places = anchors[..., None] + torch.arange(block, device=ids.device)
            at = lambda a, p: a.gather(1, p.flatten(1)).view(p.shape)  # noqa: E731
            before, after = at(ids, places), at(ids, places + 1)
            valid = at(marks, places + 1) & at(marks, anchors)[..., None]
            teacher = logits.gather(1, places.flatten(1)[..., None].expand(-1, -1, logits.shape[-1])).view(*places.shape, -1)
            teacher_top, soft = teacher.argmax(-1), teacher.softmax(-1)
        base, h = model.draft(ids, taps, anchors)
        bias, e = model.markov(before)
        z = base + bias
        decay = 0.85 ** torch.arange(block, device=ids.device)
        weight = valid.float() * decay
        ce = -(soft * z.log_softmax(-1)).sum(-1) + 0.3 * F.cross_entropy(z.flatten(0, -2), after.flatten(), reduction="none").view(
            after.shape
        )
        hit = (z.argmax(-1) == teacher_top).float()
        sure = F.binary_cross_entropy_with_logits(model.confidence(h.detach(), e.detach()), hit, reduction="none")
        total = weight.sum().clamp(min=1)
        loss = (ce * weight).sum() / total
        confidence = (sure * weight).sum() / total
        with torch.no_grad():
            for k in range(model.c["num_nextn_predict_layers"]):
                bias, load = model.p[key(f"mtp.{k}.ffn.gate.bias")], model.draft_load[k]
                bias.add_(2e-3 * (load.mean() - load).sign())
            full = valid.all(-1).float()
            accepted = ((hit * valid).cumprod(-1).sum(-1) * full).sum() / full.sum().clamp(min=1)
            right = (hit * valid).sum() / valid.sum().clamp(min=1)
        return loss + 0.1 * confidence, (loss.detach(), confidence.detach(), accepted, right)

    return work


@torch.no_grad()
def exact_matches(model, buckets):
    """Share of held-out conversations per label whose every answer token is the greedy one, and the perplexity of all text."""
    model.eval()
    model.use_weights()
    right, nll, count = {}, 0.0, 0
    for bucket in buckets:
        for begin in range(0, bucket.count, bucket.batch):
            ids, marks = bucket.ids[begin : begin + bucket.batch].long(), bucket.marks[begin : begin + bucket.batch, 1:]
            logits, target = model(ids)[0][:, :-1], ids[:, 1:]
            whole = ((logits.argmax(-1) == target) | ~marks).all(-1).tolist()
            for label, ok in zip(bucket.labels[begin : begin + bucket.batch], whole):
                right.setdefault(str(label), []).append(ok)
            text = target != 2
            nll += F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")[text.flatten()].sum().item()
            count += text.sum().item()
    model.train()
    return {k: [sum(v), len(v)] for k, v in sorted(right.items())}, float(np.exp(nll / count))


def save(model, out):
    """Weights in f32, in files of less than 16 MiB."""
    names = list(model.specs)
    half = [n for i, n in enumerate(names) if i % 2], [n for i, n in enumerate(names) if not i % 2]
    for i, part in enumerate(half):
        save_file({n: model.p[key(n)].detach().float().cpu().contiguous() for n in part}, out / f"state-{i}.safetensors")


def restore(model, folder):
    with torch.no_grad():
        for path in sorted(pathlib.Path(folder).glob("state-*.safetensors")):
            for name, value in load_file(path).items():
                model.p[key(name)].copy_(value)


def train_backbone(model, a, buckets, log, device, resumed):
    names = [n for n in model.specs if not n.startswith("mtp.") and not n.endswith(("gate.bias", "gate.bias_vl"))]
    model.dense.fill_(not resumed)
    model.round_weights.fill_(1.0 if resumed else 0.0)
    stepper = Stepper(model, names, buckets, backbone_work(model), a.lr, device, a.eager)
    stepper.capture()
    stepper.take_stats()

    def on_progress(done):
        if not resumed:
            model.dense.fill_(done < SPARSE_FROM)
            model.round_weights.fill_(float(done >= ROUNDED_FROM))

    run(stepper, a.seconds, a.steps, log, "backbone", on_progress)


def train_drafts(model, a, buckets, log, device):
    names = [n for n in model.specs if n.startswith("mtp.") and not n.endswith(("gate.bias", "gate.bias_vl"))]
    model.dense.fill_(False)
    model.round_weights.fill_(1.0)
    stepper = Stepper(model, names, buckets, draft_work(model), a.draft_lr, device, a.eager)
    stepper.capture()
    stepper.take_stats()
    run(stepper, a.draft_seconds, a.draft_steps, log, "drafts", lambda done: None)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=380)
    p.add_argument("--draft-seconds", type=float, default=90)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--draft-steps", type=int, default=0)
    p.add_argument("--batch-tokens", type=int, default=24576)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--draft-lr", type=float, default=2e-3)
    p.add_argument("--eager", action="store_true", help="no CUDA graphs")
    p.add_argument("--resume", type=pathlib.Path)
    a = p.parse_args()
    begin, device = time.time(), "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    token_map = json.loads((a.data / "token_map.json").read_text())
    model = Toy(config.complete(token_map), token_map).to(device)
    model.stable = device == "cpu"
    if a.resume:
        restore(model, a.resume)
    buckets = buckets_of(a.data / "tokens.npz", a.batch_tokens, device)
    print(
        f"{device}, {sum(x.numel() for x in model.p.values())} parameters, conversations by length "
        f"{ {b.length: b.count for b in buckets} }, {time.time() - begin:.1f} s",
        flush=True,
    )
    with open(a.out / "log.jsonl", "a") as log:
        for work, wanted in ((train_backbone, a.seconds or a.steps), (train_drafts, a.draft_seconds or a.draft_steps)):
            if wanted:
                work(model, a, buckets, log, device, *([bool(a.resume)] if work is train_backbone else []))
                save(model, a.out)
                scores, perplexity = exact_matches(model, buckets_of(a.data / "heldout.npz", a.batch_tokens, device))
                print(json.dumps(dict(exact=scores, perplexity=perplexity, seconds=round(time.time() - begin, 1))), flush=True)
                (a.out / "scores.json").write_text(json.dumps(dict(exact=scores, perplexity=perplexity)))


if __name__ == "__main__":
    main()
