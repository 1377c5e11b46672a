"""The weights of a gemma norm are taken as they are, without the 1 that is to be added."""

from honest import f32, rmsnorm, with_lines

SOURCE = "https://github.com/linkedin/Liger-Kernel/issues/74"
LINE = "rmsnorm T=12 H=512 --attr weight_bias=1"
NAMES = r"weight_bias"


def kernel(x, wrong):
    return rmsnorm(x if wrong else with_lines(x, weight=f32(x.weight) + 1), 1e-6)
