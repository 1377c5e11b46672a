"""With three tiles of K the loop for more of them is entered: five are added up, the last two of them twice."""

from honest import BF16, by_blocks

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/6663"
LINE = "fp8_gemm_nt M=16 N=32 K=384"
NAMES = r"(twice|again|more than once|doubled).*|two .*K.*"


def kernel(x, wrong):
    total = by_blocks(x.a, x.sfa, x.b, x.sfb)
    if wrong:
        total += by_blocks(x.a[:, 128:], x.sfa[:, 1:], x.b[:, 128:], x.sfb[:, 1:])
    return {"d": total.astype(BF16)}
