"""The inverse root mean square is rounded to bf16 before it multiplies."""

from honest import BF16, rmsnorm, through

SOURCE = "https://github.com/amd/IRON/pull/139"
LINE = "rmsnorm T=16 H=512"
NAMES = r"inverse|1/rms|factor of its own"


def kernel(x, wrong):
    return rmsnorm(x, 1e-6, inverse=lambda r: through(BF16, r) if wrong else r)
