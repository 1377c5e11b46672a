"""The exact GELU is computed where the model has the tanh form."""

from honest import act_and_mul, gelu, gelu_tanh

SOURCE = "https://github.com/tenstorrent/tt-metal/pull/25653"
LINE = "gelu_tanh_and_mul T=16 D=256 --dtype input=f32"
NAMES = r"gelu_and_mul"


def kernel(x, wrong):
    return act_and_mul(x, gelu if wrong else gelu_tanh)
