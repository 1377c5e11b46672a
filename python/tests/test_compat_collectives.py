"""Collectives of upstream's, all ranks in one process."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer, sgl_kernel


def group_of(buffers):
    """A handle for each rank, told of one buffer of every rank."""
    addresses = [buffer.ctypes.data for buffer in buffers]
    handles = [sgl_kernel.init_custom_ar(addresses, None, rank, True) for rank in range(len(buffers))]
    for handle in handles:
        sgl_kernel.register_buffer(handle, addresses)
    return handles


def test_every_rank_is_given_the_sum_of_all_registered_buffers():
    terms = np.random.default_rng(1).standard_normal((4, 3, 64)).astype(np.float32)
    buffers = list(terms.copy())
    handles = group_of(buffers)
    wanted = np.asarray(dodona.all_reduce(terms))
    for rank, handle in enumerate(handles):
        out = np.zeros_like(terms[0])
        assert sgl_kernel.all_reduce(handle, buffers[rank], out, 0, 0) is None
        assert np.array_equal(out.view(np.uint32), wanted.view(np.uint32))
        sgl_kernel.dispose(handle)


def test_an_input_is_copied_to_the_registered_buffer_that_is_named():
    buffers = [np.zeros(8, np.float32), np.full(8, 2, np.float32)]
    first = group_of(buffers)[0]
    out = np.zeros(8, np.float32)
    sgl_kernel.all_reduce(first, np.ones(8, np.float32), out, buffers[0].ctypes.data, buffers[0].nbytes)
    assert (out == 3).all() and (buffers[0] == 1).all()


def test_what_a_group_cannot_be_is_refused_by_name():
    buffers = [np.zeros(8, np.float32) for _ in range(2)]
    first = group_of(buffers)[0]
    out = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="all_reduce: inp is in no registered buffer"):
        sgl_kernel.all_reduce(first, np.zeros(8, np.float32), out, 0, 0)
    with pytest.raises(ValueError, match="all_reduce: inp has 32 bytes, expected at most the 16 of reg_buffer"):
        sgl_kernel.all_reduce(first, out, out, buffers[0].ctypes.data, 16)
    with pytest.raises(ValueError, match="all_reduce: out holds 16 bytes of f16, expected 32 of f32, as inp"):
        sgl_kernel.all_reduce(first, buffers[0], np.zeros(8, np.float16), 0, 0)
    with pytest.raises(ValueError, match="init_custom_ar: ipc_tensors names 3 ranks"):
        sgl_kernel.init_custom_ar([1, 2, 3], None, 0, True)
    sgl_kernel.dispose(first)
    with pytest.raises(ValueError, match="all_reduce: fa is .*, expected what init_custom_ar gave"):
        sgl_kernel.all_reduce(first, buffers[0], out, 0, 0)


def fused(terms, residual, gamma, **changes):
    ranks, tokens, width = terms.shape
    outputs = {"residual_out": np.zeros_like(residual), "norm_out": np.zeros_like(residual)}
    call = dict(
        allreduce_in=terms, world_size=ranks, world_rank=0, token_num=tokens, hidden_dim=width, workspace_ptrs=None, launch_with_pdl=True,
        trigger_completion_at_end=False, fp32_acc=False, pattern_code=1, use_oneshot=None, allreduce_out=None, residual_in=residual,
        quant_out=None, scale_out=None, rms_gamma=gamma, rms_eps=1e-6, scale_factor=None, layout_code=None, **outputs,
    )  # fmt: skip
    flashinfer.comm.trtllm_allreduce_fusion(**{**call, **changes})
    return outputs


def test_the_fused_norm_is_the_ops():
    rng = np.random.default_rng(2)
    terms, residual, gamma = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 5, 64), (5, 64), (64,)))
    outputs = fused(terms, residual, gamma)
    wanted = dodona.trtllm_allreduce_fusion(terms, residual_in=residual, rms_gamma=gamma)
    for got, expected in zip(outputs.values(), wanted):
        assert np.array_equal(got.view(np.uint16), np.asarray(expected).view(np.uint16))
    flat = fused(terms, residual.reshape(-1), gamma, residual_out=(out := np.zeros(5 * 64, np.float16)))
    assert np.array_equal(out, outputs["residual_out"].reshape(-1)) and np.array_equal(flat["norm_out"].reshape(5, 64), outputs["norm_out"])


def test_other_patterns_and_the_terms_of_one_rank_are_refused():
    terms, residual, gamma = np.zeros((2, 3, 64), np.float16), np.zeros((3, 64), np.float16), np.ones(64, np.float16)
    with pytest.raises(compat.NotOffered, match="trtllm_allreduce_fusion: pattern_code is 3, offered is 1"):
        fused(terms, residual, gamma, pattern_code=3)
    with pytest.raises(ValueError, match=r"allreduce_in has shape \[3, 64\], expected \[2, 3, 64\]: the terms of all ranks"):
        fused(terms, residual, gamma, allreduce_in=terms[0])
    with pytest.raises(AssertionError, match="token_num is 3, expected more than the 4 ranks without use_oneshot"):
        fused(np.zeros((4, 3, 64), np.float16), residual, gamma, use_oneshot=False)
