"""From the second wave of rows on, the scale of the wave before still multiplies."""

from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/NVIDIA/cutlass/issues/3596"
LINE = "fp8_blockwise_scaled_mm M=256 N=128 K=128"
NAMES = r"rows 128..255"


def kernel(x, wrong):
    scales = x.scales_a
    if wrong:
        scales = scales.copy()
        scales[128:] *= scales[:-128]
    return fp8_blockwise_scaled_mm(x, scales_a=scales)
