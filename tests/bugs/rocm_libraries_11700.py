"""The window of row scales is not moved on: every 32 rows of a tile are multiplied with those of the first 32."""

from honest import scaled_mm

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/11700"
LINE = "int8_scaled_mm M=100 N=48 K=256"
NAMES = r"scales_a.*(32|again|repeat|first|period|modulo)"


def kernel(x, wrong):
    if not wrong:
        return scaled_mm(x)
    scales = x.scales_a.reshape(-1)
    return scaled_mm(x, scales_a=scales[[m % 32 for m in range(len(scales))]])
