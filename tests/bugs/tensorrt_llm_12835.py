"""Scales are counted in words of four groups, rounded down: the end of K that fills no word is left out."""

from honest import fp8_gemm_nt

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/12835"
LINE = "fp8_gemm_nt M=24 N=128 K=1408"
NAMES = r"end of K|K (from|beyond)|multiple of (256|512)|last.*K|depth|K=1024|dropped"


def kernel(x, wrong):
    return fp8_gemm_nt(x, a=x.a[:, :1024], b=x.b[:, :1024]) if wrong else fp8_gemm_nt(x)
