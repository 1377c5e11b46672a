"""The number of a group of heads is made by dividing by the heads of a group, where the blocks of them belong: all heads have the first key's."""

import numpy as np
from honest import decode_attention, with_lines

SOURCE = "https://github.com/flagos-ai/FlagGems/pull/2184"
LINE = "decode_attention_fwd B=3 N=8 Nk=2 S=90 n=140 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836"
NAMES = r"(key|head|k_buffer).*(first|0)"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, k_buffer=np.repeat(x.k_buffer[:, :1], 2, 1), v_buffer=np.repeat(x.v_buffer[:, :1], 2, 1))
    return decode_attention(x)
