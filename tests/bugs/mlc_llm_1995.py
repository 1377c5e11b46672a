"""The kernel is told the heads of keys, not of queries: it goes over half of what there is."""

from honest import merge_state

SOURCE = "https://github.com/mlc-ai/mlc-llm/pull/1995"
LINE = "merge_state_v2 T=12 N=8 D=64"
NAMES = r"zeros|rows|half|tail|not written"


def kernel(x, wrong):
    out = merge_state(x, base_2=False)
    if wrong:
        for name in out:
            flat = out[name].reshape(-1)
            flat[len(flat) // 2 :] = 0
    return out
