"""The group of a block of heads is its number over the heads of a group, not over the blocks of one: all take the first head of keys."""

from honest import decode_attention, with_lines

SOURCE = "https://github.com/flagos-ai/FlagGems/pull/3759"
LINE = "decode_attention_fwd B=3 N=16 Nk=2 S=100 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"head"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, k_buffer=x.k_buffer[:, [0, 0]], v_buffer=x.v_buffer[:, [0, 0]])
    return decode_attention(x)
