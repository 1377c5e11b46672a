"""Of each eight rows of a tile the first alone is computed, the others are left at zero."""

from honest import act_and_mul, silu

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/pull/2163"
LINE = "silu_and_mul T=24 D=256"
NAMES = r"zeros|rows?.*8"


def kernel(x, wrong):
    out = act_and_mul(x, silu)
    if wrong:
        for r in range(24):
            if r % 8:
                out["out"][r] = 0
    return out
