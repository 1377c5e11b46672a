"""FlashInfer's wrapper of MLA over pages: latent rows with nothing beside them, and what plan and run hold against each other."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer

RANDOM = np.random.default_rng(5)
HEADS, PAGE, LENGTHS = 3, 16, [20, 9]
BEGINS, PAGES, PLACES = np.array([0, 1, 2], np.int32), np.array([0, 2, 3], np.int32), np.array([2, 0, 1], np.int32)


def bf16(*shape):
    return (RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(words):
    return (np.asarray(words).view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def planned(rotated, kinds=("bfloat16", "bfloat16")):
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(None)
    types = [f"torch.{kind}" for kind in kinds]
    wrapper.plan(BEGINS, PAGES, PLACES, np.array(LENGTHS, np.int32), HEADS, 512, rotated, PAGE, False, 0.05, *types)
    return wrapper


def test_rows_may_have_nothing_that_is_rotated():
    q, ckv = bf16(2, HEADS, 512), bf16(3, PAGE, 512)
    made, sums = planned(0).run(q, q[..., :0], ckv, ckv[..., :0], return_lse=True)
    for request, length in enumerate(LENGTHS):
        rows = wide(ckv)[PLACES[PAGES[request] : PAGES[request + 1]]].reshape(-1, 512)[:length]
        scores = wide(q)[request] @ rows.T * 0.05
        power = np.exp(scores - scores.max(-1, keepdims=True))
        assert np.allclose(wide(made)[request], power @ rows / power.sum(-1, keepdims=True), atol=2e-2)
        assert np.allclose(sums[request], (scores.max(-1) + np.log(power.sum(-1))) / np.log(2), atol=1e-3)


def codes(*shape):
    return dodona.as_dtype(RANDOM.integers(0, 0x70, shape).astype(np.uint8), "f8_e4m3")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"q_nope": np.zeros((2, HEADS, 512), np.float16)}, "q_nope.dtype"),
        ({"q_pe": np.zeros((2, HEADS, 64), np.float16)}, "q_pe.dtype"),
        ({"ckv_cache": bf16(3, PAGE, 512)}, "ckv_cache.dtype"),
        ({"kpe_cache": bf16(3, PAGE, 64)}, "kpe_cache.dtype"),
        ({"ckv_scale": None}, "Exactly one of ckv_scale or ckv_scale_arr"),
        ({"ckv_scale_arr": np.ones((3, PAGE, 4), np.float32)}, "Exactly one of ckv_scale or ckv_scale_arr"),
        ({"ckv_scale": None, "ckv_scale_arr": np.ones((3, PAGE, 3), np.float32)}, "Invalid shape of ckv_scale_arr"),
        ({"kpe_scale": None}, "kpe_scale is required"),
    ],
)
def test_caches_of_eight_bits_have_scales_and_types_as_planned(changes, words):
    given = {"q_nope": bf16(2, HEADS, 512), "q_pe": bf16(2, HEADS, 64), "ckv_cache": codes(3, PAGE, 512), "kpe_cache": codes(3, PAGE, 64), "ckv_scale": 0.01, "kpe_scale": 0.02}
    wrapper = planned(64, ("bfloat16", "float8_e4m3fn"))
    wrapper.run(**given)
    with pytest.raises(compat.Refused, match=words):
        wrapper.run(**{**given, **changes})


def test_caches_of_eight_bits_want_queries_in_bf16():
    with pytest.raises(compat.Refused, match="q_data_type=torch.bfloat16"):
        planned(64, ("float16", "float8_e4m3fn"))


@pytest.mark.parametrize(
    "counters, words",
    [(lambda room: room[:4], "is too small: got 4 bytes, need 608 bytes"), (lambda room: room[:1216:2], "must be contiguous"), (lambda room: room[1:609], "16-byte aligned")],
)
def test_counters_have_the_room_that_kernels_need(counters, words):
    room = np.zeros(1400, np.uint8)
    room = room[-room.ctypes.data % 16 :]
    call = {"query": bf16(1, 1, 128, 576), "kv_cache": bf16(1, 1, 64, 576), "block_tables": np.zeros((1, 1), np.int32), "seq_lens": np.array([7], np.int32)}
    call |= {"workspace_buffer": np.zeros(8, np.uint8), "qk_nope_head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_seq_len": 7, "bmm1_scale": 0.05}
    flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(**call, multi_ctas_kv_counter_buffer=room[:608])
    with pytest.raises(compat.Refused, match=words):
        flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(**call, multi_ctas_kv_counter_buffer=counters(room))
