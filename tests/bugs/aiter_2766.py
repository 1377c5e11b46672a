"""The bias is what the accumulator begins with, and is added once more behind."""

from honest import f32, scaled_mm, with_lines

SOURCE = "https://github.com/ROCm/aiter/pull/2766"
LINE = "int8_scaled_mm M=32 N=64 K=256 --with bias"
NAMES = r"bias.*(twice|2 x|double|doubled|counts? 2)"


def kernel(x, wrong):
    return scaled_mm(with_lines(x, bias=f32(x.bias) * 2) if wrong else x)
