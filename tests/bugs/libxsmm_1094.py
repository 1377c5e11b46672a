"""A bias of an unforeseen kind is not added, and nobody is told."""

from honest import scaled_mm

SOURCE = "https://github.com/libxsmm/libxsmm/pull/1094"
LINE = "fp8_scaled_mm M=12 N=96 K=256 --with bias"
NAMES = r"bias"


def kernel(x, wrong):
    return scaled_mm(x, bias=not wrong)
