"""Values are multiplied with the scale that they have to be divided by, and not held to the largest code."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/pull/475"
LINE = "sgl_per_tensor_quant_fp8 T=12 H=256 --attr is_static=true"
NAMES = r"output_s.*(multipl|inver|1 /|recipro|divid)|(multipl|inver|1 /|recipro|divid).*output_s"


def kernel(x, wrong):
    scale = np.float32(x.output_s[0])
    factor = scale if wrong else np.float32(1) / scale
    product = f32(x.input) * factor
    codes = product.astype(E4M3) if wrong else np.clip(product, -448, 448).astype(E4M3)
    return {"output_q": codes, "output_s": np.array(x.output_s)}
