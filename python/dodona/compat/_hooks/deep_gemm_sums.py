"""DeepGEMM's functions that are several products: sums over heads and over groups of K, 16-bit products in fp32, and what it measures itself against.
All products are made before anything is written."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy as np

from ..._arrays import is_torch, like_torch, numpy_dtype
from ..._ops import function
from .. import _deep_gemm as library
from .._adapt import NotOffered, named, refuse
from .._layouts import E4M3, as_given, codes_of
from .arrays import as_f32, bare, dense, like, rounded, type_of
from .checks import of_shape, of_type, shape_of, writable
from .deep_gemm import BLOCK, pair, turned

Function = Callable[..., None]


def room(d: Any, shape: tuple) -> Any:
    """An array of d's type."""
    array = bare(d)
    return like(d, array.new_empty(shape) if is_torch(array) else np.empty(shape, array.dtype))


def write(d: Any, value: Any) -> None:
    bare(d)[...] = bare(value)


def fp32_product(name: str, a: Any, b: Any, how: dict) -> Any:
    """a b^T of 16-bit matrices, [M, K] and [N, K], as the kernel's fp32 sums are."""
    for argument, value in (("a", a), ("b", b)):
        of_type(name, argument, value, "bf16")
    return function("linear")(like(a, dense(bare(a))), like(b, dense(bare(b))), out_dtype="f32", **how)


def rounded_product(a: Any, b: Any, d: Any, how: dict) -> Any:
    made = room(d, (bare(a).shape[0], bare(b).shape[0]))
    function("linear")(like(a, dense(bare(a))), like(b, dense(bare(b))), output=made, **how)
    return made


def with_c(sums: Any, c: Any) -> Any:
    return sums if c is None else bare(sums) + bare(c)


def sixteen_bits_in_fp32(name: str, a: Any, b: Any, d: Any, c: Any, how: dict) -> None:
    """d = a b^T, and c added to the fp32 sum."""
    (m, inner), (n, k) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 2)
    if inner != k:
        raise refuse(name, f"has {k} columns, expected {inner} as a has", argument="b", code="bad_shape")
    of_shape(name, "d", d, (m, n))
    of_type(name, "d", d, "f32")
    writable(name, "d", d)
    if c is not None:
        of_shape(name, "c", c, (m, n))
        of_type(name, "c", c, "f32")
    if not m or not n:
        return
    write(d, with_c(fp32_product(name, a, b, how), c) if k else 0 if c is None else c)


def as_sixteen_bits(value: Any) -> Any:
    """Codes of e4m3 as bf16, which holds their numbers."""
    if type_of(value) != "f8_e4m3":
        return value
    codes = codes_of(dense(bare(value)))
    words = rounded(E4M3[codes], "bf16").view(np.uint16)
    return like_torch(words, "bf16", bare(value)) if is_torch(bare(value)) else words.view(numpy_dtype("bf16"))


def _as(made: Any, target: Any) -> Any:
    return made if is_torch(made) else made.view(target.dtype)


def cublaslt(name: str, turn: str) -> Function:
    """What DeepGEMM's tests measure it against: 16-bit matrices, or codes whose scales are 1."""

    @named(name)
    def product(a: Any, b: Any, d: Any, c: Any = None, **how: Any) -> None:
        a, b = turned(a) if "a" in turn else a, turned(b) if "b" in turn else b
        (m, inner), (n, k) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 2)
        if inner != k:
            raise refuse(name, f"has {k} columns, expected {inner} as a has", argument="b", code="bad_shape")
        of_shape(name, "d", d, (m, n))
        of_type(name, "d", d, "bf16", "f32")
        writable(name, "d", d)
        if c is not None:
            of_type(name, "c", c, type_of(d))
            of_shape(name, "c", c, (m, n))
        if not m or not n:
            return
        of_type(name, "a", a, "bf16", "f8_e4m3")
        of_type(name, "b", b, type_of(a))
        if not k:
            write(d, 0 if c is None else c)
        elif type_of(a) == "f8_e4m3" and c is None and type_of(d) == "bf16":
            one = np.ones(1, np.float32)
            one = one if not is_torch(bare(a)) else bare(a).new_ones(1, dtype=_torch().float32)
            whole = lambda value: like(value, dense(bare(value)))
            b = whole(b)
            made = room(d, (1, m, n))
            function("bmm_fp8")(like(a, bare(whole(a))[None]), like(b, bare(b)[None].swapaxes(1, 2)), one, one, dtype="bf16", out=made, **how)
            write(d, bare(made)[0])
        elif c is None and type_of(d) == "bf16":
            write(d, rounded_product(a, b, d, how))
        else:  # what is added is added to fp32 sums; codes of e4m3 are numbers of bf16
            a, b = (as_sixteen_bits(value) for value in (a, b))
            sums = fp32_product(name, a, b, how)
            sums = bare(sums) if c is None else bare(sums) + as_f32(bare(c))
            write(d, sums if type_of(d) == "f32" else _as(rounded(sums, "bf16"), bare(d)))

    return product


def _torch() -> Any:
    import torch

    return torch


# ---- sums by letters ----

LETTERS = {"bhr,hdr->bhd": ("bhr", "hdr", "bhd"), "bhd,hdr->bhr": ("bhd", "hdr", "bhr"), "bmk,bnk->mn": ("bmk", "bnk", "mn"), "bhd,bhr->hdr": ("bhd", "bhr", "hdr")}


def _letters(name: str, expr: Any, offered: tuple[str, ...], a: Any, b: Any, d: Any) -> dict[str, int]:
    """Sizes by letter."""
    if expr not in offered:
        raise refuse(name, f"is {expr!r}, offered are {', '.join(offered)}", kind=NotOffered, code="unsupported", argument="expr")
    sizes: dict[str, int] = {}
    for argument, value, letters in zip("abd", (a, b, d), LETTERS[expr]):
        shape = shape_of(name, argument, value, len(letters))
        wanted = tuple(sizes.get(letter, size) for letter, size in zip(letters, shape))
        if argument == "d":
            wanted = tuple(sizes[letter] for letter in letters)
        if shape != wanted:
            raise refuse(name, f"has shape {list(shape)}, expected {list(wanted)} of {expr}", argument=argument, code="bad_shape")
        sizes.update(zip(letters, shape))
    return sizes


def einsum_of(product_of: Callable[[], Function]) -> Function:
    name = "einsum"

    @named(name)
    def einsum(expr: str, a: Any, b: Any, d: Any, c: Any = None, use_cublaslt: bool = False, **how: Any) -> None:
        """Products of heads, or one sum over products, of 16-bit arrays."""
        sizes = _letters(name, expr, ("bhr,hdr->bhd", "bhd,hdr->bhr", "bmk,bnk->mn"), a, b, d)
        for argument, value in (("a", a), ("b", b)):
            of_type(name, argument, value, "bf16")
        of_type(name, "d", d, *(("bf16", "f32") if "mn" in expr else ("bf16",)))
        writable(name, "d", d)
        if 0 in sizes.values():
            if bare(d).size if isinstance(bare(d), np.ndarray) else bare(d).numel():
                raise refuse(name, f"have sizes {sizes}, expected none that is 0", argument="a and b", code="bad_shape")
            return
        if expr != "bmk,bnk->mn":
            if c is not None:
                raise refuse(name, f"is given, expected None with {expr}", argument="c")
            heads = []
            for head in range(sizes["h"]):
                weights = like(b, bare(b)[head])
                left = like(a, dense(bare(a)[:, head]))
                made = room(d, (sizes["b"], bare(d).shape[2]))
                product_of()(left, turned(weights) if expr.endswith("bhr") else weights, made, **how)
                heads.append(bare(made))
            for head, made in enumerate(heads):
                bare(d)[:, head] = made
            return
        if how.get("mode") == "hopper":
            raise refuse(name, "is hopper, offered are golden and fast: a GPU adds the products of this sum in no fixed order", kind=NotOffered, code="unsupported", argument="mode")
        if (c is not None) != (type_of(d) == "f32"):
            raise refuse(name, f"is {'given' if c is not None else 'None'} with d of {type_of(d)}, expected d itself with f32, None with bf16", argument="c")
        if c is not None:
            of_shape(name, "c", c, (sizes["m"], sizes["n"]))
            of_type(name, "c", c, "f32")
        in_a_row = lambda value: like(value, dense(bare(value).swapaxes(0, 1)).reshape(bare(value).shape[1], -1))
        left, right = in_a_row(a), in_a_row(b)
        if c is not None:
            write(d, with_c(fp32_product(name, left, right, how), c))
        else:
            write(d, rounded_product(left, right, d, how))

    return einsum


def fp8_einsum_of(product_of: Callable[[], Function]) -> Function:
    name = "fp8_einsum"
    turns = {  # codes and scales of both sides as [heads, rows, K], and d
        "bhr,hdr->bhd": ((1, 0, 2), (0, 1, 2), (1, 0, 2)),
        "bhd,hdr->bhr": ((1, 0, 2), (0, 2, 1), (1, 0, 2)),
        "bhd,bhr->hdr": ((1, 2, 0), (1, 2, 0), (0, 1, 2)),
    }

    @named(name)
    def fp8_einsum(expr: str, a: Any, b: Any, d: Any, c: Any = None, recipe: Any = (1, 128, 128), **how: Any) -> None:
        """Products of heads of codes with scales."""
        sides = [pair(name, "a", a), pair(name, "b", b)]
        sizes = _letters(name, expr, tuple(turns), sides[0][0], sides[1][0], d)
        of_type(name, "d", d, "bf16", "f32")
        writable(name, "d", d)
        if c is not None:
            of_shape(name, "c", c, tuple(bare(d).shape))
        if not all(sizes[letter] for letter in LETTERS[expr][2]):
            return
        for argument, (_, scales) in zip("ab", sides):
            shape_of(name, f"scales of {argument}", scales, 3)
        permuted = lambda value, order: like(value, bare(value).permute(order) if is_torch(bare(value)) else bare(value).transpose(order))
        (codes_a, scales_a), (codes_b, scales_b) = [[permuted(part, order) for part in side] for side, order in zip(sides, turns[expr])]
        target, addend = permuted(d, turns[expr][2]), None if c is None else permuted(c, turns[expr][2])
        heads, whole = [], lambda value, head: like(value, dense(bare(value)[head]))
        for argument, scales in (("a", scales_a), ("b", scales_b)):
            if bare(scales).shape[0] != bare(target).shape[0]:
                raise refuse(name, f"have {bare(scales).shape[0]} heads, expected {bare(target).shape[0]}", argument=f"scales of {argument}", code="bad_shape")
        for head in range(bare(target).shape[0]):
            made = room(d, tuple(bare(target).shape[1:]))
            left, right = [(whole(codes, head), whole(scales, head)) for codes, scales in ((codes_a, scales_a), (codes_b, scales_b))]
            product_of()(left, right, made, c=None if addend is None else whole(addend, head), recipe=recipe, **how)
            heads.append(bare(made))
        for head, made in enumerate(heads):
            bare(target)[head] = made

    return fp8_einsum


# ---- groups of K ----


def _sizes_of_groups(name: str, argument: str, ks: Any, groups: int, step: int) -> list[int]:
    try:
        sizes = [int(k) for k in ks]
        whole = all(int(k) == k and not isinstance(k, bool) for k in ks)
    except (TypeError, ValueError):
        raise refuse(name, f"is {ks!r}, expected {groups} sizes of groups", argument=argument) from None
    if not whole or len(sizes) != groups or any(k < 0 or k % step for k in sizes):
        raise refuse(name, f"is {list(ks)!r}, expected {groups} sizes, multiples of {step}", argument=argument)
    return sizes


Span = tuple[int, int]  # where a group of K begins, and how long it is


def _spans(name: str, ks_cpu: Any, grouped_layout: Any, groups: int, step: int, use_psum_layout: Any, rows: int) -> list[Span]:
    """Groups one after the other by their sizes; or, with use_psum_layout, by their ends, each beginning at the next whole alignment behind the one before."""
    if not use_psum_layout:
        ks = _sizes_of_groups(name, "ks_cpu", ks_cpu, groups, step)
        return list(zip(np.cumsum([0, *ks]).tolist(), ks))
    of_shape(name, "grouped_layout", grouped_layout, (groups,))
    of_type(name, "grouped_layout", grouped_layout, "i32")
    alignment = int(library.SETTINGS["get_mk_alignment_for_contiguous_layout"]())
    spans, end = [], 0
    for at in np.asarray(bare(grouped_layout)).tolist():
        begin = -(-end // alignment) * alignment
        if not begin <= at <= rows:
            raise refuse(name, f"holds {at}, expected ends of groups that begin at multiples of {alignment}, up to {rows}", argument="grouped_layout")
        spans.append((begin, at - begin))
        end = at
    return spans


def _d_and_c(name: str, d: Any, c: Any) -> tuple[int, int, int]:
    sizes = shape_of(name, "d", d, 3)
    of_type(name, "d", d, "f32")
    writable(name, "d", d)
    if c is None:
        raise refuse(name, "is None, expected float32 of d's shape: sums are added to it", argument="c", code="missing_argument")
    of_shape(name, "c", c, sizes)
    of_type(name, "c", c, "f32")
    return sizes  # type: ignore[return-value]


def _write_groups(d: Any, c: Any, made: list) -> None:
    """A group without terms is c's."""
    given = [bare(c)[group] for group in range(len(made))]
    for group, value in enumerate(made):
        bare(d)[group] = given[group] if value is None else bare(value)


def _in_blocks(part: Any, size: int) -> Any:
    """Columns filled up with zeros to whole blocks."""
    room = -part.shape[-1] % size
    if not is_torch(part):
        return np.pad(part, ((0, 0), (0, room))) if room else dense(part)
    if not room:
        return dense(part)
    return _torch().nn.functional.pad(part.contiguous().view(_torch().uint8), (0, room)).view(part.dtype)


def groups_of_k(name: str, product_of: Callable[[], Function]) -> Function:
    """d[g] = c[g] + a[g] b[g]^T of codes. nt: groups [M, K] one after the other; tn: [K, M], rows of groups one after the other."""
    rows_first = "_tn_" in name

    @named(name)
    def k_grouped(
        a: Any, b: Any, d: Any, ks_cpu: Any, grouped_layout: Any, c: Any = None, recipe: Any = (1, 1, BLOCK), compiled_dims: str = "mn",
        use_psum_layout: bool = False, **how: Any,
    ) -> None:  # fmt: skip
        groups, *widths = _d_and_c(name, d, c)
        size = recipe[2] if isinstance(recipe, (tuple, list)) and tuple(recipe[:2]) == (1, 1) and len(recipe) == 3 else None
        if size not in ((BLOCK, 32) if rows_first else (BLOCK,)):
            raise refuse(name, f"is {recipe!r}, offered is (1, 1, 128){', or (1, 1, 32)' if rows_first else ''}", kind=NotOffered, code="unsupported", argument="recipe")
        if use_psum_layout and not rows_first:
            raise refuse(name, "is True, expected False: groups one after the other have no ends", argument="use_psum_layout")
        rows = shape_of(name, "a", pair(name, "a", a)[0], 2)[0] if rows_first else 0
        spans = _spans(name, ks_cpu, grouped_layout, groups, 32 if rows_first else BLOCK, use_psum_layout, rows)
        whole = rows if use_psum_layout else sum(k for _, k in spans)
        blocks = np.cumsum([0, *(-(-k // size) for _, k in spans)]).tolist()
        sides = []
        for argument, value, width in (("a", a, widths[0]), ("b", b, widths[1])):
            codes, scales = pair(name, argument, value)
            of_type(name, argument, codes, "f8_e4m3")
            of_type(name, f"scales of {argument}", scales, "f32")
            of_shape(name, argument, codes, (whole, width) if rows_first else (whole * width,))
            of_shape(name, f"scales of {argument}", scales, (blocks[-1], width) if rows_first else (width, blocks[-1]))
            sides.append((codes, scales if not rows_first else turned(scales), width))
        made = []
        for group, (begin, k) in enumerate(spans):
            if not k or 0 in widths:
                made.append(None)
                continue
            parts = []
            for codes, scales, width in sides:
                if rows_first:
                    part = bare(codes)[begin : begin + k].swapaxes(0, 1)
                else:
                    part = bare(codes)[begin * width : (begin + k) * width].reshape(width, k)
                parts.append((like(codes, _in_blocks(part, size)), like(scales, dense(bare(scales)[:, blocks[group] : blocks[group + 1]]))))
            made.append(room(d, tuple(widths)))
            product_of()(*parts, made[-1], c=like(c, dense(bare(c)[group])), recipe=(1, 1, size), **how)
        _write_groups(d, c, made)

    return k_grouped


@named("k_grouped_bf16_gemm_tn_contiguous")
def k_grouped_bf16_gemm_tn_contiguous(
    a: Any, b: Any, d: Any, ks_cpu: Any, grouped_layout: Any, c: Any = None, compiled_dims: str = "mn", use_psum_layout: bool = False, **how: Any
) -> None:
    """d[g] = c[g] + a[g]^T b[g]; a [K, M] and b [K, N] have the groups' rows one after the other."""
    name = "k_grouped_bf16_gemm_tn_contiguous"
    groups, *widths = _d_and_c(name, d, c)
    rows = shape_of(name, "a", a, 2)[0]
    spans = _spans(name, ks_cpu, grouped_layout, groups, 32, use_psum_layout, rows)
    for argument, value, width in (("a", a, widths[0]), ("b", b, widths[1])):
        of_shape(name, argument, value, (rows if use_psum_layout else sum(k for _, k in spans), width))
        of_type(name, argument, value, "bf16")
    made = []
    for group, (begin, k) in enumerate(spans):
        left, right = (like(value, bare(value)[begin : begin + k].swapaxes(0, 1)) for value in (a, b))
        made.append(with_c(fp32_product(name, left, right, how), like(c, bare(c)[group])) if k and 0 not in widths else None)
    _write_groups(d, c, made)


@named("get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor")
def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: Any, grouped_layout: Any, ks_cpu: Any, gran_k: int = BLOCK, k_alignment: int = BLOCK, use_psum_layout: bool = False
) -> Any:
    """Scales [K, MN] of groups of K as words of four exponents, each group's in words of its own."""
    name = "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor"
    rows, columns = shape_of(name, "sf", sf, 2)
    of_type(name, "sf", sf, "f32")
    if gran_k not in (32, BLOCK):
        raise refuse(name, f"is {gran_k!r}, expected 32 or 128", argument="gran_k")
    (groups,) = shape_of(name, "grouped_layout", grouped_layout, 1)
    if use_psum_layout:
        ends, begins = np.asarray(bare(grouped_layout)).astype(np.int64), [0]
        begins += [-(-int(end) // k_alignment) * k_alignment for end in ends[:-1]]
        ks = [int(end) - begin for begin, end in zip(begins, ends)]
    else:
        ks = _sizes_of_groups(name, "ks_cpu", ks_cpu, groups, 1)
    blocks = [-(-k // gran_k) for k in ks]
    if sum(blocks) != rows or min(ks, default=0) < 0:
        given = "grouped_layout" if use_psum_layout else "ks_cpu"
        raise refuse(name, f"has {rows} rows, expected {sum(blocks)} for {given}", argument="sf", code="bad_shape")
    values = np.asarray(bare(sf))
    ends = np.cumsum([0, *blocks])
    words = [library.packed_exponents(values[begin:end].T).T for begin, end in zip(ends, ends[1:])]
    packed = np.concatenate([*words, np.empty((0, columns), np.int32)])
    return as_given(np.ascontiguousarray(packed), bare(sf))


# Versions before 2.3 have neither of both: a call may leave them out, whatever the newer signature says.
_WITHOUT = inspect.signature(get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor)
get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor.__signature__ = _WITHOUT.replace(
    parameters=[p.replace(default=p.empty) if p.name in ("gran_k", "k_alignment") else p for p in _WITHOUT.parameters.values()]
)


# ---- names of the first versions ----


def first_names(product: Callable[[], Function], contiguous: Callable[[], Function], masked: Callable[[], Function], groups: Function) -> tuple[Function, ...]:
    @named("gemm_fp8_fp8_bf16_nt")
    def gemm_fp8_fp8_bf16_nt(lhs: Any, rhs: Any, out: Any, **how: Any) -> None:
        product()(lhs, rhs, out, **how)

    @named("m_grouped_gemm_fp8_fp8_bf16_nt_contiguous")
    def m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(lhs: Any, rhs: Any, out: Any, m_indices: Any, **how: Any) -> None:
        contiguous()(lhs, rhs, out, m_indices, **how)

    @named("m_grouped_gemm_fp8_fp8_bf16_nt_masked")
    def m_grouped_gemm_fp8_fp8_bf16_nt_masked(lhs: Any, rhs: Any, out: Any, masked_m: Any, expected_m: int, **how: Any) -> None:
        masked()(lhs, rhs, out, masked_m, expected_m, **how)

    @named("wgrad_gemm_fp8_fp8_fp32_nt")
    def wgrad_gemm_fp8_fp8_fp32_nt(lhs: Any, rhs: Any, out: Any, **how: Any) -> None:
        """Added to out. Scales are [rows, K], or [K, rows], which they are where they could be either."""
        name = "wgrad_gemm_fp8_fp8_fp32_nt"
        sides = []
        for argument, value in (("lhs", lhs), ("rhs", rhs)):
            codes, scales = pair(name, argument, value)
            (rows, k), shape = shape_of(name, argument, codes, 2), shape_of(name, f"scales of {argument}", scales, 2)
            wanted = (rows, -(-k // BLOCK))
            if shape not in (wanted, wanted[::-1]):
                raise refuse(name, f"has shape {list(shape)}, expected {list(wanted)}", argument=f"scales of {argument}", code="bad_shape")
            sides.append((codes, turned(scales) if shape == wanted[::-1] else scales))
        product()(*sides, out, c=out, recipe=(1, 1, BLOCK), **how)

    @named("k_grouped_wgrad_gemm_fp8_fp8_fp32_nt")
    def k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(lhs: Any, rhs: Any, out: Any, batch_sizes: Any, **how: Any) -> None:
        """Added to out. Scales are [K, rows]."""
        name = "k_grouped_wgrad_gemm_fp8_fp8_fp32_nt"
        sides = [(codes, turned(scales)) for codes, scales in (pair(name, "lhs", lhs), pair(name, "rhs", rhs))]
        groups(*sides, out, batch_sizes, None, out, **how)

    return (
        gemm_fp8_fp8_bf16_nt, m_grouped_gemm_fp8_fp8_bf16_nt_contiguous, m_grouped_gemm_fp8_fp8_bf16_nt_masked, wgrad_gemm_fp8_fp8_fp32_nt,
        k_grouped_wgrad_gemm_fp8_fp8_fp32_nt,
    )  # fmt: skip
