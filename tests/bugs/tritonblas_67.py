"""Tiles that several blocks share are added up without the bias, whole ones with it."""

from honest import BF16, f32, scaled_mm

SOURCE = "https://github.com/ROCm/tritonBLAS/pull/67"
LINE = "fp8_scaled_mm M=256 N=256 K=32 --with bias"
NAMES = r"bias"


def kernel(x, wrong):
    out = scaled_mm(x)["out"]
    if wrong:
        out[128:, 128:] = scaled_mm(x, bias=False)["out"][128:, 128:]
    return {"out": out}
