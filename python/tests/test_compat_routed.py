"""FlashInfer's whole mixtures of experts whose tokens come routed: what their routing is made of."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer

SIZES = "T=5 H=128 --attr num_experts=8 --attr top_k=3 --attr intermediate_size=128 --attr local_num_experts=8 --attr routing_method_type=Renormalize"
KERNELS = {f"trtllm_{kind}_routed_moe": f"trtllm_{kind}_moe" for kind in ("bf16", "fp4_block_scale", "fp8_block_scale", "fp8_per_tensor_scale")}


def as_words(ids, weights):
    """An expert above the 16 bits of its weight, which is a bf16 number."""
    return (ids.astype(np.int32) << 16) | (weights.view(np.uint32) >> 16).astype(np.int32)


def call_of(name):
    """The op's arguments by upstream's names, what its router said, and what came out."""
    op = KERNELS[name]
    arguments = dodona.gen(f"{op} {SIZES} --attr record_routing=true").arguments()
    output, ids, weights = getattr(dodona, op)(**arguments)
    known = compat._package("flashinfer").adapter(name).signature.parameters
    kept = {key: value for key, value in arguments.items() if key in known and key not in ("routing_logits", "record_routing")}
    left_out = {key: None for key, parameter in known.items() if parameter.default is parameter.empty and key != "topk_ids"}
    numbers = {key: value for key, value in (("local_expert_offset", 0), ("use_routing_scales_on_input", False)) if key in known}
    return {**left_out, **numbers, **kept}, np.asarray(ids), np.asarray(weights), output


def bytes_of(result):
    return np.asarray(result[0] if isinstance(result, list) else result).tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_words_and_pairs_say_the_same(name):
    given, ids, weights, output = call_of(name)
    run = lambda routes, **more: getattr(flashinfer.fused_moe, name)(routes, **{**given, **more})
    assert bytes_of(run((ids, weights))) == output.tobytes()
    assert bytes_of(run(as_words(ids, weights))) == output.tobytes()
    assert bytes_of(run([ids, dodona.as_dtype((weights.view(np.uint32) >> 16).astype(np.uint16), "bf16")])) == output.tobytes()
    turned = ids[:, ::-1].copy(), weights[:, ::-1].copy()
    assert np.array_equal(bytes_of(run(turned)) == output.tobytes(), bytes_of(run(as_words(*turned))) == output.tobytes())
    assert bytes_of(run((ids, 2 * weights))) != output.tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_no_routing_is_refused_by_name(name):
    given, ids, weights, _ = call_of(name)
    for routes in (None, "nonsense", 7, ids.astype(np.int64), ids[0], (ids,), (ids, weights, weights), (ids, None), (None, weights), (ids, weights[:, :2]), (ids + 9, weights), (ids - 9, weights)):
        with pytest.raises(compat.Refused, match=f"^{name}: "):
            getattr(flashinfer.fused_moe, name)(routes, **given)
