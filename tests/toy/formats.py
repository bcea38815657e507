"""Rounding to the formats of caches and weights, with gradients passed straight through. Rules: model.md 4 and 9."""

import torch


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype)


def e2m1(x):
    """Nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even code."""
    a = x.abs().clamp(max=6)
    rounded = torch.where(a < 2, (a * 2).round() / 2, torch.where(a < 4, a.round(), (a / 2).round() * 2))
    return rounded * x.sign()


def ceil_pow2(x):
    """The least power of two that is not below x, for x from 2^-126 on."""
    mantissa, exponent = torch.frexp(x)
    return ((exponent - (mantissa == 0.5).to(exponent.dtype) + 127) << 23).view(torch.float32)


def straight(x, rounded):
    return x + (rounded - x).detach()


def cache(x, kind):
    """The cache formats: window rows, compressed rows, index queries and keys."""
    with torch.no_grad():
        b = x.unflatten(-1, (-1, 16 if kind == "compressed" else 32))
        amax = b.abs().amax(-1, keepdim=True)
        if kind == "window":
            s = ceil_pow2(amax.clamp(min=1e-4) * (1 / 448))
            out = e4m3(b / s) * s
        elif kind == "compressed":
            s = e4m3(amax.clamp(min=6 * 2.0**-9) / 6)
            out = e2m1(b / s) * s
        else:
            s = ceil_pow2(amax.clamp(min=6 * 2.0**-126) * (1 / 6))
            out = e2m1(b / s) * s
        out = out.flatten(-2)
    return straight(x, out)


# ---- weights: (values on the grid, exponent of the block scale) ---------------------------------------------------------------------


def blocks_of(w, kind):
    """[.., one block] of a matrix whose sides are multiples of 32: 32x32 for fp8, 1x32 for fp4 and tables."""
    if kind == "fp8":
        o, i = w.shape
        return w.view(o // 32, 32, i // 32, 32).transpose(1, 2).reshape(o // 32, i // 32, 1024)
    return w.view(w.shape[0], -1, 32)


def whole(blocks, shape, kind):
    if kind == "fp8":
        o, i = shape
        return blocks.view(o // 32, i // 32, 32, 32).transpose(1, 2).reshape(o, i)
    return blocks.view(shape)


def encode(w, kind):
    """Grid values per block and power-of-two scales [.., 1]. FP4 takes the better of two scales: clipping can cost less."""
    b = blocks_of(w, kind)
    amax = b.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    if kind != "fp4":
        s = ceil_pow2(amax * (1 / 448))
        return e4m3(b / s), s
    s = ceil_pow2(amax * (1 / 6))
    wide, tight = e2m1(b / s), e2m1(b / (s / 2))
    better = ((tight * (s / 2) - b) ** 2).sum(-1, keepdim=True) < ((wide * s - b) ** 2).sum(-1, keepdim=True)
    return torch.where(better, tight, wide), torch.where(better, s / 2, s)


def stored(w, kind):
    """What a reader of the exported weight computes with."""
    if kind == "f32":
        return w
    if kind == "bf16":
        return w.to(torch.bfloat16).to(w.dtype)
    values, s = encode(w, kind)
    return whole(values * s, w.shape, kind)
