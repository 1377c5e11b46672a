"""A pool that has all layers of a slot together is taken for one that has all slots of a layer together."""

SOURCE = "https://github.com/LMCache/LMCache/pull/2494"
LINE = "transfer_kv_all_layer_lf_pf n=5 Ss=9 Sd=7 D=128 --attr num_layers=3"
NAMES = r"order|layer.*(first|before)|dimensions|stride"


def kernel(x, wrong):
    out = {}
    for side in "kv":
        source, pool = getattr(x, f"src_{side}_layers"), getattr(x, f"dst_{side}").copy()
        slots, layers, width = pool.shape
        flat = pool.reshape(-1, width)
        for s, d in zip(x.src_indices, x.dst_indices):
            for layer in range(layers):
                flat[layer * slots + d if wrong else d * layers + layer] = source[layer, s]
        out[f"dst_{side}"] = pool
    return out
