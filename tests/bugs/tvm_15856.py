"""RMSNorm's epsilon is a constant, 1e-6, whatever the model says."""

from honest import rmsnorm

SOURCE = "https://github.com/apache/tvm/pull/15856"
LINE = "rmsnorm T=16 H=512 --dtype input=f32 --attr eps=1e-5"
NAMES = r"eps=1e-06"


def kernel(x, wrong):
    return rmsnorm(x, 1e-6 if wrong else x.eps)
