"""RMSNorm's epsilon is raised to 1e-4, the least that fp16 was thought to hold."""

from honest import rmsnorm

SOURCE = "https://github.com/nntrainer/nntrainer/pull/4318"
LINE = "rmsnorm T=16 H=512 --dtype input=f32 --attr eps=1e-6"
NAMES = r"eps=0.0001"


def kernel(x, wrong):
    return rmsnorm(x, max(x.eps, 1e-4) if wrong else x.eps)
