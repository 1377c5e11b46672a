"""Items are taken from layer 0, whichever layer is asked for."""

SOURCE = "https://github.com/sgl-project/sglang/pull/8915"
LINE = "transfer_kv_per_layer_pf_lf n=5 Ss=9 Sd=7 L=3 D=128 --attr layer_id=2"
NAMES = r"layer_id"


def kernel(x, wrong):
    layer = 0 if wrong else x.layer_id
    out = {"dst_k": x.dst_k.copy(), "dst_v": x.dst_v.copy()}
    for source, slot in zip(x.src_indices, x.dst_indices):
        out["dst_k"][slot], out["dst_v"][slot] = x.src_k[source, layer], x.src_v[source, layer]
    return out
