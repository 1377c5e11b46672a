"""Of heads of 256 the first 128 numbers of a value alone are added up: the stride of another width."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/gittensor-ai-lab/sparkinfer/issues/425"
LINE = "decode_attention_fwd B=3 N=8 Nk=2 S=60 n=90 D=256 --attr v_head_dim=256 --attr sm_scale=0.0625"
NAMES = r"128"
UNNAMED = "that the second half of the columns is not written is said, not their number"


def kernel(x, wrong):
    out = decode_attention(x)["o"]
    if wrong:
        out[..., 128:] = 0
    return {"o": out}
