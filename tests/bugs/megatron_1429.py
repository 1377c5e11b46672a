"""The softmax scale is made of another YaRN factor, so that its square is missing."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/NVIDIA/Megatron-LM/issues/1429"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.1352337788608801"
NAMES = r"YaRN"


def kernel(x, wrong):
    return cutlass_mla_decode(x, scale=192**-0.5 if wrong else None)
