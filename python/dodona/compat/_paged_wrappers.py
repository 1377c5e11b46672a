"""FlashInfer's wrappers of attention over pages: what plan is given is kept, and run makes requests of the ragged kernel of it. Workspaces and graphs
mean nothing here."""

from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from .._ops import function
from ._adapt import NotOffered, named, refuse
from ._attention import (
    Sight, attend, given_back, halves, integer, kind_of, masks_of, number, offsets, rooms, rows_of_pages, sight_of, sizes, tables_of, whole_numbers,
)  # fmt: skip
from ._hooks.arrays import bare, type_of
from ._hooks.checks import shape_of

# What says how kernels run.
NO_MATTER = frozenset(
    {
        "non_blocking", "fixed_split_size", "disable_split_kv", "seq_lens", "seq_lens_q", "block_tables", "max_token_per_sequence", "max_sequence_kv",
        "use_profiler", "global_override_indptr_cpu",
    }  # fmt: skip
)
OF_ITEMS = ("prefix_len_ptr", "token_pos_in_items_ptr", "max_item_len_ptr")


def without_items(name: str, others: dict) -> None:
    """Keywords behind those that mean something here."""
    for argument in OF_ITEMS:
        if others.pop(argument, None) is not None:
            raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument=argument)
    others.pop("token_pos_in_items_len", None)
    for argument in others:
        if argument not in NO_MATTER:
            raise TypeError(f"{name}.plan() got an unexpected keyword argument {argument!r}")


def checked_layout(name: str, kv_layout: Any) -> bool:
    """Whether heads come before tokens."""
    if not isinstance(kv_layout, str) or kv_layout not in ("NHD", "HND"):
        raise refuse(name, f"is {kv_layout!r}, expected NHD or HND", argument="kv_layout")
    return kv_layout == "HND"


class _Paged:
    """Requests whose keys and values lie in pages."""

    NAME = ""

    def _begin(self, kv_layout: str) -> None:
        self._heads_first = checked_layout(self.NAME, kv_layout)
        self._kv_layout = kv_layout
        self._planned: Optional[dict] = None

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any, **others: Any) -> None:
        """Nothing to reset."""

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def end_forward(self) -> None:
        """Nothing to free."""

    def _keep(self, q_ends: np.ndarray, tables: list, lengths: np.ndarray, sight: Sight, heads: tuple, widths: tuple, page_size: int, kinds: tuple) -> None:
        if len(q_ends) != len(tables) + 1:
            raise refuse(self.NAME, f"has {len(q_ends)} elements, expected {len(tables) + 1}, one for each request and the end", argument="qo_indptr", code="bad_shape")
        self._planned = dict(q_ends=q_ends, tables=tables, lengths=lengths, sight=sight, heads=heads, widths=widths, page_size=page_size, kinds=kinds)

    def _run(
        self, q: Any, paged_kv_cache: Any, scales: tuple, out: Any, lse: Any, return_lse: bool, window_left: Optional[int] = None, sinks: Any = None,
        queries: Optional[int] = None, sight: Optional[Sight] = None, how: dict = {},
    ) -> Any:  # fmt: skip
        name, plan = self.NAME, self._planned
        if plan is None:
            raise refuse(name, "run: plan comes first")
        keys, values = halves(name, paged_kv_cache, self._heads_first)
        (tokens, *sizes), q_ends = shape_of(name, "q", q, 3), plan["q_ends"]
        if queries is not None and queries > 1:
            q_ends = q_ends * queries
        if tuple(sizes) != (plan["heads"][0], plan["widths"][0]) or tokens != q_ends[-1]:
            wanted = [int(q_ends[-1]), plan["heads"][0], plan["widths"][0]]
            raise refuse(name, f"has shape {[tokens, *sizes]}, expected {wanted} as planned", argument="q", code="bad_shape")
        for argument, value, kind in (("q", q, plan["kinds"][0]), ("paged_kv_cache", keys, plan["kinds"][1]), ("paged_kv_cache", values, plan["kinds"][1])):
            if type_of(value) != kind:
                planned = "q_data_type" if argument == "q" else "kv_data_type"
                raise refuse(name, f"has dtype {type_of(value)}, expected {kind}, the {planned} of plan", argument=argument, code="bad_dtype")
        for part, width in ((keys, plan["widths"][0]), (values, plan["widths"][1])):
            if tuple(bare(part).shape[1:]) != (plan["page_size"], plan["heads"][1], width):
                wanted = [plan["page_size"], plan["heads"][1], width]
                raise refuse(name, f"has pages of {list(bare(part).shape[1:])}, expected {wanted} as planned", argument="paged_kv_cache", code="bad_shape")
        rooms(name, q, plan["widths"][1], out, lse)
        sight = sight or plan["sight"]
        if window_left is not None and integer(name, "window_left", window_left, -(1 << 31)) >= 0:
            sight = Sight(**{**vars(sight), "window_left": int(window_left)})
        if queries is not None and queries > 1:
            sight = Sight(**{**vars(sight), "causal": True})
        rows = [rows_of_pages(name, part, plan["tables"], plan["lengths"]) for part in (keys, values)]
        ends = np.concatenate([[0], np.cumsum(plan["lengths"])])
        made = attend(name, q, *rows, q_ends, ends, sight, scales, sinks, how)
        return given_back(name, made, out, lse, return_lse)

    def _scales(self, q_scale: Any, k_scale: Any, v_scale: Any) -> tuple[float, float]:
        of_scores = number(self.NAME, "q_scale", q_scale) * number(self.NAME, "k_scale", k_scale)
        return of_scores, number(self.NAME, "v_scale", v_scale)


class BatchPrefillWithPagedKVCacheWrapper(_Paged):
    """Several queries a request."""

    NAME = "BatchPrefillWithPagedKVCacheWrapper"

    def __init__(
        self, float_workspace_buffer: Any, kv_layout: str = "NHD", use_cuda_graph: bool = False, qo_indptr_buf: Optional[Any] = None,
        paged_kv_indptr_buf: Optional[Any] = None, paged_kv_indices_buf: Optional[Any] = None, paged_kv_last_page_len_buf: Optional[Any] = None,
        custom_mask_buf: Optional[Any] = None, mask_indptr_buf: Optional[Any] = None, backend: str = "auto", jit_args: Optional[list] = None,
        jit_kwargs: Optional[dict] = None,
    ) -> None:  # fmt: skip
        if jit_args is not None:
            raise refuse(self.NAME, "is given, offered is None", kind=NotOffered, code="unsupported", argument="jit_args")
        self._begin(kv_layout)

    @named(NAME, method=True)
    def plan(
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any, num_qo_heads: int, num_kv_heads: int,
        head_dim_qk: int, page_size: int, head_dim_vo: Optional[int] = None, custom_mask: Optional[Any] = None, packed_custom_mask: Optional[Any] = None,
        causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None,
        window_left: int = -1, logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
        q_data_type: Any = "float16", kv_data_type: Any = None, *, o_data_type: Any = None, **others: Any,
    ) -> None:  # fmt: skip
        given = dict(locals())
        without_items(self.NAME, others)
        sizes(self.NAME, page_size, num_kv_heads=num_kv_heads, num_qo_heads=num_qo_heads, head_dim_qk=head_dim_qk, head_dim_vo=head_dim_vo)
        kind = kind_of(self.NAME, "q_data_type", q_data_type, "f16")
        _same_output(self.NAME, o_data_type, kind)
        q_ends = offsets(self.NAME, "qo_indptr", qo_indptr)
        tables, lengths = tables_of(self.NAME, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        masks = None
        if custom_mask is not None or packed_custom_mask is not None:
            masks = masks_of(self.NAME, custom_mask, packed_custom_mask, q_ends, np.concatenate([[0], np.cumsum(lengths)]))
        kinds = (kind, kind_of(self.NAME, "kv_data_type", kv_data_type, kind))
        self._keep(q_ends, tables, lengths, sight_of(self.NAME, given, masks), (num_qo_heads, num_kv_heads), (head_dim_qk, head_dim_vo or head_dim_qk), page_size, kinds)

    begin_forward = plan

    @named(NAME, method=True)
    def run(
        self, q: Any, paged_kv_cache: Any, *args: Any, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Optional[Any] = None,
        lse: Optional[Any] = None, return_lse: bool = False, enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
        sinks: Optional[Any] = None, kv_cache_sf: Optional[Any] = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
        use_fp16_softmax: Optional[bool] = None, uses_spcompress: Optional[bool] = None, **how: Any,
    ) -> Any:  # fmt: skip
        """The output, and with return_lse logarithms of the sums in base 2."""
        if args:
            raise refuse(self.NAME, f"run: takes q and paged_kv_cache by position, and got {len(args)} more, which kernels of the caller's would take")
        _none(self.NAME, kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, uses_spcompress=uses_spcompress)
        return self._run(q, paged_kv_cache, self._scales(q_scale, k_scale, v_scale), out, lse, return_lse, window_left, sinks, how=how)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    @named(NAME, method=True)
    def forward(
        self, q: Any, paged_kv_cache: Any, causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, k_scale: Any = None,
        v_scale: Any = None, window_left: int = -1, logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
        rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, *, return_lse: bool = False,
    ) -> Any:  # fmt: skip
        """run, whose arguments take the place of plan's."""
        masks = self._planned["sight"].masks if self._planned else None
        sight = sight_of(self.NAME, dict(locals()), masks)
        return self._run(q, paged_kv_cache, self._scales(None, k_scale, v_scale), None, None, return_lse, sight=sight)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


def _same_output(name: str, asked: Any, kind: str) -> None:
    if asked is not None and kind_of(name, "o_data_type", asked, kind) != kind:
        raise refuse(name, f"is {asked}, offered is q_data_type", kind=NotOffered, code="unsupported", argument="o_data_type")


def _none(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None and value is not False:
            raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument=argument)


class BatchDecodeWithPagedKVCacheWrapper(_Paged):
    """One query a request, or as many as run says."""

    NAME = "BatchDecodeWithPagedKVCacheWrapper"

    def __init__(
        self, float_workspace_buffer: Any, kv_layout: str = "NHD", use_cuda_graph: bool = False, use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Optional[Any] = None, paged_kv_indices_buffer: Optional[Any] = None, paged_kv_last_page_len_buffer: Optional[Any] = None,
        backend: str = "auto", jit_args: Optional[list] = None,
    ) -> None:  # fmt: skip
        if jit_args is not None:
            raise refuse(self.NAME, "is given, offered is None", kind=NotOffered, code="unsupported", argument="jit_args")
        self._begin(kv_layout)
        self._use_tensor_cores = bool(use_tensor_cores)

    @property
    def use_tensor_cores(self) -> bool:
        return self._use_tensor_cores

    @named(NAME, method=True)
    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
        pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: Optional[float] = None, q_data_type: Any = "float16",
        kv_data_type: Any = None, data_type: Any = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, *, o_data_type: Any = None, q_len_per_req: int = 1, **others: Any,
    ) -> None:  # fmt: skip
        given = dict(locals())
        without_items(self.NAME, others)
        sizes(self.NAME, page_size, num_kv_heads=num_kv_heads, num_qo_heads=num_qo_heads, head_dim=head_dim)
        integer(self.NAME, "q_len_per_req", q_len_per_req, 1)
        kind = kind_of(self.NAME, "q_data_type", data_type if q_data_type is None else q_data_type, "f16")
        _same_output(self.NAME, o_data_type, kind)
        tables, lengths = tables_of(self.NAME, indptr, indices, last_page_len, page_size)
        kinds = (kind, kind_of(self.NAME, "kv_data_type", data_type if kv_data_type is None else kv_data_type, kind))
        self._keep(np.arange(len(tables) + 1), tables, lengths, sight_of(self.NAME, given), (num_qo_heads, num_kv_heads), (head_dim, head_dim), page_size, kinds)
        self._queries = q_len_per_req

    begin_forward = plan

    @named(NAME, method=True)
    def run(
        self, q: Any, paged_kv_cache: Any, *args: Any, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Optional[Any] = None,
        lse: Optional[Any] = None, return_lse: bool = False, enable_pdl: Optional[bool] = None, window_left: Optional[int] = None,
        sinks: Optional[Any] = None, q_len_per_req: Optional[int] = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
        kv_cache_sf: Optional[Any] = None, **how: Any,
    ) -> Any:  # fmt: skip
        """The output, and with return_lse logarithms of the sums in base 2."""
        if args:
            raise refuse(self.NAME, f"run: takes q and paged_kv_cache by position, and got {len(args)} more, which kernels of the caller's would take")
        _none(self.NAME, kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        queries = getattr(self, "_queries", 1) if q_len_per_req is None else integer(self.NAME, "q_len_per_req", q_len_per_req, 1)
        return self._run(q, paged_kv_cache, self._scales(q_scale, k_scale, v_scale), out, lse, return_lse, window_left, sinks, queries, how=how)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    @named(NAME, method=True)
    def forward(
        self, q: Any, paged_kv_cache: Any, pos_encoding_mode: str = "NONE", q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
        window_left: int = -1, logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, *, return_lse: bool = False,
    ) -> Any:  # fmt: skip
        """run, whose arguments take the place of plan's."""
        sight = sight_of(self.NAME, dict(locals()))
        return self._run(q, paged_kv_cache, self._scales(q_scale, k_scale, v_scale), None, None, return_lse, sight=sight)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The same."""

    def __init__(self, workspace_buffer: Any, indptr_buffer: Any, indices_buffer: Any, last_page_len_buffer: Any, kv_layout: str = "NHD", use_tensor_cores: bool = False) -> None:
        super().__init__(workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer, last_page_len_buffer)


def fast_decode_plan(
    self: Any, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
    pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: Optional[float] = None, q_data_type: Any = None, kv_data_type: Any = None,
    data_type: Any = None, sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    non_blocking: bool = True, fixed_split_size: Optional[int] = None, disable_split_kv: bool = False, global_override_indptr_cpu: Optional[Any] = None,
) -> None:  # fmt: skip
    """plan of BatchDecodeWithPagedKVCacheWrapper, in whose place callers put this."""
    BatchDecodeWithPagedKVCacheWrapper.plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode, window_left, logits_soft_cap, q_data_type,
        kv_data_type, data_type, sm_scale, rope_scale, rope_theta,
    )  # fmt: skip


class BatchAttention(_Paged):
    """Requests of one query and of many together, by lengths instead of last pages."""

    NAME = "BatchAttention"

    def __init__(self, kv_layout: str = "NHD", device: Any = "cuda") -> None:
        self._begin(kv_layout)

    @named(NAME, method=True)
    def plan(
        self, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_len_arr: Any, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, head_dim_vo: int,
        page_size: int, causal: bool = False, sm_scale: Optional[float] = None, logits_soft_cap: Optional[float] = None, q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16", use_profiler: bool = False,
    ) -> None:  # fmt: skip
        given = dict(locals())
        sizes(self.NAME, page_size, num_kv_heads=num_kv_heads, num_qo_heads=num_qo_heads, head_dim_qk=head_dim_qk, head_dim_vo=head_dim_vo)
        ends, of = offsets(self.NAME, "kv_indptr", kv_indptr), whole_numbers(self.NAME, "kv_indices", kv_indices)
        lengths = whole_numbers(self.NAME, "kv_len_arr", kv_len_arr, len(ends) - 1)
        if ends[-1] > len(of) or (lengths < 0).any() or (lengths > np.diff(ends) * page_size).any():
            text = f"is {lengths.tolist()}, expected lengths within pages of {page_size} at {ends.tolist()} of {len(of)}"
            raise refuse(self.NAME, text, argument="kv_len_arr")
        kinds = (kind_of(self.NAME, "q_data_type", q_data_type, "bf16"), kind_of(self.NAME, "kv_data_type", kv_data_type, "bf16"))
        tables = [of[a:b] for a, b in zip(ends, ends[1:])]
        q_ends = offsets(self.NAME, "qo_indptr", qo_indptr)
        self._keep(q_ends, tables, lengths, sight_of(self.NAME, given), (num_qo_heads, num_kv_heads), (head_dim_qk, head_dim_vo), page_size, kinds)

    @named(NAME, method=True)
    def run(
        self, q: Any, kv_cache: Any, out: Optional[Any] = None, lse: Optional[Any] = None, k_scale: Any = None, v_scale: Any = None,
        logits_soft_cap: float = 0.0, profiler_buffer: Optional[Any] = None, kv_cache_sf: Optional[Any] = None, **how: Any,
    ) -> Any:  # fmt: skip
        """Both, the output and logarithms of the sums in base 2."""
        _none(self.NAME, kv_cache_sf=kv_cache_sf)
        sight = None if self._planned is None or not logits_soft_cap else Sight(**{**vars(self._planned["sight"]), "cap": float(logits_soft_cap)})
        return self._run(q, kv_cache, self._scales(None, k_scale, v_scale), out, lse, True, sight=sight, how=how)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """A score of each head beside those of the keys, whose value is 0."""

    NAME = "BatchAttentionWithAttentionSinkWrapper"

    def __init__(
        self, float_workspace_buffer: Any, kv_layout: str = "NHD", use_cuda_graph: bool = False, qo_indptr_buf: Optional[Any] = None,
        paged_kv_indptr_buf: Optional[Any] = None, paged_kv_indices_buf: Optional[Any] = None, paged_kv_last_page_len_buf: Optional[Any] = None,
        custom_mask_buf: Optional[Any] = None, mask_indptr_buf: Optional[Any] = None, backend: str = "auto", pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False, q_data_type: Any = "bfloat16", kv_data_type: Any = "bfloat16", head_dim_qk: int = 128, head_dim_vo: int = 128,
        window_left: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(float_workspace_buffer, kv_layout)
        self._window = window_left

    @named(NAME, method=True)
    def run(
        self, q: Any, paged_kv_cache: Any, sink: Any = None, sm_scale: Optional[float] = None, *, out: Optional[Any] = None, lse: Optional[Any] = None,
        return_lse: bool = False, **others: Any,
    ) -> Any:  # fmt: skip
        sight = None if self._planned is None else Sight(**{**vars(self._planned["sight"]), "window_left": self._window})
        if sight is not None and sm_scale is not None:
            sight = Sight(**{**vars(sight), "scale": float(sm_scale)})
        return self._run(q, paged_kv_cache, (1.0, 1.0), out, lse, return_lse, sinks=sink, sight=sight)


# ---- several levels of keys ----


def _together(first: tuple, second: tuple) -> tuple:
    return function("merge_state")(first[0], first[1], second[0], second[1])


class MultiLevelCascadeAttentionWrapper:
    """Prefixes that requests share, level by level, then each request's own keys: states of all of them merged."""

    NAME = "MultiLevelCascadeAttentionWrapper"

    def __init__(
        self, num_levels: int, float_workspace_buffer: Any, kv_layout: str = "NHD", use_cuda_graph: bool = False, qo_indptr_buf_arr: Optional[list] = None,
        paged_kv_indptr_buf_arr: Optional[list] = None, paged_kv_indices_buf_arr: Optional[list] = None,
        paged_kv_last_page_len_buf_arr: Optional[list] = None,
    ) -> None:  # fmt: skip
        if not isinstance(num_levels, int) or num_levels < 1:
            raise refuse(self.NAME, f"is {num_levels!r}, expected at least 1", argument="num_levels")
        self._levels = [BatchPrefillWithPagedKVCacheWrapper(None, kv_layout) for _ in range(num_levels)]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffers: Any) -> None:
        """Nothing to reset."""

    @named(NAME, method=True)
    def plan(
        self, qo_indptr_arr: list, paged_kv_indptr_arr: list, paged_kv_indices_arr: list, paged_kv_last_page_len: list, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None, window_left: int = -1, logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, q_data_type: Any = "float16", kv_data_type: Any = None,
    ) -> None:  # fmt: skip
        given = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        for argument, value in zip(("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len"), given):
            if len(value) != len(self._levels):
                raise refuse(self.NAME, f"has {len(value)} members, expected {len(self._levels)}, one a level", argument=argument, code="bad_shape")
        for level, (wrapper, parts) in enumerate(zip(self._levels, zip(*given))):
            own = level == len(self._levels) - 1
            wrapper.plan(
                *parts, num_qo_heads, num_kv_heads, head_dim, page_size, causal=causal and own, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale,
                window_left=window_left, logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta, q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )  # fmt: skip

    begin_forward = plan

    @named(NAME, method=True)
    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        states = [wrapper.run(q, paged_kv_cache, return_lse=True) for wrapper in reversed(self._levels)]
        return functools.reduce(_together, states)[0]

    forward = run


class _SharedPrefix:
    """One prefix for all requests, whose keys lie apart."""

    NAME = ""

    def __init__(self, float_workspace_buffer: Any, kv_layout: str = "NHD") -> None:
        self._kv_layout = kv_layout
        self._own = self._wrapper()(None, kv_layout)

    @staticmethod
    def _wrapper() -> type:
        raise NotImplementedError

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """Nothing to reset."""

    def end_forward(self) -> None:
        """Nothing to free."""

    def _merged(self, q: Any, k_shared: Any, v_shared: Any, own: tuple, sm_scale: Optional[float]) -> Any:
        from ._ragged_wrapper import single_prefill_with_kv_cache

        prefix = single_prefill_with_kv_cache(q, k_shared, v_shared, causal=False, kv_layout=self._kv_layout, sm_scale=sm_scale, return_lse=True)
        return _together(prefix, own)[0]


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """One query a request."""

    NAME = "BatchDecodeWithSharedPrefixPagedKVCacheWrapper"
    _wrapper = staticmethod(lambda: BatchDecodeWithPagedKVCacheWrapper)

    @named(NAME, method=True)
    def begin_forward(
        self, unique_kv_indptr: Any, unique_kv_indices: Any, unique_kv_last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int,
        page_size: int, data_type: Any = "float16",
    ) -> None:  # fmt: skip
        self._own.plan(
            unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, q_data_type=data_type,
            kv_data_type=data_type,
        )  # fmt: skip

    @named(NAME, method=True)
    def forward(self, q: Any, k_shared: Any, v_shared: Any, unique_kv_cache: Any) -> Any:
        return self._merged(q, k_shared, v_shared, self._own.run(q, unique_kv_cache, return_lse=True), None)


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Several queries a request."""

    NAME = "BatchPrefillWithSharedPrefixPagedKVCacheWrapper"
    _wrapper = staticmethod(lambda: BatchPrefillWithPagedKVCacheWrapper)

    @named(NAME, method=True)
    def begin_forward(
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any, num_qo_heads: int, num_kv_heads: int,
        head_dim: int, page_size: int,
    ) -> None:  # fmt: skip
        self._own.plan(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size)

    @named(NAME, method=True)
    def forward(
        self, q: Any, k_shared: Any, v_shared: Any, unique_kv_cache: Any, causal: bool = False, use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
    ) -> Any:  # fmt: skip
        own = self._own.forward(q, unique_kv_cache, causal=causal, sm_scale=sm_scale, return_lse=True)
        return self._merged(q, k_shared, v_shared, own, sm_scale)


class PODWithPagedKVCacheWrapper:
    """A prompt of one request, and one query of each of several others, in one call."""

    NAME = "PODWithPagedKVCacheWrapper"

    def __init__(
        self, float_workspace_buffer: Any, kv_layout: str = "NHD", use_cuda_graph: bool = False, paged_kv_indptr_buffer: Optional[Any] = None,
        paged_kv_indices_buffer: Optional[Any] = None, paged_kv_last_page_len_buffer: Optional[Any] = None, jit_args: Optional[list] = None,
    ) -> None:  # fmt: skip
        self._decode = BatchDecodeWithPagedKVCacheWrapper(None, kv_layout)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """Nothing to reset."""

    def end_forward(self) -> None:
        """Nothing to free."""

    @named(NAME, method=True)
    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
        pos_encoding_mode: str = "NONE", window_left: int = -1, q_data_type: Any = "float16", kv_data_type: Any = None, data_type: Any = None,
        sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, non_blocking: bool = True,
    ) -> None:  # fmt: skip
        self._decode.plan(
            indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode, window_left, None, q_data_type,
            kv_data_type, data_type, sm_scale, rope_scale, rope_theta,
        )  # fmt: skip

    begin_forward = plan

    @named(NAME, method=True)
    def run(
        self, q_p: Any, k_p: Any, v_p: Any, q_d: Any, paged_kv_cache_d: Any, custom_mask_p: Optional[Any] = None, packed_custom_mask_p: Optional[Any] = None,
        causal_p: bool = False, kv_layout_p: str = "NHD", pos_encoding_mode_p: str = "NONE", sm_scale_p: Optional[float] = None, window_left_p: int = -1,
        rope_scale_p: Optional[float] = None, rope_theta_p: Optional[float] = None, return_lse_p: bool = False, custom_mask_d: Optional[Any] = None,
        packed_custom_mask_d: Optional[Any] = None, causal_d: bool = False, kv_layout_d: str = "NHD", pos_encoding_mode_d: str = "NONE",
        sm_scale_d: Optional[float] = None, window_left_d: int = -1, rope_scale_d: Optional[float] = None, rope_theta_d: Optional[float] = None,
        q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, return_lse_d: bool = False, use_fp16_qk_reduction: bool = False,
        enable_pdl: Optional[bool] = None, *args: Any,
    ) -> Any:  # fmt: skip
        """The prompt's output and the others', each with its logarithms where they are asked for."""
        from ._ragged_wrapper import single_prefill_with_kv_cache

        _none(self.NAME, custom_mask_d=custom_mask_d, packed_custom_mask_d=packed_custom_mask_d)
        prompt = single_prefill_with_kv_cache(
            q_p, k_p, v_p, custom_mask=custom_mask_p, packed_custom_mask=packed_custom_mask_p, causal=causal_p, kv_layout=kv_layout_p,
            pos_encoding_mode=pos_encoding_mode_p, sm_scale=sm_scale_p, window_left=window_left_p, rope_scale=rope_scale_p, rope_theta=rope_theta_p,
            return_lse=return_lse_p,
        )  # fmt: skip
        return prompt, self._decode.run(q_d, paged_kv_cache_d, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse_d)


# ---- tables of pages ----


def _by_tables(
    name: str, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, q_ends: np.ndarray, scales: tuple, window_left: int, out: Any, out_dtype: Any,
    sinks: Any, kv_layout: str, lse: Any, return_lse: bool, causal: bool,
) -> Any:  # fmt: skip
    if isinstance(kv_cache, (tuple, list)) and len(kv_cache) == 1:
        kv_cache = kv_cache[0]
    keys, values = halves(name, kv_cache, checked_layout(name, kv_layout))
    shape_of(name, "query", query, 3)
    if type_of(query).startswith("f8_"):
        raise refuse(name, f"is {type_of(query)}, offered are bf16 and f16", kind=NotOffered, code="unsupported", argument="query")
    if out_dtype is not None and kind_of(name, "out_dtype", out_dtype, type_of(query)) != type_of(query):
        raise refuse(name, f"is {out_dtype}, offered is that of query", kind=NotOffered, code="unsupported", argument="out_dtype")
    lengths = whole_numbers(name, "seq_lens", seq_lens, len(q_ends) - 1)
    count, columns = shape_of(name, "block_tables", block_tables, 2)
    size = bare(keys).shape[1]
    if count != len(lengths) or (lengths < 0).any() or (lengths > columns * size).any():
        text = f"has shape {[count, columns]}, expected a row for each of {len(lengths)} requests with pages of {size} for {lengths.max(initial=0)} tokens"
        raise refuse(name, text, argument="block_tables", code="bad_shape")
    rooms(name, query, bare(values).shape[3], out, lse)
    tables = list(np.asarray(bare(block_tables)).astype(np.int64))
    rows = [rows_of_pages(name, part, tables, lengths, "block_tables") for part in (keys, values)]
    sight = Sight(causal=causal, window_left=-1 if window_left is None or window_left < 0 else window_left, scale=1.0)
    made = attend(name, query, *rows, q_ends, np.concatenate([[0], np.cumsum(lengths)]), sight, scales, _one_sink(name, sinks))
    return given_back(name, made, out, lse, return_lse)


def _one_sink(name: str, sinks: Any) -> Any:
    return sinks[0] if isinstance(sinks, (list, tuple)) and len(sinks) == 1 else sinks


@named("trtllm_batch_decode_with_kv_cache")
def trtllm_batch_decode_with_kv_cache(
    query: Any, kv_cache: Any, workspace_buffer: Any, block_tables: Any, seq_lens: Any, max_seq_len: int, bmm1_scale: Any = 1.0, bmm2_scale: Any = 1.0,
    window_left: int = -1, out: Optional[Any] = None, out_dtype: Any = None, o_sf_scale: Optional[float] = None, o_sf_vec_size: Optional[int] = None,
    sinks: Optional[Any] = None, kv_layout: str = "HND", enable_pdl: Optional[bool] = None, backend: str = "auto", q_len_per_req: Optional[int] = 1,
    o_scale: Optional[float] = 1.0, mask: Optional[Any] = None, max_q_len: Optional[int] = None, cum_seq_lens_q: Optional[Any] = None,
    skip_softmax_threshold_scale_factor: Optional[float] = None, kv_cache_sf: Optional[Any] = None, uses_shared_paged_kv_idx: bool = True,
    lse: Optional[Any] = None, return_lse: bool = False, bmm1_scale_log2: Optional[Any] = None, multi_ctas_kv_counter_buffer: Optional[Any] = None,
    enable_block_sparse_attention: bool = False, bf16q_fp8kv_transform_mode: Optional[str] = None,
) -> Any:  # fmt: skip
    """Requests whose last queries are asked for, in pages by table."""
    name = "trtllm_batch_decode_with_kv_cache"
    _none(name, enable_block_sparse_attention=enable_block_sparse_attention, bmm1_scale_log2=bmm1_scale_log2)
    _none(name, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size, mask=mask, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, kv_cache_sf=kv_cache_sf)
    requests = shape_of(name, "seq_lens", seq_lens, 1)[0]
    if cum_seq_lens_q is not None:
        ends = offsets(name, "cum_seq_lens_q", cum_seq_lens_q, requests + 1)
    else:
        ends = np.arange(requests + 1) * (q_len_per_req or 1)
    if shape_of(name, "query", query, 3)[0] != ends[-1]:
        raise refuse(name, f"has {bare(query).shape[0]} rows, expected {ends[-1]}", argument="query", code="bad_shape")
    scales = (number(name, "bmm1_scale", bmm1_scale), number(name, "bmm2_scale", bmm2_scale) / (o_scale or 1.0))
    return _by_tables(name, query, kv_cache, block_tables, seq_lens, ends, scales, window_left, out, out_dtype, sinks, kv_layout, lse, return_lse, True)


@named("trtllm_batch_context_with_kv_cache")
def trtllm_batch_context_with_kv_cache(
    query: Any, kv_cache: Any, workspace_buffer: Any, block_tables: Any, seq_lens: Any, max_q_len: int, max_kv_len: int, bmm1_scale: Any, bmm2_scale: Any,
    batch_size: int, cum_seq_lens_q: Any, cum_seq_lens_kv: Any, window_left: int = -1, out: Optional[Any] = None, out_dtype: Any = None,
    o_sf_scale: Optional[float] = None, o_sf_vec_size: Optional[int] = None, kv_layout: str = "HND", enable_pdl: Optional[bool] = None,
    sinks: Optional[Any] = None, kv_cache_sf: Optional[Any] = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
    uses_shared_paged_kv_idx: bool = True, causal: bool = True, lse: Optional[Any] = None, return_lse: bool = False,
    multi_ctas_kv_counter_buffer: Optional[Any] = None, use_fp16_softmax: Optional[bool] = None, uses_spcompress: Optional[bool] = None,
) -> Any:  # fmt: skip
    """Prompts in pages by table."""
    name = "trtllm_batch_context_with_kv_cache"
    _none(name, use_fp16_softmax=use_fp16_softmax, uses_spcompress=uses_spcompress)
    _none(name, o_sf_scale=o_sf_scale, o_sf_vec_size=o_sf_vec_size, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, kv_cache_sf=kv_cache_sf)
    ends = offsets(name, "cum_seq_lens_q", cum_seq_lens_q, batch_size + 1)
    if shape_of(name, "query", query, 3)[0] != ends[-1]:
        raise refuse(name, f"has {bare(query).shape[0]} rows, expected {ends[-1]}", argument="query", code="bad_shape")
    scales = (number(name, "bmm1_scale", bmm1_scale), number(name, "bmm2_scale", bmm2_scale))
    return _by_tables(name, query, kv_cache, block_tables, seq_lens, ends, scales, window_left, out, out_dtype, sinks, kv_layout, lse, return_lse, causal)


# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.prefill": (BatchPrefillWithPagedKVCacheWrapper, trtllm_batch_context_with_kv_cache),
    "flashinfer.decode": (
        BatchDecodeWithPagedKVCacheWrapper, CUDAGraphBatchDecodeWithPagedKVCacheWrapper, fast_decode_plan, trtllm_batch_decode_with_kv_cache,
    ),  # fmt: skip
    "flashinfer.attention": (BatchAttention, BatchAttentionWithAttentionSinkWrapper),
    "flashinfer.attention._core": (BatchAttention, BatchAttentionWithAttentionSinkWrapper),
    "flashinfer.cascade": (
        BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper, MultiLevelCascadeAttentionWrapper,
    ),  # fmt: skip
    "flashinfer.pod": (PODWithPagedKVCacheWrapper,),
}
