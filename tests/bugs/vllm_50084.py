"""Scales are written into tiles of 128 x 4 where the reader wants them row by row."""

from honest import out_of_tiles, scaled_fp4_quant

SOURCE = "https://github.com/vllm-project/vllm/issues/50084"
LINE = "fp4_quantize M=128 K=256 --attr is_sf_swizzled_layout=false"
NAMES = r"tiles|swizzled"


def edit(inputs):
    return {}


def kernel(x, wrong):
    made = scaled_fp4_quant(x)
    scales = made["output_scale"]
    return {"x_q": made["output"], "sf": scales if wrong else out_of_tiles(scales, 128, 16).astype(scales.dtype)}
