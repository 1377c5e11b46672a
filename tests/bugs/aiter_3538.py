"""Tiles are launched for the width less its padding, rounded down once more: the last tile of 64 columns is never written."""

from honest import act_and_mul, silu

SOURCE = "https://github.com/ROCm/aiter/pull/3538"
LINE = "silu_and_mul T=10 D=384"
NAMES = r"columns 320\.\.383|last 64|(column|D).*320"


def kernel(x, wrong):
    out = act_and_mul(x, silu)
    if wrong:
        out["out"][:, -64:] = 0
    return out
