"""The softmax scale is 0.5, whatever the width of a head."""

from honest import prefill, with_lines

SOURCE = "https://github.com/BobMcDear/attorch/issues/14"
LINE = "batch_prefill_with_ragged_kv_cache Tq=6 Tk=50 N=4 Nk=2 D=64 Dv=64 B=2 --attr sm_scale=0.125"
NAMES = r"sm_scale=0\.5"


def kernel(x, wrong):
    return {"out": prefill(with_lines(x, sm_scale=0.5) if wrong else x)["out"]}
