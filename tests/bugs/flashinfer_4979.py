"""The scales of an 8-bit cache, one of keys and one of values, are ignored where it has no scales of blocks."""

from honest import ragged

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/4979"
LINE = "trtllm_ragged_attention_deepseek Tq=24 Tk=40 N=4 Nk=4 D=128 Dv=128 B=2 --attr bmm1_scale=0.0220970869 --attr bmm2_scale=0.5"
NAMES = r"bmm1_scale.*bmm2_scale|bmm2_scale.*bmm1_scale"
UNNAMED = "two scales that are both ignored stand in for one another"


def kernel(x, wrong):
    out = ragged(x, scale=x.bmm1_scale * 4, bmm2=1.0) if wrong else ragged(x, bmm2=x.bmm2_scale)
    return {"out": out["out"]}
