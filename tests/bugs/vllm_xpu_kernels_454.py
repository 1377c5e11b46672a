"""Of a width that is no power of two what lies behind column 256 is not written, but for the last few columns."""

from honest import act_and_mul, silu

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/issues/454"
LINE = "silu_and_mul T=5 D=768"
NAMES = r"columns 25[67]|256|not written|zeros"


def kernel(x, wrong):
    out = act_and_mul(x, silu)
    if wrong:
        out["out"][:, 257:737] = 0
    return out
