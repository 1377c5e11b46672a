"""Scores are multiplied with the root of the head's width instead of divided."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/AI-Hypercomputer/maxtext/issues/1370"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.0721687836"
NAMES = r"divides|invert"


def kernel(x, wrong):
    return cutlass_mla_decode(x, scale=1 / x.sm_scale if wrong else None)
