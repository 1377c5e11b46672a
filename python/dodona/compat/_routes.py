"""FlashInfer's routes of tokens to experts that are functions of their own: by a table of tokens, and what stands before its mixtures of experts. In
NumPy, in fp32; DeepSeek's groups are biased_grouped_topk."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .._arrays import is_torch, like_torch, numpy_dtype
from .._ops import function
from ._adapt import NotOffered, named, refuse
from ._hooks.arrays import as_f32, bare, rounded
from ._hooks.checks import of_shape, of_type, shape_of
from ._layouts import as_given

TINY = np.float32(1e-20)


def _exp(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + _exp(-x.astype(np.float64)))).astype(np.float32)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = _exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _array(value: Any) -> np.ndarray:
    wide = as_f32(bare(value))
    return np.asarray(wide.detach() if is_torch(wide) else wide, np.float32)


def _is_dense(array: Any) -> bool:
    return array.is_contiguous() if is_torch(array) else array.flags.c_contiguous


# ---- by a table ----


@named("hash_topk")
def hash_topk(
    router_logits: Any, input_ids: Any, tid2eid: Any, num_fused_shared_experts: int = 0, routed_scaling_factor: float = 1.0, launch_with_pdl: bool = True
) -> tuple[Any, Any]:
    """The experts that a table has for each token's word; weights sqrt(log(1 + e^logit)) over their sum, and last the shared expert with 1 / factor."""
    name = "hash_topk"
    (tokens, experts), (words, chosen) = shape_of(name, "router_logits", router_logits, 2), shape_of(name, "tid2eid", tid2eid, 2)
    of_shape(name, "input_ids", input_ids, (tokens,))
    for argument, value, kind in (("router_logits", router_logits, "f32"), ("input_ids", input_ids, "i64"), ("tid2eid", tid2eid, "i32")):
        of_type(name, argument, value, kind)
        if not _is_dense(bare(value)):
            raise refuse(name, f"{argument} must be contiguous", argument=argument, code="bad_layout")
    if num_fused_shared_experts not in (0, 1):
        raise refuse(name, f"is {num_fused_shared_experts!r}, expected 0 or 1", argument="num_fused_shared_experts")
    if not 1 <= chosen <= 32 - num_fused_shared_experts or experts < 1:
        raise refuse(name, f"has {chosen} experts a word, expected 1 to 32 with the shared one", argument="tid2eid", code="bad_shape")
    factor = float(routed_scaling_factor)
    if num_fused_shared_experts and not (math.isfinite(factor) and factor > 0):
        raise refuse(name, f"is {routed_scaling_factor!r}, expected a positive finite number beside a shared expert", argument="routed_scaling_factor")
    table, places = np.asarray(bare(tid2eid)), np.asarray(bare(input_ids))
    if len(places) and not 0 <= places.min() <= places.max() < words:
        raise refuse(name, f"holds {places.min() if places.min() < 0 else places.max()}, expected words below {words}", argument="input_ids")
    ids = table[places].reshape(tokens, chosen)
    if ids.size and not 0 <= ids.min() <= ids.max() < experts:
        raise refuse(name, f"names expert {ids.min() if ids.min() < 0 else ids.max()} of {experts}", argument="tid2eid")
    scores = np.sqrt(np.logaddexp(0, np.take_along_axis(np.asarray(bare(router_logits)).astype(np.float64), ids.astype(np.int64), 1)))
    weights = scores / scores.sum(1, keepdims=True)
    shared = np.full((tokens, num_fused_shared_experts), experts, np.int32)
    made = np.concatenate([weights, np.full(shared.shape, 1 / factor if shared.size else 0.0)], axis=1).astype(np.float32)
    return as_given(made, bare(router_logits)), as_given(np.concatenate([ids.astype(np.int32), shared], axis=1), bare(router_logits))


# ---- before mixtures of experts ----


class TrtllmGenRoutingResult(NamedTuple):
    """Experts and weights of tokens, and where their rows stand: each expert's in whole tiles, one expert after another."""

    topk_ids: Any
    topk_weights: Any
    total_num_padded_tokens: Any
    expanded_idx_to_permuted_idx: Any
    permuted_idx_to_token_idx: Any
    cta_idx_xy_to_batch_idx: Any
    cta_idx_xy_to_mn_limit: Any
    num_non_exiting_ctas: Any


def _max_num_ctas_in_batch_dim(num_tokens: int, top_k: int, num_experts: int, tile_tokens_dim: int) -> int:
    """Tiles that any routes need: one for each expert that has a row, and whole ones of the rows beyond."""
    rows = num_tokens * top_k
    return min(num_experts, rows) + max(rows - num_experts, 0) // tile_tokens_dim


def max_num_padded_tokens(num_tokens: int, top_k: int, num_experts: int, tile_tokens_dim: int) -> int:
    """Their rows."""
    return _max_num_ctas_in_batch_dim(num_tokens, top_k, num_experts, tile_tokens_dim) * tile_tokens_dim


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Places by falling score, of equal ones the first first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / (weights.sum(1, keepdims=True) + TINY)


# What each method ranks by, of logits and bias, and what weights it makes of the logits that are chosen.
METHODS: dict[str, tuple[Callable, Callable]] = {
    "renormalize": (lambda x, bias: x, _softmax),
    "llama4": (lambda x, bias: x, _sigmoid),
    "renormalize_naive": (lambda x, bias: x, _softmax),
    "topk": (lambda x, bias: x, lambda x: x),
    "sigmoid_renorm": (lambda x, bias: _sigmoid(x), lambda x: _shares(_sigmoid(x))),
    "minimax2": (lambda x, bias: _sigmoid(x) + bias, lambda x: _shares(_sigmoid(x))),
    "sigmoid": (lambda x, bias: _sigmoid(x), _sigmoid),
    "topk_sigmoid": (lambda x, bias: x, _sigmoid),
}
NAMES = ("default", "renormalize", "deepseek_v3", "llama4", "renormalize_naive", "topk", "sigmoid_renorm", "minimax2", "sigmoid", "topk_sigmoid")


def _method(name: str, routing_method: Any) -> str:
    number = getattr(routing_method, "value", routing_method)
    number = number[0] if isinstance(number, tuple) else number
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(NAMES):
        raise refuse(name, f"is {routing_method!r}, expected a concrete RoutingMethodType", argument="routing_method")
    return NAMES[number]


def _check_groups(name: str, method: str, experts: int, top_k: int, groups: int, kept: int, shared: int) -> None:
    """In upstream's words, which callers look for."""

    def no(text: str, argument: str) -> None:
        raise refuse(name, text, argument=argument)

    if method != "deepseek_v3":
        if groups > 1 or kept > 1:
            no(f"is {groups} with topk_group {kept}: Current routing kernel (no groups) only supports n_group <= 1", "n_group")
    elif groups == 0:
        no("n_group should not be zero for DeepSeekV3 routing", "n_group")
    elif kept == 0:
        no("if n_group is given, topk_group must be given", "topk_group")
    elif experts % groups:
        no(f"num_experts must be divisible by n_group: {experts} by {groups}", "n_group")
    elif top_k > (most := 8 if experts <= 384 else 22):
        no(f"is {top_k}: Current routing kernel (with groups) only supports top_k<={most} for num_experts={experts}", "top_k")
    elif not 0 < kept <= 4:
        no(f"is {kept}: Current routing kernel (with groups) only supports 0 < topk_group <= 4", "topk_group")
    elif kept > groups:
        no(f"is {groups}: n_group must not be smaller than topk_group, {kept}", "n_group")
    elif top_k >= kept * experts // groups:
        no(f"is {top_k}: top_k must be less than total number of experts in selected groups, {kept * experts // groups}", "top_k")
    if shared and (method != "deepseek_v3" or groups <= 1):
        no(f"is {shared}: {method} does not support fusing shared expert", "num_fused_shared_experts")


def _chosen(method: str, logits: np.ndarray, bias: np.ndarray, top_k: int, groups: int, kept: int, factor: float, norm: bool) -> tuple[np.ndarray, np.ndarray]:
    """Experts and fp32 weights."""
    if method == "deepseek_v3":
        weights, ids = function("biased_grouped_topk")(
            logits, bias, top_k, True, groups, kept, routed_scaling_factor=factor, apply_routed_scaling_factor_on_output=True
        )
        return np.asarray(ids), np.asarray(weights)
    if method == "default":
        scores = _softmax(logits)
        ids = _largest(scores, top_k)
        return ids, np.take_along_axis(scores, ids, 1)
    rank, weigh = METHODS["sigmoid" if method == "sigmoid_renorm" and not norm else method]
    ids = _largest(rank(logits, bias), top_k)
    weights = weigh(np.take_along_axis(logits, ids, 1))
    return ids, weights * np.float32(factor) if method == "minimax2" else weights


@named("trtllm_gen_routing")
def trtllm_gen_routing(
    routing_logits: Any, routing_bias: Any, routing_method: Any, top_k: int, *, num_fused_shared_experts: int = 0, n_group: int = 0, topk_group: int = 0,
    local_expert_offset: int = 0, local_num_experts: Optional[int] = None, routed_scaling_factor: float = 1.0, tile_tokens_dim: int = 8,
    norm_topk_prob: bool = True, enable_pdl: Optional[bool] = None,
) -> TrtllmGenRoutingResult:  # fmt: skip
    """Which experts the tokens go to, with bf16 weights, and where their rows stand when each of this rank's experts has whole tiles of them; rows of an
    expert come in the tokens' order. -1 of another rank's experts, and where nothing stands."""
    name = "trtllm_gen_routing"
    tokens, experts = shape_of(name, "routing_logits", routing_logits, 2)
    of_type(name, "routing_logits", routing_logits, "f32", "bf16")
    if routing_bias is not None:
        of_type(name, "routing_bias", routing_bias, "f32", "bf16")
        if int(np.prod(tuple(bare(routing_bias).shape))) != experts:
            raise refuse(name, f"has shape {list(bare(routing_bias).shape)}, expected one number of {experts} experts", argument="routing_bias", code="bad_shape")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= experts:
        raise refuse(name, f"is {top_k!r}, expected 1 to {experts}", argument="top_k")
    if tile_tokens_dim < 1 or tile_tokens_dim & (tile_tokens_dim - 1):
        raise refuse(name, f"is {tile_tokens_dim}, expected a power of two", argument="tile_tokens_dim")
    local = experts if local_num_experts is None else int(local_num_experts)
    if local < 1 or local_expert_offset < 0 or local_expert_offset + local > experts:
        raise refuse(name, f"is {local} from {local_expert_offset} on, expected experts below {experts}", argument="local_num_experts")
    method = _method(name, routing_method)
    _check_groups(name, method, experts, top_k, n_group, topk_group, num_fused_shared_experts)
    if num_fused_shared_experts:
        raise refuse(name, f"is {num_fused_shared_experts}, offered is 0", kind=NotOffered, code="unsupported", argument="num_fused_shared_experts")
    bias = np.zeros(experts, np.float32) if routing_bias is None else _array(routing_bias).reshape(-1)
    ids, weights = _chosen(method, _array(routing_logits), bias, top_k, n_group, topk_group, float(routed_scaling_factor), bool(norm_topk_prob))
    return _placed(ids.astype(np.int64), weights, local_expert_offset, local, experts, tile_tokens_dim, bare(routing_logits))


class PlacedRows(NamedTuple):
    """Where rows stand when each of a rank's experts has whole tiles of them, in int32; -1 of another rank's, and where nothing stands."""

    here: np.ndarray  # whether an expanded index is an expert's of this rank
    at: np.ndarray  # expanded index -> row
    expanded: np.ndarray  # row -> expanded index
    of_tile: np.ndarray  # tile -> expert
    limits: np.ndarray  # tile -> end of its rows
    total: np.ndarray  # rows of whole tiles
    used: np.ndarray  # tiles


def placed_rows(ids: np.ndarray, offset: int, local: int, room: int, tile: int) -> PlacedRows:
    """Of experts [tokens, k] those from `offset` on, `local` of them, in `room` tiles of so many rows; an expert's rows are in the tokens' order."""
    own = ids.reshape(-1).astype(np.int64) - offset
    here = (own >= 0) & (own < local)
    order = np.flatnonzero(here)[np.argsort(own[here], kind="stable")]
    counts = np.bincount(own[here], minlength=local)
    tiles = -(-counts // tile)
    begins, firsts = np.concatenate([[0], np.cumsum(tiles) * tile]), np.concatenate([[0], np.cumsum(counts)])
    at = np.full(ids.size, -1, np.int32)
    at[order] = begins[own[order]] + np.arange(len(order)) - firsts[own[order]]
    expanded, of_tile, limits = np.full(room * tile, -1, np.int32), np.full(room, -1, np.int32), np.full(room, -1, np.int32)
    expanded[at[order]] = order
    used = int(tiles.sum())
    of_tile[:used] = np.repeat(np.arange(local), tiles)
    limits[:used] = np.minimum((np.arange(used) + 1) * tile, (begins[:-1] + counts)[of_tile[:used]])
    return PlacedRows(here, at, expanded, of_tile, limits, np.array([begins[-1]], np.int32), np.array([used], np.int32))


def _placed(ids: np.ndarray, weights: np.ndarray, offset: int, local: int, experts: int, tile: int, model: Any) -> TrtllmGenRoutingResult:
    tokens, top_k = ids.shape
    rows = placed_rows(ids, offset, local, _max_num_ctas_in_batch_dim(tokens, top_k, experts, tile), tile)
    given = lambda array: as_given(np.ascontiguousarray(array, np.int32), model)
    words = rounded(np.ascontiguousarray(weights, np.float32), "bf16").view(np.uint16)
    return TrtllmGenRoutingResult(
        given(np.where(rows.here, ids.reshape(-1), -1).reshape(tokens, top_k)),
        like_torch(words, "bf16", model) if is_torch(model) else words.view(numpy_dtype("bf16")),
        given(rows.total), given(rows.at.reshape(tokens, top_k)), given(np.where(rows.expanded < 0, -1, rows.expanded // top_k)), given(rows.of_tile),
        given(rows.limits), given(rows.used),
    )  # fmt: skip


# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.fused_moe.hash_topk": (hash_topk,),
    "flashinfer.fused_moe.trtllm_gen_routing": (TrtllmGenRoutingResult, _max_num_ctas_in_batch_dim, max_num_padded_tokens, trtllm_gen_routing),
}
