"""TensorRT-LLM's routers, torch.ops.trtllm, the rows of experts in whole tiles, and its mixtures of experts, which are FlashInfer's."""

from __future__ import annotations

from typing import Any, Optional

from .._ops import function
from ._adapt import NotOffered, refuse
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._products import _dtype
from ._routes import max_num_padded_tokens, placed_rows
from ._row_topk import of_lengths, of_ranges

SIXTEEN = ("f16", "bf16")
MOST_ROWS = 4096  # of a tile


def _as(values: Any, kind: str) -> Any:
    import torch

    return values.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[kind])


def noaux_tc_op(scores: Any, bias: Any, n_group: int, topk_group: int, topk: int, routed_scaling_factor: float) -> tuple[Any, Any]:
    """(values, indices) [T, topk] of logits [T, E]: experts of the best groups by sigmoid + bias, a group's score being its two best; values are the experts' sigmoids over their
    sum, times the factor, in the type of scores. In fp32, biased_grouped_topk."""
    name = "noaux_tc_op"
    tokens, experts = shape_of(name, "scores", scores, 2)
    of_type(name, "scores", scores, *SIXTEEN, "f32")
    of_type(name, "bias", bias, *SIXTEEN, "f32")
    of_shape(name, "bias", bias, (experts,))
    if not 1 <= n_group <= 32 or experts % n_group:
        raise refuse(name, f"is {n_group}, expected 1 to 32 equal groups of {experts} experts", argument="n_group")
    if not 1 <= topk_group <= n_group:
        raise refuse(name, f"is {topk_group}, expected 1 to {n_group}", argument="topk_group")
    if not 1 <= topk <= min(32, topk_group * (experts // n_group)):
        raise refuse(name, f"is {topk}, expected 1 to 32 of {topk_group * (experts // n_group)} experts", argument="topk")
    weights, ids = function("biased_grouped_topk")(
        scores.float().contiguous(), bias.float().contiguous(), topk, True, n_group, topk_group, routed_scaling_factor=float(routed_scaling_factor),
        apply_routed_scaling_factor_on_output=True,
    )  # fmt: skip
    return weights.to(scores.dtype), ids


def _softmaxed(name: str, router_logits: Any, topk: int, output_dtype: Any, first: bool) -> tuple[Any, Any]:
    import torch

    _, experts = shape_of(name, "router_logits", router_logits, 2)
    of_type(name, "router_logits", router_logits, *SIXTEEN, "f32")
    if not 1 <= topk <= experts:
        raise refuse(name, f"is {topk}, expected 1 to {experts}", argument="topk")
    kind = _dtype(name, "output_dtype", "f32" if output_dtype is None else output_dtype, "f32", "bf16")
    logits = router_logits.float()
    ranked = torch.softmax(logits, -1) if first else logits
    ids = torch.sort(ranked, dim=-1, descending=True, stable=True).indices[:, :topk]
    values = ranked.gather(1, ids)
    return ids.to(torch.int32), _as(values if first else torch.softmax(values, -1), kind)


def renorm_moe_routing_op(router_logits: Any, topk: int, output_dtype: Any = None) -> tuple[Any, Any]:
    """(indices, values) of the topk largest logits, of equal ones the first first: values are the softmax over them, in fp32 or bf16."""
    return _softmaxed("renorm_moe_routing_op", router_logits, topk, output_dtype, False)


def default_moe_routing_op(router_logits: Any, topk: int, output_dtype: Any = None) -> tuple[Any, Any]:
    """(indices, values) of the topk largest of the softmax over all experts."""
    return _softmaxed("default_moe_routing_op", router_logits, topk, output_dtype, True)


# ---- the indexer ----


def indexer_topk_prefill(logits: Any, row_starts: Any, row_ends: Any, indices: Any, index_topk: int = 2048) -> None:
    of_ranges("indexer_topk_prefill", logits, row_starts, row_ends, indices, index_topk)


def indexer_topk_decode(
    logits: Any, seq_lens: Any, indices: Any, next_n: int, index_topk: int = 2048, pre_idx: Any = None, heuristic_scratch: Any = None,
    compress_ratio: int = 1, radix_aux_indices: Any = None, radix_aux_logits: Any = None,
) -> None:  # fmt: skip
    """pre_idx, a guess, and scratch memory change nothing."""
    name = "indexer_topk_decode"
    if compress_ratio != 1:
        raise refuse(name, f"is {compress_ratio}, offered is 1", kind=NotOffered, code="unsupported", argument="compress_ratio")
    if seq_lens.dim() != 1 or next_n < 1 or seq_lens.numel() * next_n != logits.shape[0]:
        raise refuse(name, f"has shape {list(seq_lens.shape)}, expected lengths whose number times next_n={next_n} is {logits.shape[0]}", argument="seq_lens", code="bad_shape")
    of_lengths(name, logits, seq_lens, indices, next_n, index_topk)


# ---- rows of experts in whole tiles ----


def moe_sort(
    token_selected_experts: Any, token_final_scales: Any, num_experts: int, top_k: int, local_expert_offset: int, local_num_experts: int, tile_tokens_dim: int
) -> list[Any]:
    """[tile_idx_to_expert_idx, tile_idx_to_mn_limit, expanded_idx_to_permuted_idx [T, k], permuted_idx_to_expanded_idx, total_num_padded_tokens, num_non_exiting_tiles], of int32:
    each of this rank's experts has whole tiles of rows, in the tokens' order; -1 where nothing stands. An expanded index is token * k + choice."""
    import torch

    name = "moe_sort"
    tokens, width = shape_of(name, "token_selected_experts", token_selected_experts, 2)
    of_type(name, "token_selected_experts", token_selected_experts, "i32")
    of_shape(name, "token_final_scales", token_final_scales, (tokens, width))
    if width != top_k:
        raise refuse(name, f"is {top_k}, expected {width} as token_selected_experts has columns", argument="top_k")
    of_type(name, "token_final_scales", token_final_scales, *SIXTEEN, "f32")
    if not 1 <= tile_tokens_dim <= MOST_ROWS or tile_tokens_dim & (tile_tokens_dim - 1):
        raise refuse(name, f"is {tile_tokens_dim}, expected a power of two up to {MOST_ROWS}", argument="tile_tokens_dim")
    if local_num_experts < 1 or local_expert_offset < 0 or local_expert_offset + local_num_experts > num_experts:
        raise refuse(name, f"is {local_num_experts} from {local_expert_offset} on, expected experts below {num_experts}", argument="local_num_experts")
    if tokens and not 0 <= int(token_selected_experts.min()) <= int(token_selected_experts.max()) < num_experts:
        raise refuse(name, f"holds {int(token_selected_experts.min())} to {int(token_selected_experts.max())}, expected experts below {num_experts}", argument="token_selected_experts")
    rows = max_num_padded_tokens(tokens, top_k, local_num_experts, tile_tokens_dim)
    parts = placed_rows(token_selected_experts.numpy(), local_expert_offset, local_num_experts, rows // tile_tokens_dim, tile_tokens_dim)
    given = lambda array: torch.from_numpy(array)
    return [given(parts.of_tile), given(parts.limits), given(parts.at.reshape(tokens, top_k)), given(parts.expanded), given(parts.total), given(parts.used)]


def moe_unpermute(permuted_input: Any, expanded_idx_to_permuted_idx: Any, topk_scales: Any) -> Any:
    """[T, H] of the rows' type: fp32 sums over a token's choices of scale times row, in order; a choice of -1 adds nothing."""
    import torch

    name = "moe_unpermute"
    rows, hidden = shape_of(name, "permuted_input", permuted_input, 2)
    of_type(name, "permuted_input", permuted_input, *SIXTEEN)
    tokens, top_k = shape_of(name, "expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx, 2)
    of_type(name, "expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx, "i32")
    of_shape(name, "topk_scales", topk_scales, (tokens, top_k))
    of_type(name, "topk_scales", topk_scales, "f32", *SIXTEEN)
    at = expanded_idx_to_permuted_idx.long()
    if at.numel() and not -1 <= int(at.min()) <= int(at.max()) < rows:
        raise refuse(name, f"holds {int(at.min())} to {int(at.max())}, expected -1 to {rows - 1}", argument="expanded_idx_to_permuted_idx")
    sums = torch.zeros(tokens, hidden)
    for choice in range(top_k):
        there = at[:, choice] >= 0
        sums[there] += topk_scales[there, choice, None].float() * permuted_input[at[there, choice]].float()
    return sums.to(permuted_input.dtype)


def moe_unpermute_inplace(permuted_input: Any, output: Any, expanded_idx_to_permuted_idx: Any, topk_scales: Any) -> None:
    name = "moe_unpermute_inplace"
    of_type(name, "output", output, *SIXTEEN)
    of_shape(name, "output", output, (expanded_idx_to_permuted_idx.shape[0], permuted_input.shape[-1]))
    writable(name, "output", output)
    output.copy_(moe_unpermute(permuted_input, expanded_idx_to_permuted_idx, topk_scales))


# ---- mixtures of experts ----


def _flashinfer(name: str) -> Any:
    from .flashinfer import PACKAGE

    return PACKAGE.adapter(name).function


def _routes(name: str, routing_logits: Any, topk_weights: Any, topk_ids: Any, top_k: int) -> tuple[str, Any]:
    """Logits, or experts and weights that are given: the way of FlashInfer's that takes them, and its first argument."""
    if (topk_ids is None) != (topk_weights is None):
        raise refuse(name, "is given without the other, expected both topk_ids and topk_weights or none", argument="topk_ids" if topk_weights is None else "topk_weights")
    if topk_ids is None:
        if routing_logits is None:
            raise refuse(name, "is required where topk_ids are not given", argument="routing_logits", code="missing_argument")
        return "", routing_logits
    of_shape(name, "topk_ids", topk_ids, (topk_ids.shape[0], top_k))
    return "routed_", (topk_ids, topk_weights)


def fp8_block_scale_moe_runner(
    routing_logits: Any, routing_bias: Any, hidden_states: Any, hidden_states_scale: Any, gemm1_weights: Any, gemm1_weights_scale: Any, gemm2_weights: Any,
    gemm2_weights_scale: Any, num_experts: int, top_k: int, n_group: Optional[int], topk_group: Optional[int], intermediate_size: int,
    local_expert_offset: int, local_num_experts: int, routed_scaling_factor: Optional[float], routing_method_type: int, topk_weights: Any = None,
    topk_ids: Any = None, act_type: int = 0, gemm1_clamp_limit: Any = None, output: Any = None, *tuning: Any, **others: Any,
) -> Any:  # fmt: skip
    """FlashInfer's trtllm_fp8_block_scale_moe of weights in their own order, bf16 [T, H]."""
    name = "fp8_block_scale_moe_runner"
    for argument, value in (("act_type", act_type or None), ("gemm1_clamp_limit", gemm1_clamp_limit)):
        if value is not None:
            raise refuse(name, "is given, offered is SwiGLU without a limit", kind=NotOffered, code="unsupported", argument=argument)
    way, first = _routes(name, routing_logits, topk_weights, topk_ids, top_k)
    made = _flashinfer(f"trtllm_fp8_block_scale_{way}moe")(
        first, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, num_experts, top_k,
        n_group, topk_group, intermediate_size, local_expert_offset, local_num_experts, routed_scaling_factor, routing_method_type=routing_method_type,
        use_shuffled_weight=False, weight_layout=0,
    )  # fmt: skip
    return _given_room(name, made, output)


def _given_room(name: str, made: Any, output: Any) -> Any:
    made = made[0] if isinstance(made, (list, tuple)) else made
    if output is None:
        return made
    of_type(name, "output", output, "bf16")
    of_shape(name, "output", output, tuple(made.shape))
    writable(name, "output", output)
    output.copy_(made)
    return made
