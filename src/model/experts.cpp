#include "model/experts.h"

#include <vector>

#include "core/define.h"
#include "core/threads.h"
#include "model/values.h"
#include "model/work.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/gemm/linear.h"
#include "ops/moe/apply_shuffle_mul_sum.h"
#include "ops/moe/cutlass_fp4_group_mm.h"
#include "ops/moe/prepare_moe_input.h"
#include "ops/moe/shuffle_rows.h"
#include "ops/quantization/scaled_fp4_experts_quant.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

constexpr Part part = Part::experts_cutlass;

struct Experts {
  const LayerWeights& weights;
  const ModelConfig& config;
  Trace& trace;
  std::int64_t tokens, topk, rows;  ///< rows = tokens * topk
};

ops::PrepareMoeInput sort_by_expert(const Experts& e, const Tensor& topk_ids) {
  return ops::run(ops::PrepareMoeInput{.topk_ids = topk_ids,
                                       .num_experts = e.weights.experts(),
                                       .n = e.config.moe_intermediate_size,
                                       .k = e.config.hidden_size,
                                       .with_blockscale_offsets = true},
                  e.trace.exec());
}

/// Experts that have rows, in order.
struct Group {
  std::int64_t expert, row, rows, scale_row;
};
std::vector<Group> groups_of(const Experts& e, const ops::PrepareMoeInput& sorted) {
  const auto* const offsets = sorted.expert_offsets.as<std::int32_t>();
  const auto* const scale_rows = sorted.blockscale_offsets.as<std::int32_t>();
  std::vector<Group> groups;
  for (std::int64_t id = 0; id < e.weights.experts(); ++id)
    if (offsets[id + 1] > offsets[id]) groups.push_back({id, offsets[id], offsets[id + 1] - offsets[id], scale_rows[id]});
  return groups;
}

Tensor weighted_sum(const Experts& e, const Tensor& rows, const Tensor& permutation, const Tensor& factors) {
  Tensor output(rows.dtype(), {e.tokens, rows.size(1)});
  return ops::run(ops::ApplyShuffleMulSum{.input = rows, .permutation = permutation, .factors = factors, .output = output}, e.trace.exec())
      .output;
}

// ---- NVFP4

using Member = Projection MlpWeights::*;

struct Quantized {
  Tensor codes, scales;
};

Quantized experts_quant(const Experts& e, const char* note, const Tensor& x, Member member, const ops::PrepareMoeInput& sorted,
                        std::span<const Group> groups) {
  Tensor encode_scales(DType::f32, {e.weights.experts()});
  for (std::int64_t i = 0; i < encode_scales.elements(); ++i) encode_scales.as<float>()[i] = 1.0f;
  for (const Group& group : groups) encode_scales.as<float>()[group.expert] = 1.0f / (e.weights.expert(group.expert).*member).input_scale();
  Quantized result;
  e.trace.op(part, "scaled_fp4_experts_quant", note, {{"input", x.shape()}}, moved({x}), [&]() -> NamedTensors {
    const auto run = ops::run(ops::ScaledFp4ExpertsQuant{.input_tensor = x,
                                                         .input_global_scale = encode_scales,
                                                         .expert_offsets = sorted.expert_offsets,
                                                         .blockscale_offsets = sorted.blockscale_offsets,
                                                         .topk = e.topk},
                              e.trace.exec());
    result = {run.output, run.output_scales};
    return {{"output", result.codes}};
  });
  return result;
}

/// Weights as fast mode takes them, and what else each expert has; experts without rows have none.
Tensor multiply_prepared(const Experts& e, const Quantized& a, Member member, const ops::PrepareMoeInput& sorted,
                         std::span<const Group> groups) {
  const std::int64_t experts = e.weights.experts();
  Tensor alphas(DType::f32, {experts});
  std::vector<Prepared::Place> places;
  for (const Group& group : groups) {
    const Projection& projection = e.weights.expert(group.expert).*member;
    alphas.as<float>()[group.expert] = projection.alpha();
    places.push_back({group.expert, &projection.prepared()});
  }
  return ops::run(ops::CutlassFp4GroupMm{.a_fp4 = a.codes,
                                         .a_blockscale = a.scales,
                                         .alphas = alphas,
                                         .expert_offsets = sorted.expert_offsets.slice(0, 0, experts),
                                         .blockscale_offsets = sorted.blockscale_offsets.slice(0, 0, experts)},
                  e.trace.exec(), Prepared::gather(experts, places))
      .out;
}

/// Other modes read raw weights, which lie apart: each expert is a grouped product of its own.
Tensor multiply_raw(const Experts& e, const Quantized& a, Member member, std::span<const Group> groups) {
  const auto alone = [](const Tensor& tensor) { return tensor.reshape({1, tensor.size(0), tensor.size(1)}); };
  Tensor out(DType::bf16, {e.rows, (e.weights.expert(groups.front().expert).*member).rows()});
  for (const Group& group : groups) {
    const Projection& projection = e.weights.expert(group.expert).*member;
    Tensor alpha(DType::f32, {1});
    *alpha.as<float>() = projection.alpha();
    ops::run(ops::CutlassFp4GroupMm{.a_fp4 = a.codes.slice(0, group.row, group.row + group.rows),
                                    .b_fp4 = alone(projection.codes()),
                                    .a_blockscale = a.scales.slice(0, group.scale_row, group.scale_row + (group.rows + 127) / 128 * 128),
                                    .b_blockscale = alone(projection.block_scales()),
                                    .alphas = alpha,
                                    .expert_offsets = Tensor(DType::i32, {1}),
                                    .out = out.slice(0, group.row, group.row + group.rows)},
             e.trace.exec());
  }
  return out;
}

Tensor group_mm(const Experts& e, const char* note, const Quantized& a, Member member, const ops::PrepareMoeInput& sorted,
                std::span<const Group> groups) {
  const Projection& any = e.weights.expert(groups.front().expert).*member;
  Work work;
  for (const Group& group : groups) work += projected(e.weights.expert(group.expert).*member, group.rows, Rounding::bf16);
  return e.trace.op1(part, "cutlass_fp4_group_mm", note, {{"input", Dims{e.rows, any.columns()}}, {"packed", a.codes.shape()}}, work, [&] {
    return any.prepared().defined() ? multiply_prepared(e, a, member, sorted, groups) : multiply_raw(e, a, member, groups);
  });
}

Tensor nvfp4_experts(const Experts& e, const Tensor& x, const Tensor& topk_weights, const Tensor& topk_ids) {
  ops::PrepareMoeInput sorted;
  e.trace.op(part, "prepare_moe_input", {}, {{"topk_ids", topk_ids.shape()}}, moved({topk_ids}), [&]() -> NamedTensors {
    sorted = sort_by_expert(e, topk_ids);
    return {{"+output_permutation", sorted.output_permutation}, {"+input_permutation", sorted.input_permutation}};
  });
  const std::vector<Group> groups = groups_of(e, sorted);
  const Tensor permuted = e.trace.op1(part, "shuffle_rows", {}, {{"input", x.shape()}}, moved({x}), [&] {
    return ops::run(ops::ShuffleRows{.input_tensor = x, .dst2src_map = sorted.input_permutation}, e.trace.exec()).output_tensor;
  });
  const Quantized a1 = experts_quant(e, "gate_up", permuted, &MlpWeights::gate_up, sorted, groups);
  const Tensor gate_up = group_mm(e, "gate_up", a1, &MlpWeights::gate_up, sorted, groups);
  const Tensor activated = e.trace.op1(part, "silu_and_mul", {}, {{"input", gate_up.shape()}}, moved({gate_up}),
                                       [&] { return ops::run(ops::SiluAndMul{.input = gate_up}, e.trace.exec()).out; });
  const Quantized a2 = experts_quant(e, "down", activated, &MlpWeights::down, sorted, groups);
  const Tensor down = group_mm(e, "down", a2, &MlpWeights::down, sorted, groups);
  return e.trace.op1(part, "apply_shuffle_mul_sum", {}, {{"input", down.shape()}, {"topk_weights", topk_weights.shape()}}, moved({down}),
                     [&] { return weighted_sum(e, down, sorted.output_permutation, rounded(topk_weights, down.dtype())); });
}

// ---- bf16

/// The products of `projection` in fp32: the runner weighs them before it rounds.
Tensor unrounded(const Projection& projection, const Tensor& x, const Exec& exec) {
  if (projection.is_nvfp4()) return projection(x, exec);  // with roundings off
  return ops::run(ops::Linear{.input = x, .weight = projection.bf16(), .out_dtype = DType::f32}, exec).output;
}

/// out[t] = round(factor * sum over j of round(weight[t,j] * rows[t,j])) for fp32 rows, in fp32.
Tensor scaled_sum(const Experts& e, const Tensor& rows, const Tensor& permutation, const Tensor& topk_weights, float factor, DType type) {
  const std::int64_t columns = rows.size(1);
  Tensor out(type, {e.tokens, columns});
  parallel_for(e.trace.exec().threads, e.tokens, static_cast<double>(e.topk * columns), [&](std::int64_t t) {
    std::vector<float> sum(static_cast<std::size_t>(columns), 0.0f);
    for (std::int64_t j = 0; j < e.topk; ++j) {
      const std::int64_t source = permutation.as<std::int32_t>()[t * e.topk + j];
      const float weight = topk_weights.as<float>()[t * e.topk + j];
      const float* const row = rows.as<float>() + source * columns;
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += static_cast<float>(quant::round_to(type, static_cast<double>(weight * row[i])));
    }
    for (float& value : sum) value *= factor;
    quant::from_f32(type, sum.data(), out.as<std::byte>() + bytes_for(type, t * columns), columns);
  });
  return out;
}

Tensor plain_experts(const Experts& e, const Tensor& x, const Tensor& topk_weights, const Tensor& topk_ids) {
  const ops::PrepareMoeInput sorted = sort_by_expert(e, topk_ids);
  const Exec& exec = e.trace.exec();
  const Tensor permuted = ops::run(ops::ShuffleRows{.input_tensor = x, .dst2src_map = sorted.input_permutation}, exec).output_tensor;
  Tensor down(DType::f32, {e.rows, e.config.hidden_size});
  for (const Group& group : groups_of(e, sorted)) {
    const MlpWeights& expert = e.weights.expert(group.expert);
    const Tensor gate_up = expert.gate_up(permuted.slice(0, group.row, group.row + group.rows), exec);
    const Tensor activated = ops::run(ops::SiluAndMul{.input = gate_up}, exec).out;
    copy(unrounded(expert.down, activated, exec), down.slice(0, group.row, group.row + group.rows));
  }
  return scaled_sum(e, down, sorted.output_permutation, topk_weights, static_cast<float>(e.config.routed_scaling_factor), x.dtype());
}

}  // namespace

bool scales_router_weights(const LayerWeights& weights) {
  return weights.experts_nvfp4() && weights.rounding() == Rounding::bf16;
}

Tensor routed_experts(const LayerWeights& weights, const Tensor& x, const Tensor& topk_weights, const Tensor& topk_ids, Trace& trace) {
  const Experts e{weights, weights.config(), trace, x.size(0), topk_ids.size(1), topk_ids.elements()};
  if (scales_router_weights(weights)) {
    trace.enter(Part::mlp_moe, "self.experts()");
    const Trace::Scope experts(trace);
    Tensor out = nvfp4_experts(e, x, topk_weights, topk_ids);
    trace.gives({{"output", out}});
    return out;
  }
  Work work;
  const auto* const ids = topk_ids.as<std::int32_t>();
  std::vector<std::int64_t> count(static_cast<std::size_t>(weights.experts()), 0);
  for (std::int64_t i = 0; i < e.rows; ++i) ++count[static_cast<std::size_t>(ids[i])];
  for (std::size_t id = 0; id < count.size(); ++id) {
    if (count[id] == 0) continue;
    const MlpWeights& expert = weights.expert(static_cast<std::int64_t>(id));
    work += projected(expert.gate_up, count[id], weights.rounding());
    work += projected(expert.down, count[id], weights.rounding());
  }
  return trace.op1(Part::mlp_moe, "self.experts()", {}, {{"input", x.shape()}}, work,
                   [&] { return plain_experts(e, x, topk_weights, topk_ids); });
}

}  // namespace dodona::model
