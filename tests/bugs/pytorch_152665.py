"""The bias is not added where K is no multiple of 128."""

from honest import scaled_mm

SOURCE = "https://github.com/pytorch/pytorch/pull/152665"
LINE = "fp8_scaled_mm M=16 N=64 K=96 --with bias"
NAMES = r"bias.*zero|bias.*ignored"


def kernel(x, wrong):
    return scaled_mm(x, bias=not wrong)
