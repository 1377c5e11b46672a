"""DeepGEMM's products and logits: pairs of codes and scales, recipes, orders of memory, and groups of rows."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ..._arrays import dtype_name, is_torch
from .. import _deep_gemm as library
from .._adapt import Call, NotOffered, refuse
from .._layouts import as_given
from .arrays import Run, as_f32, bare, closed_up, dense, dense_copy, last_stride, like, rounded, type_of
from .checks import writable

BLOCK = 128  # rows that have one group


def pair(name: str, argument: str, value: Any) -> tuple[Any, Any]:
    """Codes and their scales."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        found = f"has {len(value)} members" if isinstance(value, (tuple, list)) else f"is {value.dtype} {list(value.shape)}" if hasattr(value, "shape") else f"is {value!r}"
        raise refuse(name, f"{found}, expected a pair of codes and scales", argument=argument, code="bad_dtype")
    for part in value:
        if not hasattr(bare(part), "shape"):
            raise refuse(name, f"holds {part!r}, expected arrays", argument=argument, code="bad_dtype")
    return value[0], value[1]


def turned(value: Any) -> Any:
    return like(value, bare(value).swapaxes(-1, -2))


def rows_together(value: Any) -> Any:
    """Columns of a row as neighbours, copied where they are not: the orders of memory in which upstream takes matrices give the same numbers."""
    return value if last_stride(bare(value)) == 1 else like(value, dense(bare(value)))


def whole(value: Any) -> Any:
    return like(value, dense(bare(value)))


def sizes_of(name: str, call: Call, exponents: bool) -> tuple[int, int]:
    """Rows of b and columns that share a scale, from the recipe or the two of both sides."""
    recipe, sides = call.pop("recipe"), (call.pop("recipe_a", None), call.pop("recipe_b", None))
    if isinstance(sides[0], str):  # versions before 2.2 have compiled_dims in this place
        sides = (None, None)
    if (sides[0] is None) != (sides[1] is None) or (sides[0] is not None and recipe is not None):
        raise refuse(name, f"is {recipe!r} with recipe_a={sides[0]!r} and recipe_b={sides[1]!r}, expected the one or the two others", argument="recipe")
    given = (1, 1 if exponents else BLOCK, BLOCK) if recipe is None else recipe
    try:
        rows_a, rows_b, columns = given if sides[0] is None else (sides[0][0], sides[1][0], sides[0][1])
    except (TypeError, ValueError, IndexError):
        raise refuse(name, f"is {given!r}, expected (rows of a, rows of b, K)", argument="recipe") from None
    other = columns if sides[0] is None else sides[1][1]
    if (rows_a, columns, other) != (1, BLOCK, BLOCK) or rows_b not in (1, BLOCK):
        text = f"is ({rows_a}, {rows_b}, {columns}), offered are (1, 128, 128) and (1, 1, 128): codes of e4m3 that share a scale by 128 of K"
        raise refuse(name, text, kind=NotOffered, code="unsupported", argument="recipe")
    return rows_b, columns


def words_of(scales: Any) -> bool:
    return type_of(scales) == "i32"


def as_numbers(scales: Any, columns: int) -> Any:
    """Exponents in words as the fp32 numbers that they stand for."""
    array = bare(scales)
    words = array.numpy() if is_torch(array) else np.asarray(array)
    return as_given(library.unpacked_exponents(words, columns), array)


def operands(name: str, call: Call, turn: str) -> None:
    """a, sfa, b, sfb and the recipe in our op's words. `turn` names what comes with its last two dimensions the other way."""
    (a, sfa), (b, sfb) = pair(name, "a", call.pop("a")), pair(name, "b", call.pop("b"))
    a, sfa = (turned(a), turned(sfa)) if "a" in turn else (a, sfa)
    b, sfb = (turned(b), turned(sfb)) if "b" in turn else (b, sfb)
    for argument, codes in (("a", a), ("b", b)):
        if type_of(codes) == "i8":
            raise refuse(name, "is packed e2m1, offered is e4m3", kind=NotOffered, code="unsupported", argument=argument)
    both = words_of(sfa) and words_of(sfb)
    rows_b, columns = sizes_of(name, call, words_of(sfb))
    if not both and (words_of(sfa) or words_of(sfb)):
        blocks = -(-bare(a).shape[-1] // columns)
        sfa, sfb = (as_numbers(scales, blocks) if words_of(scales) else scales for scales in (sfa, sfb))
    call.pop("compiled_dims")
    if not isinstance(cast := call.pop("disable_ue8m0_cast"), (bool, np.bool_, int)):
        raise refuse(name, f"is {cast!r}, expected True or False", argument="disable_ue8m0_cast")
    call.update(a=rows_together(a), sfa=sfa, b=rows_together(b), sfb=sfb, gran_n=rows_b, scale_ue8m0=both)


def no_terms(call: Call) -> bool:
    """Nothing to multiply: d is c, or zeros, as upstream leaves it."""
    d, (rows, inner), columns = bare(call["d"]), bare(call["a"]).shape[-2:], bare(call["b"]).shape[-2]
    if rows and columns and inner:
        return False
    if rows and columns and hasattr(d, "shape"):
        d[...] = 0 if call.get("c") is None else bare(call["c"])
    return True


def added_behind(name: str, run: Callable[[Any], None], d: Any, c: Any) -> None:
    """d = c + the rounded product, rounded again: kernels store what they rounded by transfers that add it to d, which is c then."""
    if tuple(getattr(bare(c), "shape", ())) != tuple(bare(d).shape) or type_of(d) != type_of(c):
        found = f"is {bare(c).dtype} {list(bare(c).shape)}" if hasattr(bare(c), "shape") else f"is {c!r}"
        raise refuse(name, f"{found}, expected {bare(d).dtype} {list(bare(d).shape)} as d is", argument="c", code="bad_shape")
    writable(name, "d", d)
    array = bare(d)
    made = array.new_empty(tuple(array.shape)) if is_torch(array) else np.empty(array.shape, array.dtype)
    run(like(d, made))
    sums = rounded(as_f32(made) + as_f32(bare(c)), type_of(d))
    array[...] = sums if is_torch(sums) else sums.view(array.dtype)


def product(name: str, turn: str = "") -> Callable[[Run, Call], None]:
    """d = a b^T, and c added where it is given."""

    def around(run: Run, call: Call) -> None:
        operands(name, call, turn)
        c = call["c"]
        if c is not None and type_of(c) in ("bf16", "f16"):
            added_behind(name, lambda made: product_of(run, {**call, "c": None, "d": made}), call["d"], c)
            return
        if c is not None and hasattr(bare(c), "shape"):
            call["c"] = dense_copy(bare(c))  # it may be d
        product_of(run, call)

    def product_of(run: Run, call: Call) -> None:
        if bare(call["a"]).ndim == bare(call["b"]).ndim == 2 and no_terms(call):
            return
        run(call)

    return around


def with_room_in_heads(run: Run, call: Call) -> None:
    """Of each head's columns the first `left` and the last `right` stand `mid` apart in d; what lies between stays."""
    name, splits = "fp8_gemm_nt_skip_head_mid", call.pop("head_splits")
    try:
        left, mid, right = (int(part) for part in splits)
    except (TypeError, ValueError):
        raise refuse(name, f"is {splits!r}, expected (left, mid, right)", argument="head_splits") from None
    d, weights = call["d"], pair(name, "b", call["b"])[0]
    columns, width = bare(weights).shape[0], left + right
    wanted = columns + columns // max(width, 1) * mid
    if min(left, mid, right) < 0 or width < 1 or columns % width or bare(d).ndim != 2 or bare(d).shape[1] != wanted:
        text = f"is {(left, mid, right)}, with {columns} rows of b and d of {list(bare(d).shape)}: expected heads of left + right, and d of {wanted} columns"
        raise refuse(name, text, argument="head_splits")
    heads, rows = columns // width, bare(d).shape[0]
    dense_d = bare(d).new_empty((rows, columns)) if is_torch(bare(d)) else np.empty((rows, columns), bare(d).dtype)
    product(name)(run, {**call, "d": like(d, dense_d), "c": None})
    target, together = bare(d), dense_d.reshape(rows, heads, width)
    for head in range(heads):
        begin = head * (width + mid)
        target[:, begin : begin + left] = together[:, head, :left]
        target[:, begin + left + mid : begin + width + mid] = together[:, head, left:]


# ---- groups of rows ----


def groups_by_row(name: str, call: Call, rows: int, groups: int) -> np.ndarray:
    """The group of each row, -1 for padding."""
    array = bare(call.pop("grouped_layout"))
    if not hasattr(array, "shape") or len(array.shape) != 1 or type_of(array) != "i32":
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected int32 of one dimension", argument="grouped_layout", code="bad_dtype")
    layout = np.asarray(array)
    if not call.pop("use_psum_layout"):
        return layout
    if len(layout) != groups:
        raise refuse(name, f"has {len(layout)} ends, expected {groups}, one of each group", argument="grouped_layout", code="bad_shape")
    alignment = library.SETTINGS["get_mk_alignment_for_contiguous_layout"]()
    of_row, begin = np.full(rows, -1, np.int32), 0
    for group, end in enumerate(int(end) for end in layout):
        if not begin <= end <= rows:
            raise refuse(name, f"is {layout.tolist()}, expected ends that rise to at most {rows}", argument="grouped_layout")
        of_row[begin:end] = group
        begin = -(-end // alignment) * alignment
    return of_row


def one_group_a_block(of_row: np.ndarray) -> bool:
    for begin in range(0, len(of_row), BLOCK):
        if len(set(of_row[begin : begin + BLOCK].tolist()) - {-1}) > 1 or of_row[begin] == -1 and (of_row[begin : begin + BLOCK] != -1).any():
            return False
    return True


def in_whole_blocks(of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in an order that gives each block of 128 one group, -1 where a block is filled up, and the groups of those places."""
    places, groups = [], []
    for group in sorted(set(of_row.tolist()) - {-1}):
        rows = np.flatnonzero(of_row == group)
        room = -len(rows) % BLOCK
        places += [rows, np.full(room, -1)]
        groups += [np.full(len(rows), group), np.full(room, -1)]
    if not places:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    return np.concatenate(places), np.concatenate(groups).astype(np.int32)


def taken_rows(value: Any, rows: np.ndarray) -> Any:
    array = bare(value)
    return like(value, array[as_given(rows.astype(np.int64), array)])


def contiguous_groups(name: str, turn: str = "") -> Callable[[Run, Call], None]:
    """Rows of d whose group is -1 are unspecified, and 0 here."""

    def around(run: Run, call: Call) -> None:
        expected = call.pop("expected_m_for_psum_layout", None)
        if expected is not None and not call["use_psum_layout"]:
            raise refuse(name, "is given, expected None without use_psum_layout", argument="expected_m_for_psum_layout")
        call.pop("ensure_zero_padding")
        operands(name, call, turn)
        a, b = bare(call["a"]), bare(call["b"])
        if a.ndim != 2 or b.ndim != 3:
            raise refuse(name, f"have shapes {list(a.shape)} and {list(b.shape)}, expected [M, K] and [G, N, K]", argument="a and b", code="bad_shape")
        of_row = groups_by_row(name, call, a.shape[0], b.shape[0])
        if not a.shape[0]:
            return
        call.update(a=whole(call["a"]), b=whole(call["b"]))
        if len(of_row) != a.shape[0] or one_group_a_block(of_row):
            run({**call, "m_indices": as_given(np.ascontiguousarray(of_row), a)})
            return
        places, groups = in_whole_blocks(of_row)
        d = bare(call["d"])
        stray = sorted(set(groups.tolist()) - {-1} - set(range(b.shape[0])))
        if stray or tuple(d.shape) != (a.shape[0], b.shape[1]):
            text = f"names group {stray[0]} of {b.shape[0]}" if stray else f"has shape {list(d.shape)}, expected {[a.shape[0], b.shape[1]]}"
            raise refuse(name, text, argument="grouped_layout" if stray else "d", code="bad_value" if stray else "bad_shape")
        rows = np.maximum(places, 0)
        made = d.new_empty((len(rows), d.shape[1])) if is_torch(d) else np.empty((len(rows), d.shape[1]), d.dtype)
        run({**call, "a": taken_rows(call["a"], rows), "sfa": taken_rows(call["sfa"], rows), "d": like(call["d"], made), "m_indices": as_given(groups, a)})
        real = np.flatnonzero(groups >= 0)
        d[...] = 0
        d[as_given(places[real], d)] = made[as_given(real, made)]

    return around


def masked_groups(name: str) -> Callable[[Run, Call], None]:
    def around(run: Run, call: Call) -> None:
        operands(name, call, "")
        call.update(a=whole(call["a"]), b=whole(call["b"]))
        run(call)

    return around


# ---- 16-bit products ----


def sixteen_bits(name: str, turn: str, in_fp32: Callable[..., None]) -> Callable[[Run, Call], None]:
    """d = a b^T, in bf16 or fp32; our op's b is [K, N]. With c sums are in fp32."""

    def around(run: Run, call: Call) -> None:
        call.pop("compiled_dims")
        a, b, c = call["a"], call["b"], call.pop("c")
        a, b = turned(a) if "a" in turn else a, turned(b) if "b" in turn else b
        if type_of(call["d"]) == "f32":
            if call.get("bias") is not None:
                raise refuse(name, "is given, expected None with float32", argument="bias")
            in_fp32(name, a, b, call["d"], c, {key: call[key] for key in ("mode", "gpu", "threads")})
            return
        multiply = lambda d: run({**call, "a": a, "b": turned(b), "d": d})
        multiply(call["d"]) if c is None else added_behind(name, multiply, call["d"], c)

    return around


# ---- logits of the indexer ----


def _codes_alone(name: str, q: Any) -> Any:
    if not isinstance(q, (tuple, list)) or len(q) != 2:
        raise refuse(name, "is no pair, expected (codes, None)", argument="q", code="bad_dtype")
    if q[1] is not None:
        raise refuse(name, "has scales, which are of packed e2m1: offered is (codes of e4m3, None)", kind=NotOffered, code="unsupported", argument="q")
    return q[0]


def _in_f32(name: str, call: Call) -> None:
    if dtype_name(kind := call.pop("logits_dtype")) != "f32":
        raise refuse(name, f"is {kind}, offered is float32", kind=NotOffered, code="unsupported", argument="logits_dtype")


def logits_of_ranges(name: str, with_scales: bool = False) -> Callable[[Run, Call], Any]:
    """With max_seqlen_k the columns of a row begin at its first key."""

    def around(run: Run, call: Call) -> Any:
        if with_scales:
            call["q"] = _codes_alone(name, call["q"])
            _in_f32(name, call)
        call["kv"], call["kv_sf"] = pair(name, "kv", call["kv"])
        width = call.pop("max_seqlen_k")
        if not width:
            return run(call)
        if call["clean_logits"]:
            raise refuse(name, "is True, expected False with max_seqlen_k", argument="clean_logits")
        scores = bare(run(call))
        starts = np.asarray(bare(call["cu_seq_len_k_start"])).astype(np.int64)
        columns = starts[:, None] + np.arange(int(width))
        inside = np.minimum(columns, max(scores.shape[1] - 1, 0))
        return scores.gather(1, as_given(inside, scores)) if is_torch(scores) else np.take_along_axis(scores, inside, 1)

    return around


def logits_of_pages(name: str, with_scales: bool = False) -> Callable[[Run, Call], Any]:
    """Lengths may be those of each query, [B, Q]: its request then has that one query."""

    def around(run: Run, call: Call) -> Any:
        if with_scales:
            call["q"] = _codes_alone(name, call["q"])
            _in_f32(name, call)
        if call.pop("indices") is not None:
            raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="indices")
        call["fused_kv_cache"] = closed_up(call.pop("kv_cache"))
        if (pages := bare(call["fused_kv_cache"])).ndim == 4 and pages.shape[1] == 32:
            raise refuse(name, "has pages of 32 keys, offered are 64", kind=NotOffered, code="unsupported", argument="kv_cache")
        lengths, q = bare(call["context_lens"]), bare(call["q"])
        if getattr(lengths, "ndim", 1) == 2:
            if getattr(q, "ndim", 0) != 4 or tuple(lengths.shape) != tuple(q.shape[:2]):
                text = f"has shape {list(lengths.shape)}, expected {list(q.shape[:2])}, or {list(q.shape[:1])}"
                raise refuse(name, text, argument="context_lens", code="bad_shape")
            each = np.repeat(np.arange(q.shape[0]), q.shape[1])
            call["q"] = like(call["q"], dense(q).reshape(q.shape[0] * q.shape[1], 1, *q.shape[2:]))
            call["block_table"] = taken_rows(call["block_table"], each)
            call["context_lens"] = dense(lengths.reshape(-1))
        return run(call)

    return around


def get_paged_mqa_logits_metadata(context_lens: Any, block_kv: int, num_sms: int, indices: Any = None) -> Any:
    """[num_sms + 1, 2]: the query and the 256 keys at which each multiprocessor begins. Without effect on what is computed here."""
    name, lengths = "get_paged_mqa_logits_metadata", bare(context_lens)
    if indices is not None:
        raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="indices")
    if not hasattr(lengths, "shape") or len(lengths.shape) not in (1, 2) or type_of(lengths) != "i32":
        found = f"is {lengths.dtype} {list(lengths.shape)}" if hasattr(lengths, "shape") else f"is {lengths!r}"
        raise refuse(name, f"{found}, expected int32 of one or two dimensions", argument="context_lens", code="bad_dtype")
    for argument, value, wanted in (("block_kv", block_kv, "32 or 64"), ("num_sms", num_sms, "a positive number")):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1 or argument == "block_kv" and value not in (32, 64):
            raise refuse(name, f"is {value!r}, expected {wanted}", argument=argument)
    queries = lengths.shape[1] if len(lengths.shape) == 2 else 1
    last = np.asarray(lengths).reshape(-1, queries)[:, -1].astype(np.int64)
    pairs = -(-queries // 2)  # two queries at a time
    ends = np.cumsum(-(-last // 256)) * pairs
    total = int(ends[-1]) if len(ends) else 0
    share, left = divmod(total, int(num_sms))
    made = np.zeros((int(num_sms) + 1, 2), np.int32)
    for part in range(int(num_sms) + 1):
        start = part * share + max(part - (int(num_sms) - left), 0)
        request = int(np.searchsorted(ends, start, side="right"))
        if request == len(ends):
            made[part] = (len(ends) * pairs, 0)
            continue
        begin = int(ends[request - 1]) if request else 0
        blocks = max((int(ends[request]) - begin) // pairs, 1)
        made[part] = (request * pairs + (start - begin) // blocks, (start - begin) % blocks)
    return as_given(made, lengths)


def grouped_sixteen_bits(name: str, product_of: Callable[[], Callable[..., Any]], turn: str = "") -> Callable[..., None]:
    """Each group's rows as one product."""

    def m_grouped(a: Any, b: Any, d: Any, grouped_layout: Any, compiled_dims: str = "nk", use_psum_layout: bool = False,
                  ensure_zero_padding: bool = True, expected_m_for_psum_layout: Optional[int] = None, **how: Any) -> None:  # fmt: skip
        for argument, value, rank in (("a", a, 2), ("b", b, 3), ("d", d, 2)):
            if getattr(bare(value), "ndim", None) != rank:
                found = f"has shape {list(bare(value).shape)}" if hasattr(bare(value), "shape") else f"is {value!r}"
                raise refuse(name, f"{found}, expected {rank} dimensions", argument=argument, code="bad_shape")
        if tuple(bare(d).shape) != (bare(a).shape[0], bare(b).shape[2 if turn else 1]):
            text = f"has shape {list(bare(d).shape)}, expected {[bare(a).shape[0], bare(b).shape[2 if turn else 1]]}"
            raise refuse(name, text, argument="d", code="bad_shape")
        call = {"grouped_layout": grouped_layout, "use_psum_layout": use_psum_layout}
        of_row = groups_by_row(name, call, bare(a).shape[0], bare(b).shape[0])
        if len(of_row) != bare(a).shape[0] or (of_row >= bare(b).shape[0]).any():
            text = f"has {len(of_row)} rows up to group {of_row.max(initial=-1)}, expected {bare(a).shape[0]} rows of {bare(b).shape[0]} groups"
            raise refuse(name, text, argument="grouped_layout", code="bad_shape")
        bare(d)[...] = 0
        for group in sorted(set(of_row.tolist()) - {-1}):
            rows = np.flatnonzero(of_row == group)
            part = taken_rows(a, rows)
            made = bare(d).new_empty((len(rows), bare(d).shape[1])) if is_torch(bare(d)) else np.empty((len(rows), bare(d).shape[1]), bare(d).dtype)
            product_of()(part, like(b, bare(b)[group]), like(d, made), **how)
            bare(d)[as_given(rows.astype(np.int64), bare(d))] = made

    def without_expected_rows(a: Any, b: Any, d: Any, grouped_layout: Any, compiled_dims: str = "nk", use_psum_layout: bool = False,
                              ensure_zero_padding: bool = True, **how: Any) -> None:  # fmt: skip
        m_grouped(a, b, d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding, **how)

    made = without_expected_rows if turn else m_grouped
    made.__name__ = made.__qualname__ = name
    return made


def masked_sixteen_bits(product_of: Callable[[], Callable[..., Any]]) -> Callable[..., None]:
    name = "m_grouped_bf16_gemm_nt_masked"

    def m_grouped_bf16_gemm_nt_masked(a: Any, b: Any, d: Any, masked_m: Any, expected_m: int, compiled_dims: str = "nk", **how: Any) -> None:
        """The first masked_m rows of each group."""
        for argument, value in (("a", a), ("b", b), ("d", d)):
            if getattr(bare(value), "ndim", None) != 3:
                found = f"has shape {list(bare(value).shape)}" if hasattr(bare(value), "shape") else f"is {value!r}"
                raise refuse(name, f"{found}, expected [G, rows, columns]", argument=argument, code="bad_shape")
        counts = np.asarray(bare(masked_m)).reshape(-1)
        groups, most = bare(a).shape[:2]
        if counts.dtype != np.int32 or len(counts) != groups or ((counts < 0) | (counts > most)).any():
            raise refuse(name, f"is {counts.dtype} {counts.tolist()}, expected int32 of {groups} numbers up to {most}", argument="masked_m")
        for group, count in enumerate(counts.tolist()):
            if count:
                part = lambda value: like(value, bare(value)[group][:count])  # noqa: B023
                product_of()(part(a), like(b, bare(b)[group]), part(d), **how)

    return m_grouped_bf16_gemm_nt_masked
