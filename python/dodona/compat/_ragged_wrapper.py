"""FlashInfer's wrapper of prefill over ragged keys and values, and its functions of one request, on CPU tensors."""

from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from ._adapt import NotOffered, named, refuse
from ._attention import attend, given_back, masks_of, number, offsets, rooms, sight_of, sizes
from ._hooks.arrays import bare, dense, like
from ._hooks.checks import shape_of
from ._paged_wrappers import checked_layout, without_items

NAME = "BatchPrefillWithRaggedKVCacheWrapper"


class BatchPrefillWithRaggedKVCacheWrapper:
    """What plan is given is kept, and run makes requests of `dodona.batch_prefill_with_ragged_kv_cache` of it. Workspaces and graphs mean nothing here."""

    def __init__(
        self,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Optional[Any] = None,
        kv_indptr_buf: Optional[Any] = None,
        custom_mask_buf: Optional[Any] = None,
        mask_indptr_buf: Optional[Any] = None,
        backend: str = "auto",
        jit_args: Optional[list] = None,
        jit_kwargs: Optional[dict] = None,
    ) -> None:
        if kv_layout != "NHD":
            raise refuse(NAME, f"is {kv_layout}, expected NHD", argument="kv_layout")
        if jit_args is not None:
            raise refuse(NAME, "is given, offered is None", kind=NotOffered, code="unsupported", argument="jit_args")
        self._ends: Optional[tuple] = None

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any, **others: Any) -> None:
        """Nothing to reset."""

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def end_forward(self) -> None:
        """Nothing to free."""

    @named(NAME, method=True)
    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: Optional[int] = None,
        custom_mask: Optional[Any] = None,
        packed_custom_mask: Optional[Any] = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        **others: Any,
    ) -> None:
        """Lengths of the calls that follow. What the shapes of run's tensors say again is compared there."""
        given = dict(locals())
        without_items(NAME, others)
        sizes(NAME, num_kv_heads=num_kv_heads, num_qo_heads=num_qo_heads, head_dim_qk=head_dim_qk, head_dim_vo=head_dim_vo)
        q_ends, k_ends = offsets(NAME, "qo_indptr", qo_indptr), offsets(NAME, "kv_indptr", kv_indptr)
        if len(q_ends) != len(k_ends):
            raise refuse(NAME, f"has {len(k_ends)} elements, expected {len(q_ends)} as qo_indptr has", argument="kv_indptr", code="bad_shape")
        masks = masks_of(NAME, custom_mask, packed_custom_mask, q_ends, k_ends)
        self._sight, self._ends = sight_of(NAME, given, masks), (q_ends, k_ends)
        self._sizes = {"q": (num_qo_heads, head_dim_qk), "k": (num_kv_heads, head_dim_qk), "v": (num_kv_heads, head_dim_vo or head_dim_qk)}

    begin_forward = plan

    @named(NAME, method=True)
    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *args: Any,
        q_scale: Optional[float] = None,
        k_scale: Optional[float] = None,
        v_scale: Optional[float] = None,
        o_scale: Optional[float] = None,
        out: Optional[Any] = None,
        lse: Optional[Any] = None,
        return_lse: bool = False,
        enable_pdl: Optional[bool] = None,
        kv_cache_sf: Optional[Any] = None,
        **how: Any,
    ) -> Any:
        """The output, and with return_lse logarithms of the sums in base 2. They are written to `lse` in any case."""
        return self._run(q, k, v, (q_scale, k_scale, v_scale, o_scale), out, lse, return_lse, kv_cache_sf, how)

    def _run(self, q: Any, k: Any, v: Any, scales: tuple, out: Any, lse: Any, return_lse: bool, kv_cache_sf: Any, how: dict, sight: Any = None) -> Any:
        if self._ends is None:
            raise refuse(NAME, "run: plan comes first")
        for name, value in (("o_scale", scales[3]), ("kv_cache_sf", kv_cache_sf)):
            if value is not None:
                raise refuse(NAME, "is given, offered is None", kind=NotOffered, code="unsupported", argument=name)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if shape_of(NAME, name, tensor, 3)[1:] != self._sizes[name]:
                raise refuse(NAME, f"has shape {tuple(bare(tensor).shape)}, expected heads of {self._sizes[name]} as planned", argument=name, code="bad_shape")
        of_scores = number(NAME, "q_scale", scales[0]) * number(NAME, "k_scale", scales[1])
        rooms(NAME, q, self._sizes["v"][1], out, lse)
        made = attend(NAME, q, k, v, *self._ends, sight or self._sight, (of_scores, number(NAME, "v_scale", scales[2])), how=how)
        return given_back(NAME, made, out, lse, return_lse)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    @named(NAME, method=True)
    def forward(
        self, q: Any, k: Any, v: Any, causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, window_left: int = -1,
        logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
        *, return_lse: bool = False,
    ) -> Any:  # fmt: skip
        """run, whose arguments take the place of plan's."""
        sight = sight_of(NAME, dict(locals()), self._sight.masks if self._ends else None)
        return self._run(q, k, v, (None,) * 4, None, None, return_lse, None, {}, sight)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


@named("single_prefill_with_kv_cache")
def single_prefill_with_kv_cache(
    q: Any, k: Any, v: Any, scale_q: Optional[Any] = None, scale_k: Optional[Any] = None, scale_v: Optional[Any] = None, o_dtype: Optional[Any] = None,
    custom_mask: Optional[Any] = None, packed_custom_mask: Optional[Any] = None, causal: bool = False, kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
    logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, backend: str = "auto",
    return_lse: bool = False, *, kv_cache_sf: Optional[Any] = None, k_scale: Optional[Any] = None, v_scale: Optional[Any] = None, **how: Any,
) -> Any:  # fmt: skip
    """One request of the ragged kernel."""
    name = "single_prefill_with_kv_cache"
    given = dict(locals())
    sizes = [shape_of(name, argument, value, 3) for argument, value in (("q", q), ("k", k), ("v", v))]
    for argument, value in (("scale_q", scale_q), ("scale_k", scale_k), ("scale_v", scale_v), ("kv_cache_sf", kv_cache_sf)):
        if value is not None:
            raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument=argument)
    if o_dtype is not None and o_dtype != bare(q).dtype:
        raise refuse(name, f"is {o_dtype}, offered is that of q", kind=NotOffered, code="unsupported", argument="o_dtype")
    if checked_layout(name, kv_layout):
        k, v = (like(part, dense(bare(part).swapaxes(0, 1))) for part in (k, v))
        sizes[1:] = [tuple(bare(part).shape) for part in (k, v)]
    bounds = [np.array([0, size[0]]) for size in sizes[:2]]
    sight = sight_of(name, given, masks_of(name, custom_mask, packed_custom_mask, *bounds))
    made = attend(name, q, k, v, *bounds, sight, (number(name, "k_scale", k_scale), number(name, "v_scale", v_scale)), how=how)
    return given_back(name, made, None, None, return_lse)


@named("single_decode_with_kv_cache")
def single_decode_with_kv_cache(
    q: Any, k: Any, v: Any, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE", use_tensor_cores: bool = False, q_scale: Optional[float] = None,
    k_scale: Optional[float] = None, v_scale: Optional[float] = None, window_left: int = -1, logits_soft_cap: Optional[float] = None,
    sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, return_lse: bool = False, **how: Any,
) -> Any:  # fmt: skip
    """One query [N, D] of one request, the last token's."""
    name = "single_decode_with_kv_cache"
    shape_of(name, "q", q, 2)
    of_scores = number(name, "q_scale", q_scale) * number(name, "k_scale", k_scale)
    made = single_prefill_with_kv_cache(
        like(q, bare(q)[None]), k, v, causal=True, kv_layout=kv_layout, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
        logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta, return_lse=return_lse, k_scale=of_scores, v_scale=v_scale, **how,
    )  # fmt: skip
    out, *lse = made if return_lse else (made,)
    return (like(out, bare(out)[0]), lse[0][0]) if return_lse else like(out, bare(out)[0])
