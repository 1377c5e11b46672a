"""FlashInfer's wrapper of MLA over pages, on CPU tensors."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from .._library import Error
from .._ops import function
from ._adapt import NotOffered, as_refused, refuse
from ._compositions import _quantized as quantized
from ._hooks.arrays import as_f32, bare, dense, joined, like, type_of, with_zeros_behind
from ._hooks.attention import FEWER, LATENT
from ._hooks.checks import of_shape, shape_of, writable
from ._layouts import as_given

NAME = "BatchMLAPagedAttentionWrapper"


# The cutlass backend takes no scale: its kernel has that of DeepSeek's heads before absorption, of 128 and 64 numbers.
CUTLASS_SCALE, CUTLASS_HEADS = (128 + 64) ** -0.5, 128


def _scaled_output(o_scale: Any, q_nope: Any, out: Any) -> float:
    """What codes of 8 bits are multiplied with."""
    if isinstance(o_scale, bool) or not isinstance(o_scale, (int, float)) or not math.isfinite(o_scale) or o_scale <= 0:
        raise refuse(NAME, f"is {o_scale!r}: o_scale must be a finite positive value", argument="o_scale")
    if out is None:
        raise refuse(NAME, "is None: out tensor must be provided when o_scale is used for FP8 output", argument="out", code="missing_argument")
    if type_of(out) not in ("f8_e4m3", "f8_e5m2"):
        raise refuse(NAME, f"is {type_of(out)}: out must be an FP8 tensor when o_scale is provided", argument="out", code="bad_dtype")
    of_shape(NAME, "out", out, tuple(bare(q_nope).shape))
    writable(NAME, "out", out)
    return float(o_scale)


def _cutlass(q_nope: Any, q_pe: Any, ckv_cache: Any, kpe_cache: Any, out: Any, kv_len: Any, page_table: Any, o_scale: Any, others: dict) -> Any:
    """One query a request, whose pages run's own arguments say: cutlass_mla_decode. Codes of 8 bits are made of fp32 outputs."""
    for argument, value in others.items():
        if value is not None:
            raise refuse(NAME, "is given, offered is none with the cutlass backend", kind=NotOffered, code="unsupported", argument=argument)
    for argument, value in (("kv_len", kv_len), ("page_table", page_table)):
        if value is None:
            raise refuse(NAME, "is missing, expected with the cutlass backend", argument=argument, code="missing_argument")
    if (heads := shape_of(NAME, "q_nope", q_nope, 3)[1]) != CUTLASS_HEADS:
        raise refuse(NAME, f"has {heads} heads, expected {CUTLASS_HEADS} with the cutlass backend", argument="q_nope", code="bad_shape")
    for argument, value in (("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache)):
        shape_of(NAME, argument, value, 3)
    rows = like(ckv_cache, joined([bare(ckv_cache), bare(kpe_cache)], -1))
    by = None if o_scale is None else _scaled_output(o_scale, q_nope, out)
    if by is not None:
        q_nope, q_pe, rows = (as_f32(bare(part)) for part in (q_nope, q_pe, rows))
    given = {} if out is None or by is not None else {"out": out}
    try:
        made = function("cutlass_mla_decode")(q_nope, q_pe, rows, kv_len, page_table, sm_scale=CUTLASS_SCALE, **given)
        if by is None:
            return made
        heads = bare(made).shape[1]  # codes are made row by row
        flat = bare(out).reshape(-1, bare(out).shape[-1]) if bare(out).shape[0] * heads else bare(out)
        quantized(NAME, like(out, flat), bare(made).reshape(-1, bare(made).shape[-1]), as_given(np.array([by], np.float32), bare(made)))
        return out
    except Error as error:
        raise as_refused(error, NAME) from None


KINDS = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "float8_e4m3fn": "f8_e4m3"}
ROTATED = 64  # numbers of the part beside the latent row; where there is none, zeros add nothing


def _kind(planned: Any) -> str:
    """Our name of a type as torch or NumPy writes it; what else it may be says nothing."""
    return KINDS.get(str(planned).rpartition(".")[2].strip("'>"), "")


def _as_planned(given: dict, kinds: dict) -> None:
    for argument, value in given.items():
        planned = kinds["q" if argument.startswith("q") else "kv"]
        if planned and type_of(value) not in (planned, "u8"):
            text = f"{argument}.dtype={type_of(value)} does not match the planned {planned}"
            raise refuse(NAME, text, argument=argument, code="bad_dtype")


def _scales(ckv_scale: Any, ckv_scale_arr: Any, kpe_scale: Any, ckv_cache: Any) -> None:
    """Of caches of 8 bits: one number for all latent rows or one for each 128 of a row, and one of what is rotated."""
    if (ckv_scale is None) == (ckv_scale_arr is None):
        raise refuse(NAME, "Exactly one of ckv_scale or ckv_scale_arr is required when kv_data_type is FP8", argument="ckv_scale", code="missing_argument")
    wanted = (*tuple(bare(ckv_cache).shape)[:2], bare(ckv_cache).shape[2] // 128)
    if ckv_scale_arr is not None and tuple(getattr(bare(ckv_scale_arr), "shape", ())) != wanted:
        found = list(getattr(bare(ckv_scale_arr), "shape", ()))
        raise refuse(NAME, f"Invalid shape of ckv_scale_arr: {found}, expected {list(wanted)}", argument="ckv_scale_arr", code="bad_shape")
    if kpe_scale is None:
        raise refuse(NAME, "kpe_scale is required when kv_data_type is FP8", argument="kpe_scale", code="missing_argument")


class BatchMLAPagedAttentionWrapper:
    """What plan is given is kept and handed to `dodona.batch_mla_paged_attention` by run. Workspaces and graphs mean nothing here."""

    def __init__(
        self,
        float_workspace_buffer: Any,
        use_cuda_graph: bool = False,
        qo_indptr: Optional[Any] = None,
        kv_indptr: Optional[Any] = None,
        kv_indices: Optional[Any] = None,
        kv_len_arr: Optional[Any] = None,
        backend: str = "auto",
    ) -> None:
        if backend not in ("auto", "fa2", "fa3", "cutlass"):
            raise refuse(NAME, f"is {backend!r}, expected auto, fa2, fa3 or cutlass", argument="backend")
        self._backend = backend
        self._plan: Optional[dict] = None

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_len_arr: Any,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: Any,
        kv_data_type: Any,
        use_profiler: bool = False,
    ) -> None:
        """Lengths and pages of the calls that follow. What the shapes of run's tensors say again is compared there."""
        self._plan = {
            "qo_indptr": qo_indptr,
            "kv_indptr": kv_indptr[: qo_indptr.shape[0]],  # what lies behind is not looked at
            "kv_indices": kv_indices,
            "kv_len_arr": kv_len_arr,
            "causal": bool(causal),
            "sm_scale": float(sm_scale),
        }
        self._kinds = {"q": _kind(q_data_type), "kv": _kind(kv_data_type)}
        if self._kinds["kv"] == "f8_e4m3" and self._kinds["q"] == "f16":
            self._plan = None
            text = "is float16: FP8 kv_data_type for MLA currently only supports q_data_type=torch.bfloat16"
            raise refuse(NAME, text, argument="q_data_type", code="bad_dtype")
        self._sizes = {"q_nope": (num_heads, head_dim_ckv), "q_pe": (num_heads, head_dim_kpe)}
        self._page_size = page_size

    def run(
        self,
        q_nope: Any,
        q_pe: Any,
        ckv_cache: Any,
        kpe_cache: Any,
        out: Optional[Any] = None,
        lse: Optional[Any] = None,
        return_lse: bool = False,
        profiler_buffer: Optional[Any] = None,
        kv_len: Optional[Any] = None,
        page_table: Optional[Any] = None,
        return_lse_base_on_e: bool = False,
        o_scale: Optional[float] = None,
        *,
        ckv_scale: Optional[float] = None,
        ckv_scale_arr: Optional[Any] = None,
        kpe_scale: Optional[float] = None,
    ) -> Any:
        """The output, and with return_lse logarithms of the sums, base 2 unless return_lse_base_on_e. They are written to `lse` in any case."""
        if self._backend == "cutlass":
            others = {"return_lse": return_lse or None, "ckv_scale": ckv_scale, "ckv_scale_arr": ckv_scale_arr, "kpe_scale": kpe_scale}
            return _cutlass(q_nope, q_pe, ckv_cache, kpe_cache, out, kv_len, page_table, o_scale, others)
        if o_scale is not None:
            raise refuse(NAME, f"is {o_scale}, expected none: o_scale is only supported with the cutlass backend", argument="o_scale")
        if self._plan is None:
            raise refuse(NAME, "run: plan comes first")
        for name, tensor in (("q_nope", q_nope), ("q_pe", q_pe)):
            if tuple(bare(tensor).shape[1:]) != self._sizes[name]:
                raise refuse(NAME, f"has shape {tuple(bare(tensor).shape)}, expected heads of {self._sizes[name]} as planned", argument=name, code="bad_shape")
        if (page := bare(ckv_cache).shape[1]) != self._page_size:
            raise refuse(NAME, f"has pages of {page}, expected {self._page_size} as planned", argument="ckv_cache", code="bad_shape")
        _as_planned({"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv_cache, "kpe_cache": kpe_cache}, self._kinds)
        if self._kinds["kv"] == "f8_e4m3":
            _scales(ckv_scale, ckv_scale_arr, kpe_scale, ckv_cache)
        if tuple(bare(q_pe).shape)[-1] == tuple(bare(kpe_cache).shape)[-1] == 0:
            q_pe, kpe_cache = (like(part, with_zeros_behind(bare(part), ROTATED)) for part in (q_pe, kpe_cache))
        room = out
        if fewer := tuple(bare(q_nope).shape)[-1] == tuple(bare(ckv_cache).shape)[-1] == FEWER:  # zeros behind add nothing
            q_nope, ckv_cache = (like(part, with_zeros_behind(bare(part), LATENT - FEWER)) for part in (q_nope, ckv_cache))
            if out is not None:
                of_shape(NAME, "out", out, (*tuple(bare(q_nope).shape)[:-1], FEWER))
                writable(NAME, "out", out)
                out = like(out, with_zeros_behind(bare(out), LATENT - FEWER))
        try:
            given = {"out": out, "lse": lse, "ckv_scale_arr": ckv_scale_arr}
            made = function("batch_mla_paged_attention")(
                q_nope=q_nope,
                q_pe=q_pe,
                ckv_cache=ckv_cache,
                kpe_cache=kpe_cache,
                **self._plan,
                **{name: tensor for name, tensor in given.items() if tensor is not None},
                return_lse=return_lse or lse is not None,
                return_lse_base_on_e=return_lse_base_on_e,
                ckv_scale=ckv_scale or 0.0,
                kpe_scale=kpe_scale or 0.0,
            )
        except Error as error:
            raise as_refused(error, NAME) from None
        made = made if isinstance(made, tuple) else (made,)
        if fewer:
            narrow = dense(bare(made[0])[..., :FEWER])
            if room is not None:
                bare(room)[...] = narrow
            made = (like(made[0], narrow) if room is None else room, *made[1:])
        return made if return_lse else made[0]
