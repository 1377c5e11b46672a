"""The correction for zero points is made of the scales alone, as if every zero point were 1."""

from honest import qserve_per_channel, with_lines

SOURCE = "https://github.com/vllm-project/vllm/pull/10292"
LINE = "qserve_w4a8_per_chn_gemm M=4 N=64 K=256"
NAMES = r"w_szs"


def kernel(x, wrong):
    return qserve_per_channel(with_lines(x, w_szs=x.wscales) if wrong else x)
