// The routed experts of one layer for a batch of tokens, and what runs them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/layer/pass.h"

namespace dodona::model {

/// What the router chose.
struct Routing {
  Tensor weights;                    ///< f32 [T, K]
  Tensor ids;                        ///< i32 [T, K]
  std::vector<std::int64_t> counts;  ///< rows of each expert, of T * K in all
  std::int64_t rows() const { return ids.elements(); }
};
/// The counts of what was chosen; in a plan, which cannot know, those of T * K rows spread over min(T * K, E) experts, and T rows of the
/// fused shared expert.
std::vector<std::int64_t> rows_of_experts(const Pass& pass, const Tensor& ids);

/// One way of running routed experts: out[t] = sum over j of weights[t,j] * Expert_{ids[t,j]}(x[t]), x [T, H].
struct ExpertsBackend {
  std::string_view name;
  bool scales_router = false;  ///< wants routed_scaling_factor inside the router's weights
  /// The method by which it has weights made ready that `stored` would multiply otherwise; nullptr when it cannot multiply those.
  const LinearMethod* (*accepts)(const LinearMethod& stored) = nullptr;
  /// The experts that have rows have been touched.
  Tensor (*run)(const Pass&, const Tensor& x, const Routing&) = nullptr;
};

/// sglang `cutlass_moe_fp4`, NVFP4: rows sorted by expert, quantized with each expert's own scale, multiplied, activated, quantized,
/// multiplied, and summed with weights rounded to bf16.
extern const ExpertsBackend cutlass_experts;
/// Expert by expert with each module's own method, rounding as sglang's Triton runner does: each row is weighted in fp32 before it is
/// rounded; the sum is scaled by routed_scaling_factor in fp32 and rounded once.
extern const ExpertsBackend plain_experts;

/// The first backend that accepts them; plain_experts accepts all that have a product of their own.
const ExpertsBackend& choose_experts(const LinearMethod& stored);

// ---- what backends share

/// Rows of an expert that has some, among all rows sorted by expert.
struct ExpertRows {
  std::int64_t expert, row, rows;
  std::int64_t scale_row;  ///< where its block scales begin, with every expert's rows padded to a multiple of 128
};
std::vector<ExpertRows> groups_of(std::span<const std::int64_t> counts);

}  // namespace dodona::model
