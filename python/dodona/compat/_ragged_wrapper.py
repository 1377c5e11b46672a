"""FlashInfer's wrapper of prefill over ragged keys and values, on CPU tensors."""

from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from .._library import Error
from .._ops import function
from ._adapt import NotOffered, as_refused, refuse
from ._hooks.arrays import bare, dense, like
from ._layouts import as_given

NAME = "BatchPrefillWithRaggedKVCacheWrapper"


class BatchPrefillWithRaggedKVCacheWrapper:
    """What plan is given is kept and handed to `dodona.batch_prefill_with_ragged_kv_cache` by run. Workspaces and graphs mean nothing here."""

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
        self._plan: Optional[dict] = None

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
        **others: Any,
    ) -> None:
        """Lengths of the calls that follow. What the shapes of run's tensors say again is compared there."""
        taken = {"custom_mask": None, "packed_custom_mask": None, "pos_encoding_mode": "NONE", "use_fp16_qk_reduction": False}
        given = {name: value for name, value in locals().items() if name in taken}
        for name, value in given.items():
            if value != taken[name] if isinstance(taken[name], (str, int)) else value is not None:
                raise refuse(NAME, f"is given, expected {taken[name]}", argument=name)
        self._plan = {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "causal": bool(causal), "sm_scale": float(sm_scale or 0.0)}
        self._plan |= {"window_left": window_left, "logits_soft_cap": float(logits_soft_cap or 0.0)}
        self._sizes = {"q": (num_qo_heads, head_dim_qk), "k": (num_kv_heads, head_dim_qk), "v": (num_kv_heads, head_dim_vo or head_dim_qk)}

    begin_forward = plan

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
    ) -> Any:
        """The output, and with return_lse logarithms of the sums in base 2. They are written to `lse` in any case."""
        if self._plan is None:
            raise refuse(NAME, "run: plan comes first")
        for name, value in (("q_scale", q_scale), ("k_scale", k_scale), ("v_scale", v_scale), ("o_scale", o_scale)):
            if value is not None:
                raise refuse(NAME, f"is {value}, expected none", argument=name)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if tuple(tensor.shape[1:]) != self._sizes[name]:
                raise refuse(NAME, f"has shape {tuple(tensor.shape)}, expected heads of {self._sizes[name]} as planned", argument=name, code="bad_shape")
        given = {"out": out, "lse": lse}
        try:
            made = function("batch_prefill_with_ragged_kv_cache")(
                q=q, k=k, v=v, **self._plan, **{name: tensor for name, tensor in given.items() if tensor is not None}, return_lse=return_lse or lse is not None
            )
        except Error as error:
            raise as_refused(error, NAME) from None
        return made if return_lse else made[0]

    run_return_lse = functools.partialmethod(run, return_lse=True)


def single_prefill_with_kv_cache(
    q: Any, k: Any, v: Any, scale_q: Optional[Any] = None, scale_k: Optional[Any] = None, scale_v: Optional[Any] = None, o_dtype: Optional[Any] = None,
    custom_mask: Optional[Any] = None, packed_custom_mask: Optional[Any] = None, causal: bool = False, kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
    logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, backend: str = "auto",
    return_lse: bool = False, *, kv_cache_sf: Optional[Any] = None, k_scale: Optional[Any] = None, v_scale: Optional[Any] = None,
) -> Any:  # fmt: skip
    """One request of the ragged kernel."""
    name = "single_prefill_with_kv_cache"
    for argument, value in (("q", q), ("k", k), ("v", v)):
        if getattr(bare(value), "ndim", None) != 3:
            found = f"has shape {list(bare(value).shape)}" if hasattr(bare(value), "shape") else f"is {value!r}"
            raise refuse(name, f"{found}, expected three dimensions", argument=argument, code="bad_shape")
    none = {"scale_q": scale_q, "scale_k": scale_k, "scale_v": scale_v, "kv_cache_sf": kv_cache_sf, "k_scale": k_scale, "v_scale": v_scale}
    for argument, value in {**none, "rope_scale": rope_scale, "rope_theta": rope_theta}.items():
        if value is not None:
            raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument=argument)
    if o_dtype is not None and o_dtype != bare(q).dtype:
        raise refuse(name, f"is {o_dtype}, offered is that of q", kind=NotOffered, code="unsupported", argument="o_dtype")
    if kv_layout not in ("NHD", "HND"):
        raise refuse(name, f"is {kv_layout!r}, expected NHD or HND", argument="kv_layout")
    if kv_layout == "HND":
        k, v = (like(part, dense(bare(part).swapaxes(0, 1))) for part in (k, v))
    heads = [bare(part).shape[1:] for part in (q, k, v)]
    bounds = [as_given(np.array([0, bare(part).shape[0]], np.int32), bare(q)) for part in (q, k)]
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(None)
    try:
        wrapper.plan(
            *bounds, heads[0][0], heads[1][0], heads[0][1], heads[2][1], custom_mask, packed_custom_mask, causal, pos_encoding_mode,
            use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale,
        )  # fmt: skip
        return wrapper.run(q, k, v, return_lse=return_lse)
    except Error as error:
        raise as_refused(error, name) from None


def single_decode_with_kv_cache(
    q: Any, k: Any, v: Any, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE", use_tensor_cores: bool = False, q_scale: Optional[float] = None,
    k_scale: Optional[float] = None, v_scale: Optional[float] = None, window_left: int = -1, logits_soft_cap: Optional[float] = None,
    sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """One query [N, D] of one request, the last token's."""
    name = "single_decode_with_kv_cache"
    if getattr(bare(q), "ndim", None) != 2:
        found = f"has shape {list(bare(q).shape)}" if hasattr(bare(q), "shape") else f"is {q!r}"
        raise refuse(name, f"{found}, expected two dimensions", argument="q", code="bad_shape")
    if q_scale is not None:
        raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="q_scale")
    try:
        made = single_prefill_with_kv_cache(
            like(q, bare(q)[None]), k, v, causal=True, kv_layout=kv_layout, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
            logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta, return_lse=return_lse, k_scale=k_scale, v_scale=v_scale,
        )  # fmt: skip
    except Error as error:
        raise as_refused(error, name) from None
    out, *lse = made if return_lse else (made,)
    return (like(out, bare(out)[0]), lse[0][0]) if return_lse else like(out, bare(out)[0])
