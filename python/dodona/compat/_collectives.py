"""Collectives of upstream's whose ranks are all in this process: a rank's buffers are addresses, and nobody waits for another."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

import numpy as np

from .._arrays import Typed, as_dtype, dtype_name, is_torch
from .._library import Error
from .._ops import function
from ._adapt import NotOffered, as_refused, refuse
from ._hooks.arrays import bare

WORLD_SIZES = (2, 4, 6, 8)
META_BYTES = 2 * 36 * 8 * 4 + 36 * 8 * 4  # of upstream's signals


@dataclass
class _Group:
    """What a rank knows of its group."""

    rank: int
    world_size: int
    full_nvlink: bool
    buffers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # a rank's own address -> those of all ranks


_groups: dict[int, _Group] = {}
_handles = itertools.count(1)


def _group(name: str, fa: int) -> _Group:
    if fa not in _groups:
        raise refuse(name, f"is {fa!r}, expected what init_custom_ar gave", argument="fa")
    return _groups[fa]


def _address(value: Any) -> int:
    return value.data_ptr() if is_torch(value) else bare(value).ctypes.data


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if is_torch(value) else bare(value).nbytes


def _type(value: Any) -> str:
    if isinstance(value, Typed):
        return value.dtype
    return "bf16" if value.dtype == np.uint16 else dtype_name(value.dtype)


def init_custom_ar(ipc_tensors: Sequence[int], rank_data: Any, rank: int, full_nvlink: bool) -> int:
    """A rank's handle. `ipc_tensors` are as many addresses as there are ranks; nothing is written there."""
    if len(ipc_tensors) not in WORLD_SIZES:
        raise refuse("init_custom_ar", f"names {len(ipc_tensors)} ranks, expected 2, 4, 6 or 8", argument="ipc_tensors")
    if not 0 <= rank < len(ipc_tensors):
        raise refuse("init_custom_ar", f"is {rank}, expected 0 to {len(ipc_tensors) - 1}", argument="rank")
    fa = next(_handles)
    _groups[fa] = _Group(rank, len(ipc_tensors), bool(full_nvlink))
    return fa


def dispose(fa: int) -> None:
    """Forgets the handle."""
    _group("dispose", fa)
    del _groups[fa]


def meta_size() -> int:
    """Bytes of upstream's signals."""
    return META_BYTES


def register_buffer(fa: int, fake_ipc_ptrs: Sequence[int]) -> None:
    """Addresses of one buffer of every rank; this rank's own is what all_reduce knows it by."""
    group = _group("register_buffer", fa)
    if len(fake_ipc_ptrs) != group.world_size:
        raise refuse("register_buffer", f"are {len(fake_ipc_ptrs)}, expected {group.world_size}, one of each rank", argument="fake_ipc_ptrs")
    group.buffers[fake_ipc_ptrs[group.rank]] = tuple(fake_ipc_ptrs)


def all_reduce(fa: int, inp: Any, out: Any, reg_buffer: int, reg_buffer_sz_bytes: int) -> None:
    """out = the sum of what the registered buffers of all ranks hold: `inp` is one of them, or is copied to `reg_buffer` first. The others'
    buffers are read as they are: in one process the caller fills them all before the first rank's call."""
    group, size = _group("all_reduce", fa), _bytes(inp)
    if reg_buffer:
        if size > reg_buffer_sz_bytes:
            raise refuse("all_reduce", f"has {size} bytes, expected at most the {reg_buffer_sz_bytes} of reg_buffer", argument="inp")
        ctypes.memmove(reg_buffer, _address(inp), size)
    own = reg_buffer or _address(inp)
    if own not in group.buffers:
        raise refuse("all_reduce", "is in no registered buffer, expected one that register_buffer was told of", argument="inp")
    if _type(out) != _type(inp) or _bytes(out) != size:
        raise refuse("all_reduce", f"holds {_bytes(out)} bytes of {_type(out)}, expected {size} of {_type(inp)}, as inp", argument="out")
    terms = np.stack([np.frombuffer((ctypes.c_uint8 * size).from_address(at), np.uint8) for at in group.buffers[own]])
    raw = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32}.get(_type(inp), np.uint8)
    try:
        sums = function("all_reduce")(as_dtype(terms.view(raw).reshape(group.world_size, 1, -1), _type(inp)), full_nvlink=group.full_nvlink)
    except Error as error:
        raise as_refused(error, "all_reduce") from None
    ctypes.memmove(_address(out), np.ascontiguousarray(sums).ctypes.data, size)


# Megabytes that go one way, up to which upstream takes one shot. Source: flashinfer `_use_oneshot_heuristics`.
ONESHOT_MEGABYTES = {2: 512, 4: 64, 8: 42}
RESIDUAL_RMS_NORM = 1


def trtllm_allreduce_fusion(
    allreduce_in: Any,
    world_size: int,
    world_rank: int,
    token_num: int,
    hidden_dim: int,
    workspace_ptrs: Any,
    launch_with_pdl: bool,
    trigger_completion_at_end: bool,
    fp32_acc: bool,
    pattern_code: int,
    use_oneshot: Optional[bool],
    allreduce_out: Any,
    residual_in: Any,
    residual_out: Any,
    norm_out: Any,
    quant_out: Any,
    scale_out: Any,
    rms_gamma: Any,
    rms_eps: Optional[float],
    scale_factor: Any,
    layout_code: Any,
    metadata: Optional[dict] = None,
) -> None:
    """`allreduce_in` holds the terms of all ranks, [world_size, token_num, hidden_dim]: all are in this process. Offered is the pattern
    kARResidualRMSNorm; workspaces and launches mean nothing here."""
    name = "trtllm_allreduce_fusion"
    if pattern_code != RESIDUAL_RMS_NORM:
        raise refuse(name, f"is {pattern_code}, offered is 1, kARResidualRMSNorm", kind=NotOffered, code="unsupported", argument="pattern_code")
    shape = (world_size, token_num, hidden_dim)
    given = tuple(bare(allreduce_in).shape)
    if given != shape:
        raise refuse(name, f"has shape {list(given)}, expected {list(shape)}: the terms of all ranks", argument="allreduce_in")
    if use_oneshot is None:
        use_oneshot = _bytes(allreduce_in) * 2 / 2**20 <= ONESHOT_MEGABYTES.get(world_size, 0)
    if not use_oneshot and token_num <= world_size:
        raise refuse(name, f"is {token_num}, expected more than the {world_size} ranks without use_oneshot", argument="token_num")
    outputs = {"residual_out": residual_out, "norm_out": norm_out}
    matrix = {key: bare(value).reshape(shape[1:]) for key, value in {**outputs, "residual_in": residual_in}.items()}
    as_given = {"residual_out": residual_out, "norm_out": norm_out, "residual_in": residual_in}
    matrix = {key: as_dtype(value, as_given[key].dtype) if isinstance(as_given[key], Typed) else value for key, value in matrix.items()}
    try:
        function(name)(
            allreduce_in,
            fp32_acc=bool(fp32_acc),
            use_oneshot=bool(use_oneshot),
            rms_gamma=rms_gamma,
            rms_eps=1e-6 if rms_eps is None else rms_eps,
            **matrix,
        )
    except Error as error:
        raise as_refused(error, name) from None
