"""A reduction's memory is used again before all have read it, and a lane behind the vocabulary's end wins one row."""

from honest import top_k_top_p

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3624"
LINE = "top_k_top_p_sampling_from_probs B=16 U=16 V=1000 --attr top_k=20 --attr top_p=0.4 --attr philox_seed=1234 --attr filter_apply_order=joint"
NAMES = r"beyond|outside|out of range|no token"


def kernel(x, wrong):
    outputs = top_k_top_p(x, joint=True)
    if wrong:
        outputs["samples"][5] = 1011
    return outputs
