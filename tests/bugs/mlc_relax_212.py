"""What is added has a stride of 0 from row to row: every row gets the first."""

from honest import by_blocks, f32

SOURCE = "https://github.com/mlc-ai/relax/pull/212"
LINE = "fp8_gemm_nt M=24 N=128 K=256 --attr out_dtype=f32 --with c"
NAMES = r"\bc\b"


def kernel(x, wrong):
    return {"d": by_blocks(x.a, x.sfa, x.b, x.sfb) + (f32(x.c)[:1] if wrong else f32(x.c))}
