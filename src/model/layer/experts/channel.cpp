// Experts of eight bits with a scale for each row, or in bf16, by Triton's kernel.
#include <algorithm>

#include "core/define.h"
#include "model/layer/experts/experts.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/moe/align/prepare_moe_input.h"
#include "ops/moe/grouped/fused_moe_kernel.h"
#include "ops/moe/permute/shuffle_rows.h"
#include "ops/quantization/per_token_quant_int8.h"
#include "ops/quantization/sgl_per_token_quant_fp8.h"

namespace dodona::model {
namespace {

/// Codes and scales, as they are stored: one method for each kind of code.
void keep(Projection&, const Exec&) {}
const LinearMethod fp8_rows{.name = "fp8, grouped", .kernel = "fused_moe_kernel", .prepare = keep};
const LinearMethod int8_rows{.name = "int8, grouped", .kernel = "fused_moe_kernel", .narrow = true, .prepare = keep};

/// Tokens of one expert times one of its weights, each row times its weight in the mixture, where there are weights.
Tensor multiply(const Projection& projection, const Tensor& x, const Tensor& weights, const Exec& exec) {
  constexpr std::int64_t block = 64;
  const std::int64_t rows = x.size(0), blocks = (rows + block - 1) / block;
  const bool int8 = projection.method == &int8_rows, fp8 = projection.method == &fp8_rows;
  Tensor codes = x, scales;
  if (int8) {
    const auto a = ops::run(ops::PerTokenQuantInt8{.x = x}, exec);
    codes = a.x_q, scales = a.scales;
  } else if (fp8) {
    const auto a = ops::run(ops::SglPerTokenQuantFp8{.input = x}, exec);
    codes = a.output_q, scales = a.output_s;
  }
  const Tensor pairs(DType::i32, {blocks * block}), covered(DType::i32, {1});
  for (std::int64_t i = 0; i < pairs.elements(); ++i) pairs.as<std::int32_t>()[i] = static_cast<std::int32_t>(std::min(i, rows));
  *covered.as<std::int32_t>() = static_cast<std::int32_t>(blocks * block);
  const Linear& w = projection.weight;
  return ops::run(ops::FusedMoeKernel{.A = codes,
                                      .B = w.weight.reshape({1, w.rows, w.columns}),
                                      .A_scale = scales,
                                      .B_scale = scales.defined() ? w.weight_scale.reshape({1, w.rows, 1}) : Tensor(),
                                      .topk_weights = weights.defined() ? weights : Tensor(DType::f32, {rows, 1}),
                                      .topk_ids = Tensor(DType::i32, {rows, 1}),
                                      .sorted_token_ids = pairs,
                                      .expert_ids = Tensor(DType::i32, {blocks}),
                                      .num_tokens_post_padded = covered,
                                      .mul_routed_weight = weights.defined(),
                                      .top_k = 1,
                                      .block_size_m = block,
                                      .block_size_n = 128,
                                      .block_size_k = 128,
                                      .use_fp8_w8a8 = fp8,
                                      .use_int8_w8a8 = int8,
                                      .per_channel_quant = int8 || fp8},
                  exec)
      .C.reshape({rows, w.rows});
}

Tensor by_triton(const Pass& p, const Tensor& x, const Routing& routing) {
  const Exec& exec = p.exec();
  const std::int64_t hidden = p.config().hidden_size, topk = routing.ids.size(1);
  const auto sorted = ops::run(
      ops::PrepareMoeInput{.topk_ids = routing.ids, .num_experts = p.weights.experts(), .n = p.config().moe_intermediate_size, .k = hidden},
      exec);
  const Tensor permuted = ops::run(ops::ShuffleRows{.input_tensor = x, .dst2src_map = sorted.input_permutation}, exec).output_tensor;
  const std::int32_t* const place = sorted.output_permutation.as<std::int32_t>();
  const Tensor weights(DType::f32, {routing.rows(), 1}), weighed(x.dtype(), {routing.rows(), hidden});
  for (std::int64_t i = 0; i < routing.rows(); ++i) weights.as<float>()[place[i]] = routing.weights.as<float>()[i];
  for (const ExpertRows& group : groups_of(routing.counts)) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    const auto rows = [&](const Tensor& all) { return all.slice(0, group.row, group.row + group.rows); };
    const Tensor both = multiply(expert.gate_up, rows(permuted), {}, exec);
    const Tensor activated = ops::run(ops::SiluAndMul{.input = both}, exec).out;
    copy(multiply(expert.down, activated, rows(weights), exec), rows(weighed));
  }
  const Tensor by_token = ops::run(ops::ShuffleRows{.input_tensor = weighed, .dst2src_map = sorted.output_permutation}, exec).output_tensor;
  return sum_by_triton(p, by_token.reshape({x.size(0), topk, hidden}));
}

Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  Work work = reading({x});
  work += products_of(p, routing);
  return run_experts(p, x, work, [&] { return by_triton(p, x, routing); });
}

const LinearMethod* as_rows(const LinearMethod& stored) {
  return &stored == &fp8_method ? &fp8_rows : &stored == &int8_method ? &int8_rows : &stored == &bf16_method ? &bf16_method : nullptr;
}

}  // namespace

const ExpertsBackend channel_experts{.name = "triton",
                                     .kernel = "fused_moe_kernel",
                                     .fuses_shared = true,
                                     .roundings = {.weighs_first = true},
                                     .accepts = as_rows,
                                     .run = run};

}  // namespace dodona::model
