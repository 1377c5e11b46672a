"""A decoding query does not see the key of its own token, which was stored behind the length that it is given."""

from honest import decode_attention

SOURCE = "https://github.com/NVIDIA/Megatron-LM/issues/1425"
LINE = "decode_attention_fwd B=2 N=4 Nk=2 S=90 n=140 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836"
NAMES = r"misses the last"


def kernel(x, wrong):
    return decode_attention(x, seen=lambda n: n - 1 if wrong else n)
