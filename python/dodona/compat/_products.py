"""FlashInfer's products of matrices that are ops of other names here, and its router: what differs are the orders in which arguments lie."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from .._arrays import is_torch, numpy_dtype
from .._ops import function
from ._adapt import NotOffered, named, refuse
from ._hooks.arrays import as_f32, bare, dense, last_stride, like, rounded, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import as_given, convert_to_block_layout, get_w2_permute_indices_with_cache
from ._upstream import value_of

BLOCK = 128
SIXTEEN = ("bf16", "f16")
BF16 = value_of("torch.bfloat16")


def _dtype(name: str, argument: str, value: Any, *kinds: str) -> str:
    """Our name of a type that is asked for."""
    kind = value if isinstance(value, str) else str(value).rpartition(".")[2]
    kind = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}.get(kind, kind)
    if kind not in kinds:
        raise refuse(name, f"is {value!r}, expected {' or '.join(kinds)}", argument=argument, code="bad_dtype")
    return kind


def _choice(name: str, argument: str, value: Any, *values: Any) -> None:
    if value not in values:
        raise refuse(name, f"is {value!r}, expected {' or '.join(map(repr, values))}", argument=argument)


def _room(name: str, out: Any, shape: tuple, *kinds: str) -> None:
    if out is not None:
        of_shape(name, "out", out, shape)
        of_type(name, "out", out, *kinds)
        writable(name, "out", out)


def _into(out: Any, made: Any) -> Any:
    if out is None:
        return made
    _put(bare(out), bare(made))
    return out


def _put(target: Any, made: Any) -> None:
    """The same type, whatever the array's name for it."""
    target[...] = made if is_torch(target) else made.view(target.dtype)


def _turned(value: Any) -> Any:
    return like(value, bare(value).swapaxes(-1, -2))


def _neighbours(value: Any) -> Any:
    return value if last_stride(bare(value)) == 1 else like(value, dense(bare(value)))


# ---- sixteen bits ----


def _product(name: str, a: Any, b: Any, bias: Any, out: Any, kind: str, how: dict) -> Any:
    """a [M, K] times b [K, N]. What is added is added to the fp32 sums."""
    (rows, inner), (depth, columns) = (shape_of(name, argument, value, 2) for argument, value in (("a", a), ("b", b)))
    if depth != inner:
        raise refuse(name, f"has {depth} rows, expected {inner} as a has columns", argument="b", code="bad_shape")
    _room(name, out, (rows, columns), kind)
    if bias is None:
        direct = kind in (type_of(a), "f32")
        made = function("linear")(_neighbours(a), _neighbours(_turned(b)), kind if direct else "f32", **how)
        return _into(out, made if direct else rounded(bare(made), kind))
    of_shape(name, "bias", bias, (columns,))
    of_type(name, "bias", bias, type_of(a))
    sums = function("linear")(_neighbours(a), _neighbours(_turned(b)), "f32", **how)
    return _into(out, rounded(bare(sums) + as_f32(bare(bias)), kind))


@named("tgv_gemm_sm100")
def tgv_gemm_sm100(a: Any, b: Any, bias: Any, pdl: bool = False, out: Optional[Any] = None, **how: Any) -> Any:
    """a b + bias."""
    name = "tgv_gemm_sm100"
    of_type(name, "a", a, *SIXTEEN)
    of_type(name, "b", b, type_of(a))
    return _product(name, a, b, bias, out, type_of(a), how)


@named("mm_bf16")
def mm_bf16(
    a: Any, b: Any, bias: Optional[Any] = None, pdl: bool = False, out: Optional[Any] = None, out_dtype: Any = BF16, backend: str = "cudnn", **how: Any
) -> Any:
    """a b, and bias for some backends."""
    name = "mm_bf16"
    _choice(name, "backend", backend, "cudnn", "cutlass", "tgv", "cublaslt", "tinygemm", "cutile", "cute-dsl", "auto")
    of_type(name, "a", a, "bf16")
    of_type(name, "b", b, "bf16")
    if bias is not None and backend in ("cutlass", "cublaslt", "cutile"):
        raise refuse(name, f"is given, expected none with the {backend} backend", argument="bias")
    return _product(name, a, b, bias, out, _dtype(name, "out_dtype", out_dtype, "bf16", "f16", "f32"), how)


@named("bmm_bf16")
def bmm_bf16(A: Any, B: Any, out: Optional[Any] = None, out_dtype: Any = BF16, backend: str = "cudnn", **how: Any) -> Any:
    """Of each matrix of a batch."""
    name = "bmm_bf16"
    _choice(name, "backend", backend, "cudnn", "cutlass", "cutile", "tgv", "auto")
    of_type(name, "A", A, "bf16")
    of_type(name, "B", B, "bf16")
    (batch, rows, inner), shape = shape_of(name, "A", A, 3), shape_of(name, "B", B, 3)
    if shape[:2] != (batch, inner):
        raise refuse(name, f"has shape {list(shape)}, expected [{batch}, {inner}, N]", argument="B", code="bad_shape")
    kind = _dtype(name, "out_dtype", out_dtype, "bf16", "f16", "f32")
    _room(name, out, (batch, rows, shape[2]), kind)
    if kind == "f16":
        return _into(out, like(A, rounded(bare(function("bmm")(_neighbours(A), B, "f32", **how)), kind)))
    return _into(out, function("bmm")(_neighbours(A), B, kind, **how))


@named("tinygemm_bf16")
def tinygemm_bf16(input: Any, weight: Any, out: Any, bias: Optional[Any] = None, use_pdl: bool = False, **how: Any) -> None:
    """input weight^T + bias, to out."""
    name = "tinygemm_bf16"
    for argument, value in (("input", input), ("weight", weight), ("out", out)):
        of_type(name, argument, value, "bf16")
    _product(name, input, _turned(weight), bias, out, "bf16", how)


class SegmentGEMMWrapper:
    """Rows of one segment after another, each segment times a weight of its own. Workspaces mean nothing here."""

    def __init__(self, float_workspace_buffer: Any, backend: str = "auto") -> None:
        _choice("SegmentGEMMWrapper", "backend", backend, "auto", "sm80", "sm90")
        self.backend = backend

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """Nothing to reset."""

    @named("SegmentGEMMWrapper", method=True)
    def run(
        self, x: Any, weights: Any, batch_size: int, weight_column_major: bool, out: Optional[Any] = None, seg_lens: Optional[Any] = None,
        seg_indptr: Optional[Any] = None, weight_indices: Optional[Any] = None,
    ) -> Any:  # fmt: skip
        name = "SegmentGEMMWrapper"
        of_type(name, "x", x, *SIXTEEN, "f32")
        of_type(name, "weights", weights, type_of(x))
        (rows, inner), (count, *shape) = shape_of(name, "x", x, 2), shape_of(name, "weights", weights, 3)
        columns, depth = shape if weight_column_major else shape[::-1]
        if depth != inner:
            raise refuse(name, f"has shape {[count, *shape]}, expected K = {inner} as x has", argument="weights", code="bad_shape")
        if seg_indptr is None and seg_lens is None:
            raise refuse(name, "is missing, as seg_indptr is, expected one of them", argument="seg_lens", code="missing_argument")
        counts = _integers(name, "seg_lens", seg_lens, (batch_size,)) if seg_indptr is None else np.diff(_integers(name, "seg_indptr", seg_indptr, (batch_size + 1,)))
        argument = "seg_lens" if seg_indptr is None else "seg_indptr"
        if (counts < 0).any() or counts.sum() != rows:
            raise refuse(name, f"holds segments of {counts.tolist()} rows, expected {rows} together", argument=argument)
        of = np.arange(batch_size) if weight_indices is None else _integers(name, "weight_indices", weight_indices, (batch_size,))
        if batch_size and not 0 <= of.min() <= of.max() < count:
            raise refuse(name, f"holds {of.min() if of.min() < 0 else of.max()}, expected 0 to {count - 1}", argument="weight_indices" if weight_indices is not None else "batch_size")
        _room(name, out, (rows, columns), type_of(x))
        made = bare(out) if out is not None else bare(x).new_zeros((rows, columns)) if is_torch(bare(x)) else np.zeros((rows, columns), bare(x).dtype)
        begin = 0
        for weight, length in zip(of, counts):
            if length:
                matrix = like(weights, bare(weights)[weight])
                part = like(x, bare(x)[begin : begin + length])
                product = _product(name, part, _turned(matrix) if weight_column_major else matrix, None, None, type_of(x), {})
                _put(made[begin : begin + length], bare(product))
            begin += length
        return made if out is None else out

    forward = run


def _integers(name: str, argument: str, value: Any, shape: tuple) -> np.ndarray:
    of_shape(name, argument, value, shape)
    of_type(name, argument, value, "i32", "i64")
    return np.asarray(bare(value)).astype(np.int64)


# ---- eight bits ----


def _scale_rows(name: str, argument: str, scales: Any, rows: int, blocks: int, size: int, along_rows: bool) -> Any:
    """fp32 [rows, blocks of K] of scales that `size` rows share; along_rows: they come as [blocks, rows]."""
    of_type(name, argument, scales, "f32")
    groups = -(-rows // size)
    of_shape(name, argument, scales, (blocks, groups) if along_rows else (groups, blocks))
    array = bare(scales).swapaxes(0, 1) if along_rows else bare(scales)
    if size == 1 or argument.startswith("b"):
        return like(scales, array)
    spread = array.repeat_interleave(size, 0) if is_torch(array) else np.repeat(array, size, 0)
    return like(scales, spread[:rows])


def _blocks(name: str, a: Any, b: Any, a_scale: Any, b_scale: Any, along_rows: tuple[bool, bool], sizes: Any, kind: str, how: dict) -> Any:
    """a [M, K] times b [N, K] transposed, codes of e4m3 that share scales by 128 of K. Sums are rounded once."""
    (rows, inner), (columns, depth) = (shape_of(name, argument, value, 2) for argument, value in (("a", a), ("b", b)))
    if depth != inner:
        raise refuse(name, f"has {depth} columns, expected {inner} as a has", argument="b", code="bad_shape")
    for argument, value in (("a", a), ("b", b)):
        if type_of(value) == "f8_e5m2":
            raise refuse(name, "is f8_e5m2, offered is f8_e4m3", kind=NotOffered, code="unsupported", argument=argument)
        of_type(name, argument, value, "f8_e4m3")
    sizes = tuple(sizes)
    if sizes not in ((1, BLOCK, BLOCK), (BLOCK, BLOCK, BLOCK)):
        text = f"is {sizes}, offered are (1, 128, 128) and (128, 128, 128)"
        raise refuse(name, text, kind=NotOffered, code="unsupported", argument="scale_granularity_mnk")
    count = -(-inner // BLOCK)
    sfa = _scale_rows(name, "a_scale", a_scale, rows, count, sizes[0], along_rows[0])
    sfb = _scale_rows(name, "b_scale", b_scale, columns, count, BLOCK, along_rows[1])
    made = function("fp8_gemm_nt")(_neighbours(a), sfa, _neighbours(b), sfb, out_dtype="f32" if kind == "f16" else kind, **how)
    return like(made, rounded(bare(made), kind)) if kind == "f16" else made


def _wanted(name: str, out: Any, out_dtype: Any) -> str:
    if out is not None:
        of_type(name, "out", out, *SIXTEEN)
        return type_of(out)
    return "bf16" if out_dtype is None else _dtype(name, "out_dtype", out_dtype, *SIXTEEN)


@named("gemm_fp8_nt_groupwise")
def gemm_fp8_nt_groupwise(
    a: Any, b: Any, a_scale: Any, b_scale: Any, scale_major_mode: Optional[str] = None, mma_sm: int = 1, scale_granularity_mnk: Any = (1, 128, 128),
    out: Optional[Any] = None, out_dtype: Optional[Any] = None, backend: str = "cutlass", **how: Any,
) -> Any:  # fmt: skip
    """fp8_gemm_nt, whose scales may lie by blocks of K first (MN)."""
    name = "gemm_fp8_nt_groupwise"
    _choice(name, "backend", backend, "cutlass", "trtllm")
    kind = _wanted(name, out, out_dtype)
    (rows, inner), (columns, _) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 2)
    _room(name, out, (rows, columns), kind)
    if backend == "trtllm":
        _choice(name, "scale_major_mode", scale_major_mode, None, "MN")
        _choice(name, "scale_granularity_mnk", tuple(scale_granularity_mnk), (1, BLOCK, BLOCK))
        if inner < 2 * BLOCK:
            raise refuse(name, f"has {inner} columns, expected at least 256 with the trtllm backend", argument="a", code="bad_shape")
        blocks = -(-inner // BLOCK)
        whole = shape_of(name, "a_scale", a_scale, 2)
        # [M, K / 128] in the order of columns, or the same memory as [K / 128, M]; of b as [N / 128, K / 128].
        return _into(out, _blocks(name, a, b, a_scale, b_scale, (whole == (blocks, rows), False), scale_granularity_mnk, kind, how))
    _choice(name, "scale_major_mode", scale_major_mode, "MN", "K")
    return _into(out, _blocks(name, a, b, a_scale, b_scale, (scale_major_mode == "MN",) * 2, scale_granularity_mnk, kind, how))


@named("gemm_fp8_nt_blockscaled")
def gemm_fp8_nt_blockscaled(
    a: Any, b: Any, a_scale: Any, b_scale: Any, scale_major_mode: Optional[str] = "MN", mma_sm: int = 1, out: Optional[Any] = None,
    out_dtype: Optional[Any] = None, **how: Any,
) -> Any:  # fmt: skip
    """The same with scales that 128 rows share."""
    return gemm_fp8_nt_groupwise(a, b, a_scale, b_scale, scale_major_mode, mma_sm, (BLOCK, BLOCK, BLOCK), out, out_dtype, **how)


@named("group_gemm_fp8_nt_groupwise")
def group_gemm_fp8_nt_groupwise(
    a: Any, b: Any, a_scale: Any, b_scale: Any, m_indptr: Any, scale_granularity_mnk: Any = (1, 128, 128), scale_major_mode: str = "MN", mma_sm: int = 1,
    out: Optional[Any] = None, out_dtype: Optional[Any] = None, **how: Any,
) -> Any:  # fmt: skip
    """Rows of one group after another, each group times a matrix of its own."""
    name = "group_gemm_fp8_nt_groupwise"
    _choice(name, "scale_major_mode", scale_major_mode, "MN", "K")
    _choice(name, "mma_sm", mma_sm, 1, 2)
    kind = _wanted(name, out, out_dtype)
    (rows, _), (groups, columns, _) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 3)
    _room(name, out, (rows, columns), kind)
    ends = _integers(name, "m_indptr", m_indptr, (groups + 1,))
    if ends[0] != 0 or ends[-1] != rows or (np.diff(ends) < 0).any() or (ends % 4).any():
        raise refuse(name, f"is {ends.tolist()}, expected multiples of 4 from 0 to {rows} that do not fall", argument="m_indptr")
    along, size = scale_major_mode == "MN", tuple(scale_granularity_mnk)[0]
    if size == BLOCK and (ends % BLOCK).any():
        raise refuse(name, f"is {ends.tolist()}, expected multiples of 128 where so many rows share scales", argument="m_indptr")
    parts = []
    for group, (begin, end) in enumerate(zip(ends, ends[1:])):
        if begin == end:
            continue
        of = slice(begin // size, -(-end // size))
        scales = like(a_scale, bare(a_scale)[:, of] if along else bare(a_scale)[of])
        codes, weights = like(a, bare(a)[begin:end]), like(b, bare(b)[group])
        parts.append(bare(_blocks(name, codes, weights, scales, like(b_scale, bare(b_scale)[group]), (along,) * 2, scale_granularity_mnk, kind, how)))
    return _into(out, _one_after_another(parts, a, columns, kind))


def _one_after_another(parts: list, model: Any, columns: int, kind: str) -> Any:
    if not is_torch(bare(model)):
        return np.concatenate(parts) if parts else np.zeros((0, columns), numpy_dtype(kind))
    import torch

    return torch.cat(parts) if parts else torch.zeros((0, columns), dtype=torch.bfloat16 if kind == "bf16" else torch.float16)


def _grouped(name: str, rank: int) -> Callable[..., Any]:
    """DeepGEMM's products of groups, under FlashInfer's names."""

    def run(a: Any, b: Any, a_scale: Any, b_scale: Any, rows: tuple, sizes: Any, out: Any, out_dtype: Any) -> Any:
        from . import deep_gemm

        kind = "bf16" if out_dtype is None else _dtype(name, "out_dtype", out_dtype, "bf16")
        shape = (*shape_of(name, "a", a, rank)[:-1], shape_of(name, "b", b, 3)[1])
        _room(name, out, shape, kind)
        given = out
        if out is None:
            given = rounded(bare(a_scale).new_zeros(shape), kind) if is_torch(bare(a_scale)) else np.zeros(shape, numpy_dtype(kind))
        multiply = deep_gemm.PACKAGE.adapter(f"m_grouped_fp8_gemm_nt_{'contiguous' if rank == 2 else 'masked'}").function
        multiply((a, a_scale), (b, b_scale), given, *rows, recipe=tuple(sizes))
        return given

    return run


_BY_ROW, _BY_COUNT = _grouped("group_deepgemm_fp8_nt_groupwise", 2), _grouped("batch_deepgemm_fp8_nt_groupwise", 3)


@named("group_deepgemm_fp8_nt_groupwise")
def group_deepgemm_fp8_nt_groupwise(
    a: Any, b: Any, a_scale: Any, b_scale: Any, m_indices: Any, scale_granularity_mnk: Any = (1, 128, 128), out: Optional[Any] = None, out_dtype: Optional[Any] = None
) -> Any:
    """m_grouped_fp8_gemm_nt_contiguous: each row's group is said."""
    return _BY_ROW(a, b, a_scale, b_scale, (m_indices,), scale_granularity_mnk, out, out_dtype)


@named("batch_deepgemm_fp8_nt_groupwise")
def batch_deepgemm_fp8_nt_groupwise(
    a: Any, b: Any, a_scale: Any, b_scale: Any, masked_m: Any, expected_m: int, scale_granularity_mnk: Any = (1, 128, 128), out: Optional[Any] = None,
    out_dtype: Optional[Any] = None,
) -> Any:  # fmt: skip
    """m_grouped_fp8_gemm_nt_masked: the first rows of each group count."""
    return _BY_COUNT(a, b, a_scale, b_scale, (masked_m, expected_m), scale_granularity_mnk, out, out_dtype)


def _deep_gemm(kind: str) -> Callable[..., None]:
    """flashinfer.deep_gemm's two, which are DeepGEMM's."""
    name = f"m_grouped_fp8_gemm_nt_{kind}"
    rows = {"contiguous": "m_indices", "masked": "masked_m, expected_m"}[kind]
    space: dict[str, Any] = {"_of": lambda: __import__("dodona.compat.deep_gemm", fromlist=["PACKAGE"]).PACKAGE.adapter(name).function}
    exec(f"def {name}(a_fp8, b_fp8, d, {rows}, recipe=None, compiled_dims='nk'):\n    _of()(a_fp8, b_fp8, d, {rows}, recipe=recipe, compiled_dims=compiled_dims)\n", space)
    made = named(name)(space[name])
    made.__doc__ = "DeepGEMM's."
    return made


@named("prepare_low_latency_gemm_weights")
def prepare_low_latency_gemm_weights(w: Any, permutation_indices_cache: dict) -> Any:
    """Rows in the kernel's order, then blocks of 128 columns: [K / 128, N, 128]."""
    order = get_w2_permute_indices_with_cache(permutation_indices_cache, w, BLOCK)
    return convert_to_block_layout(w[order], BLOCK)


@named("mm_fp8")
def mm_fp8(
    a: Any, b: Any, alpha: Optional[Any] = None, out_dtype: Any = BF16, out: Optional[Any] = None, backend: str = "trtllm_low_latency", **how: Any
) -> Any:
    """alpha a b^T of codes, where b is what prepare_low_latency_gemm_weights gives."""
    name = "mm_fp8"
    _choice(name, "backend", backend, "trtllm_low_latency")
    (rows, inner), (blocks, columns, width) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 3)
    if width != BLOCK or blocks * width != inner:
        raise refuse(name, f"has shape {[blocks, columns, width]}, expected [{inner // BLOCK}, N, 128], as prepare_low_latency_gemm_weights makes it", argument="b", code="bad_shape")
    kind = _dtype(name, "out_dtype", out_dtype if out_dtype is not None else "bf16", "bf16")
    _room(name, out, (rows, columns), kind)
    shuffled = bare(b).swapaxes(0, 1).reshape(columns, inner)
    order = np.argsort(np.asarray(get_w2_permute_indices_with_cache({}, shuffled, BLOCK)))
    weights = like(b, shuffled[as_given(order, shuffled)])
    one = as_given(np.ones(1, np.float32), bare(a))
    if alpha is not None:
        of_type(name, "alpha", alpha, "f32")
        if int(np.prod(tuple(bare(alpha).shape))) != 1:
            raise refuse(name, f"has shape {list(bare(alpha).shape)}, expected one number", argument="alpha", code="bad_shape")
    scale = one if alpha is None else bare(alpha).reshape(1)
    made = function("bmm_fp8")(like(a, bare(a)[None]), _turned(like(b, bare(weights)[None])), one, scale, kind, **how)
    return _into(out, like(made, bare(made)[0]))


# ---- the router ----


def _router(name: str, inner: int, experts: int, kind: str, pdl: bool) -> Callable[..., None]:
    def run(mat_a: Any, mat_b: Any, out: Any, launch_with_pdl: bool = pdl, **how: Any) -> None:
        (tokens, depth), (rows, columns) = (shape_of(name, argument, value, 2) for argument, value in (("mat_a", mat_a), ("mat_b", mat_b)))
        if last_stride(bare(_turned(mat_b))) != 1:
            raise refuse(name, "is row-major, expected column-major", argument="mat_b")
        if last_stride(bare(mat_a)) != 1:
            raise refuse(name, "is column-major, expected row-major", argument="mat_a")
        if not 1 <= tokens <= 16:
            raise refuse(name, f"has {tokens} rows (num_tokens), expected 1 to 16", argument="mat_a", code="bad_shape")
        for argument, value, size, what in (("mat_a", mat_a, depth, "hidden_dim"), ("mat_b", mat_b, rows, "hidden_dim")):
            if size != inner:
                of = "columns" if argument == "mat_a" else "rows"
                raise refuse(name, f"has {size} {of} ({what}), expected {inner}", argument=argument, code="bad_shape")
        if columns != experts:
            raise refuse(name, f"has {columns} columns (num_experts), expected {experts}", argument="mat_b", code="bad_shape")
        for argument, value, wanted in (("mat_a", mat_a, "bf16"), ("mat_b", mat_b, "bf16"), ("out", out, kind)):
            if type_of(value) != wanted:
                text = {"bf16": "bfloat16", "f32": "float32"}[wanted]
                raise refuse(name, f"is {getattr(bare(value), 'dtype', value)}, expected {text}", argument=argument, code="bad_dtype")
        _room(name, out, (tokens, experts), kind)
        weights = _turned(mat_b)
        if (inner, experts) == (7168, 256):
            made = function("dsv3_router_gemm")(like(mat_a, dense(bare(mat_a))), like(mat_b, dense(bare(weights))), kind, **how)
        else:
            made = function("linear")(mat_a, weights, kind, **how)
        _into(out, made)

    run.__doc__ = f"Logits of 1 to 16 tokens for {experts} experts."
    return named(name)(run)


ROUTERS = tuple(
    _router(f"mm_M1_16_K{inner}_N{experts}", inner, experts, kind, pdl)
    for inner, experts, kind, pdl in ((7168, 256, "f32", False), (7168, 128, "bf16", True), (6144, 256, "f32", True))
)


def _route(
    name: str, scores: Any, bias: Any, n_group: int, topk_group: int, topk: int, routed_scaling_factor: float, topk_values: Any, topk_indices: Any,
    routing_replay_out: Optional[Any], how: dict,
) -> None:  # fmt: skip
    """Experts by sigmoid plus bias, of the best groups; weights are their sigmoids over the sum, times the factor."""
    tokens, experts = shape_of(name, "scores", scores, 2)
    of_type(name, "scores", scores, "f32", *SIXTEEN)
    of_type(name, "bias", bias, "f32", *SIXTEEN)
    of_shape(name, "bias", bias, (experts,))
    for argument, value, kinds in (("topk_values", topk_values, ("f32", *SIXTEEN)), ("topk_indices", topk_indices, ("i32",))):
        of_shape(name, argument, value, (tokens, topk))
        of_type(name, argument, value, *kinds)
        writable(name, argument, value)
    if not 1 <= topk_group <= n_group or topk_group * n_group < topk or experts % n_group:
        text = f"is {topk_group} of {n_group} groups of {experts} experts, expected 1 to n_group of equal groups, with topk_group * n_group at least topk = {topk}"
        raise refuse(name, text, argument="topk_group")
    most = 384 if n_group == 1 else 32 * n_group
    if not 1 <= topk <= 8:
        raise refuse(name, f"is {topk}, expected 1 to 8", argument="topk")
    if experts > most or (n_group > 1 and experts // n_group * topk_group > 128):
        raise refuse(name, f"has {experts} experts in {n_group} groups of which {topk_group} are kept, expected at most {most}, and 128 kept", argument="scores", code="bad_shape")
    if routing_replay_out is not None:
        if type_of(routing_replay_out) != "i16" and "int16" not in str(bare(routing_replay_out).dtype):
            raise refuse(name, f"is {bare(routing_replay_out).dtype}, expected int16", argument="routing_replay_out", code="bad_dtype")
        (room, width) = shape_of(name, "routing_replay_out", routing_replay_out, 2)
        if room < tokens or width != topk:
            raise refuse(name, f"has shape {[room, width]}, expected at least {tokens} rows of {topk}", argument="routing_replay_out", code="bad_shape")
    weights, ids = function("biased_grouped_topk")(
        as_f32(bare(scores)), as_f32(bare(bias)), topk, True, n_group, topk_group, routed_scaling_factor=float(routed_scaling_factor),
        apply_routed_scaling_factor_on_output=True, **how,
    )  # fmt: skip
    _put(bare(topk_values), rounded(weights, type_of(topk_values)))
    bare(topk_indices)[...] = ids
    if routing_replay_out is not None:
        bare(routing_replay_out)[:tokens] = ids


@named("NoAuxTc")
def NoAuxTc(
    scores: Any, bias: Any, n_group: int, topk_group: int, topk: int, routed_scaling_factor: float, topk_values: Any, topk_indices: Any,
    launch_with_pdl: bool = True, *, routing_replay_out: Optional[Any] = None, **how: Any,
) -> None:  # fmt: skip
    """Experts by sigmoid plus bias, of the best groups; weights are their sigmoids over the sum, times the factor."""
    _route("NoAuxTc", scores, bias, n_group, topk_group, topk, routed_scaling_factor, topk_values, topk_indices, routing_replay_out, how)


@named("fused_topk_deepseek")
def fused_topk_deepseek(
    scores: Any, bias: Any, n_group: int, topk_group: int, topk: int, routed_scaling_factor: float, topk_values: Any, topk_indices: Any,
    launch_with_pdl: bool = True, routing_replay_out: Optional[Any] = None, *, backend: str = "default", **how: Any,
) -> None:  # fmt: skip
    """NoAuxTc, as newer versions call it."""
    name = "fused_topk_deepseek"
    _choice(name, "backend", backend, "default", "cake", "auto")
    _route(name, scores, bias, n_group, topk_group, topk, routed_scaling_factor, topk_values, topk_indices, routing_replay_out, how)


for _made, _backends in (
    (mm_bf16, ("cudnn", "cutlass", "tgv", "cublaslt", "tinygemm", "cutile", "cute-dsl")),
    (bmm_bf16, ("cudnn", "cutlass", "cutile", "tgv")),
):  # of upstream's decorator around functions with several
    _made.is_backend_supported = lambda backend, cc=None, known=_backends: backend in known
    _made.is_compute_capability_supported = lambda cc: True

# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.gemm.gemm_base": (
        SegmentGEMMWrapper, batch_deepgemm_fp8_nt_groupwise, bmm_bf16, gemm_fp8_nt_blockscaled, gemm_fp8_nt_groupwise, group_deepgemm_fp8_nt_groupwise,
        group_gemm_fp8_nt_groupwise, mm_bf16, mm_fp8, tgv_gemm_sm100,
    ),  # fmt: skip
    "flashinfer.gemm.routergemm_dsv3": ROUTERS[:1],
    "flashinfer.gemm.routergemm": (*ROUTERS, tinygemm_bf16),
    "flashinfer.trtllm_low_latency_gemm": (prepare_low_latency_gemm_weights,),
    "flashinfer.fused_moe.fused_routing_dsv3": (NoAuxTc, fused_topk_deepseek),
    "flashinfer.deep_gemm": tuple(_deep_gemm(kind) for kind in ("contiguous", "masked")),
}
