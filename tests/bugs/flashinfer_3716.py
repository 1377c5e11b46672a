"""What lies behind a request's last key in its tile of 256 is not masked: zeros with a score of 0, and a weight."""

from honest import xqa_decode

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3716"
LINE = "xqa_batch_decode_with_kv_cache_mla B=4 N=1 pages=12 P=32 W=3 --attr bmm1_scale=0.01"
NAMES = r"256.*(score|zeros)|zeros.*256|scores? of 0.*(256|tile)"


def kernel(x, wrong):
    return xqa_decode(x, zeros=lambda n: -n % 256 if wrong else 0)
