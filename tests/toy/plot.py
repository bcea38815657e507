#!/usr/bin/env python3
"""Draws log.jsonl of train.py as curves.svg: python3 plot.py LOG OUT.svg"""

import json
import sys

PANELS = [
    ("backbone", 0, "loss on answers"),
    ("backbone", 3, "answer tokens right"),
    ("drafts", 0, "draft loss"),
    ("drafts", 2, "drafts accepted of 5"),
]
WIDTH, HEIGHT, GAP = 360, 200, 40


def panel(lines, phase, which, title, x0, y0):
    own = [(line["seconds"], line["values"][which]) for line in lines if line["phase"] == phase]
    if not own:
        return []
    end, top = max(s for s, _ in own), max(max(v for _, v in own), 1e-9)
    points = " ".join(f"{x0 + WIDTH * s / end:.1f},{y0 + HEIGHT * (1 - v / top):.1f}" for s, v in own)
    return [
        f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<polyline points="{points}" fill="none" stroke="#1f5fa8"/>',
        f'<text x="{x0}" y="{y0 - 6}">{title}: 0 to {top:.3g}, last {own[-1][1]:.3g}; {end:.0f} s</text>',
    ]


def main(argv):
    if len(argv) != 2:
        sys.exit(__doc__)
    lines, parts = [json.loads(line) for line in open(argv[0])], []
    for i, (phase, which, title) in enumerate(PANELS):
        parts += panel(lines, phase, which, title, GAP + i % 2 * (WIDTH + GAP), GAP + i // 2 * (HEIGHT + GAP))
    size = f'width="{2 * WIDTH + 3 * GAP}" height="{2 * HEIGHT + 3 * GAP}"'
    with open(argv[1], "w") as out:
        out.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">\n' + "\n".join(parts) + "\n</svg>\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
