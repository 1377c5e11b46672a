// What the ops topk_softmax, topk_sigmoid and kimi_k2_moe_fused_gate share: fast mode's rows, and outputs of hopper mode.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/routing/hopper_rows.h"
#include "ops/routing/topk_rows.h"

namespace dodona::ops {

/// The bias of every expert; zeros where there is none.
std::vector<float> bias_row(const Tensor& bias, std::int64_t experts);

/// Fast mode: `how` says everything but what the tensors do.
void fast_topk_rows(const Tensor& input, const Tensor& bias, const Tensor& weights, const Tensor& ids, const Exec& exec,
                    const TopkRows& how);

/// Row t of the outputs: what was picked, with renormalize times the reciprocal of the sum in order of choice.
void put_picks(const Tensor& weights, const Tensor& ids, std::int64_t t, std::span<const Pick> picks, bool renormalize);

/// Throws unless topk_weights has at most as many columns as there are experts.
void require_enough_experts(std::int64_t topk, std::int64_t experts);

}  // namespace dodona::ops
