"""vLLM's operators moe_permute and moe_unpermute, on tensors: rows of one expert behind another, and back as sums."""

from __future__ import annotations

from typing import Any

from .._adapt import refuse
from .checks import of_shape, of_type, shape_of, writable

ROWS = ("bf16", "f16", "f32", "f8_e4m3", "f8_e5m2", "u8", "i8")


def permute(
    input: Any, topk_ids: Any, token_expert_indices: Any, expert_map: Any, n_expert: int, n_local_expert: int, topk: int, permuted_input: Any,
    expert_first_token_offset: Any, inv_permuted_idx: Any, permuted_idx: Any, kept: Any = (),
) -> None:  # fmt: skip
    """Rows of one expert of this rank behind another, in the tokens' order; expert_first_token_offset [n_local_expert + 1] int64. inv_permuted_idx [T, k] counts those of other
    ranks' experts behind all, by expert too, then ids that are no expert; permuted_idx [T k] names this rank's alone."""
    import torch

    name = "moe_permute"
    tokens, hidden = shape_of(name, "input", input, 2)
    of_type(name, "input", input, *ROWS)
    of_shape(name, "topk_ids", topk_ids, (tokens, topk))
    of_type(name, "topk_ids", topk_ids, "i32")
    if n_expert < 1 or not 1 <= n_local_expert <= n_expert:
        raise refuse(name, f"is {n_local_expert} of {n_expert}", argument="n_local_expert")
    if input.dtype != permuted_input.dtype:
        raise refuse(name, f"is {permuted_input.dtype}, expected {input.dtype} as input", argument="permuted_input", code="bad_dtype")
    for argument, value, shape, kind in (
        ("permuted_input", permuted_input, (tokens * topk, hidden), ROWS), ("expert_first_token_offset", expert_first_token_offset, (n_local_expert + 1,), ("i64",)),
        ("inv_permuted_idx", inv_permuted_idx, (tokens, topk), ("i32",)), ("permuted_idx", permuted_idx, (tokens * topk,), ("i32",)),
    ):  # fmt: skip
        of_type(name, argument, value, *kind)
        of_shape(name, argument, value, shape)
        writable(name, argument, value)
    chosen = topk_ids.long().flatten()
    known = (chosen >= 0) & (chosen < n_expert)
    local = chosen
    if expert_map is not None:
        of_type(name, "expert_map", expert_map, "i32")
        of_shape(name, "expert_map", expert_map, (n_expert,))
        local = expert_map.long()[chosen.clamp(0, n_expert - 1)]
    here = known & (local >= 0) & (local < n_local_expert)
    ids = torch.where(here, local, torch.where(known, n_expert + chosen, 2 * n_expert))
    order = torch.sort(ids, stable=True).indices
    counts = torch.bincount(ids[here], minlength=n_local_expert)
    own = int(counts.sum())
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    expert_first_token_offset.copy_(torch.cat([counts.new_zeros(1), counts.cumsum(0)]))
    permuted_input[:own] = input.contiguous().view(torch.uint8)[order[:own] // topk].view(input.dtype)
    inv_permuted_idx.copy_(inverse.view(tokens, topk))
    permuted_idx[:own] = order[:own].to(torch.int32)
    for value, numbers in zip(kept, (ids[order], order, *(() if expert_map is None else (ids,)))):
        value.copy_(numbers.view_as(value))


def permute_with_scratch(*given: Any) -> None:
    """`permute` that leaves in its memory [T, k] int32 what it sorted: each place's expert (those of other ranks as n_expert + id), each place's row, and with a map the experts
    unsorted. sort_workspace is not worked in."""
    name = "moe_permute_with_scratch"
    *given, workspace, permuted_experts_id, sorted_row_idx, topk_ids_for_sort = given
    tokens, topk = shape_of(name, "topk_ids", given[1], 2)
    of_type(name, "sort_workspace", workspace, "i8")
    kept = {"permuted_experts_id": permuted_experts_id, "sorted_row_idx": sorted_row_idx, "topk_ids_for_sort": topk_ids_for_sort}
    for argument, value in kept.items():
        of_type(name, argument, value, "i32")
        if value.numel() != tokens * topk:
            raise refuse(name, f"has {value.numel()} places, expected {tokens * topk}", argument=argument, code="bad_shape")
        writable(name, argument, value)
    permute(*given, kept=tuple(kept.values()))


def sort_workspace_size(num_expanded_rows: int, num_experts: int) -> int:
    """The bytes that a sort works in: none."""
    return 0


def unpermute(permuted_hidden_states: Any, topk_weights: Any, inv_permuted_idx: Any, expert_first_token_offset: Any, topk: int, hidden_states: Any) -> None:
    """fp32 sums over a token's choices, in order, of weight times row; rows behind the last expert's add nothing."""
    import torch

    name = "moe_unpermute"
    rows, hidden = shape_of(name, "permuted_hidden_states", permuted_hidden_states, 2)
    of_type(name, "permuted_hidden_states", permuted_hidden_states, "bf16", "f16", "f32")
    tokens, width = shape_of(name, "topk_weights", topk_weights, 2)
    of_type(name, "topk_weights", topk_weights, "f32")
    of_type(name, "inv_permuted_idx", inv_permuted_idx, "i32")
    if width != topk or inv_permuted_idx.numel() != tokens * topk:
        raise refuse(name, f"is {topk}, with {inv_permuted_idx.numel()} places, expected {width} as topk_weights has columns", argument="topk")
    of_type(name, "hidden_states", hidden_states, "bf16", "f16", "f32")
    of_shape(name, "hidden_states", hidden_states, (tokens, hidden))
    writable(name, "hidden_states", hidden_states)
    own = rows
    if expert_first_token_offset is not None:
        of_type(name, "expert_first_token_offset", expert_first_token_offset, "i64")
        (count,) = shape_of(name, "expert_first_token_offset", expert_first_token_offset, 1)
        own = int(expert_first_token_offset[-1]) if count else -1
        if not 0 <= own <= rows:
            raise refuse(name, f"ends with {own}, expected 0 to {rows}", argument="expert_first_token_offset")
    at = inv_permuted_idx.long().reshape(tokens, topk)
    sums = torch.zeros(tokens, hidden)
    for choice in range(topk):
        there = (at[:, choice] >= 0) & (at[:, choice] < own)
        sums[there] += topk_weights[there, choice, None] * permuted_hidden_states[at[there, choice]].float()
    hidden_states.copy_(sums)
