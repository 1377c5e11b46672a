"""The global scale divides where it should multiply."""

from honest import cutlass_scaled_fp4_mm

SOURCE = "https://github.com/modular/modular/issues/6600"
LINE = "cutlass_scaled_fp4_mm M=16 N=32 K=256"
NAMES = r"alpha.*divides|alpha.*invert"


def kernel(x, wrong):
    return cutlass_scaled_fp4_mm(x, alpha=1 / x.alpha[0] if wrong else None)
