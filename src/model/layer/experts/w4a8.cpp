// Experts of int4, multiplied with activations in fp8.
#include "core/define.h"
#include "core/threads.h"
#include "model/layer/experts/experts.h"
#include "model/layer/values.h"
#include "ops/moe/activation/silu_mul_static_tensorwise_quant_for_cutlass_moe.h"
#include "ops/moe/align/cutlass_w4_run_moe_ep_preproess.h"
#include "ops/moe/align/get_cutlass_w4a8_moe_mm_data.h"
#include "ops/moe/combine/post_reorder_for_cutlass_moe.h"
#include "ops/moe/grouped/cutlass_w4a8_moe_mm.h"
#include "ops/moe/permute/pre_reorder_for_cutlass_moe.h"
#include "quant/half.h"
#include "quant/int4.h"

namespace dodona::model {
namespace {

/// Codes of a projection as the kernel has them, of one expert.
Tensor codes_of(const Projection& p) {
  return p.weight.weight.reshape({1, p.rows(), p.columns() / 2});
}

/// Scales in bf16, four of a row next to each other where they divide so. Source: sglang `W4AFp8MoEMethod`, `interleave_scales`. Fast mode
/// reads what is packed of them and the codes.
void prepare(Projection& p, const Exec& exec) {
  if (p.prepared.defined() || p.block_scales.defined()) return;
  const std::int64_t rows = p.rows(), groups = p.columns() / 128, together = quant::w4a8_scale_alignment(groups);
  const Tensor scales = Tensor::uninitialized(DType::bf16, {1, groups / together, rows * together});
  const auto* const from = p.weight.weight_scale.as<float>();
  auto* const to = scales.as<std::uint16_t>();
  parallel_for(exec.threads, rows, static_cast<double>(groups), [&](std::int64_t n) {
    for (std::int64_t g = 0; g < groups; ++g) to[quant::w4a8_scale_offset(rows, groups, n, g)] = quant::f32_to_bf16(from[n * groups + g]);
  });
  p.weight.weight_scale = Tensor();
  if (exec.mode == Mode::fast) {
    p.prepared = ops::prepare(ops::CutlassW4a8MoeMm{.b = codes_of(p), .b_scales = scales}, exec);
    p.weight.weight = Tensor();
  } else {
    p.block_scales = scales;
  }
}

/// Weights as fast mode takes them; experts without rows have none. Rows behind those of the experts that are here stay zero.
Tensor multiply_prepared(const Pass& p, const Tensor& codes, float scale, const std::vector<ExpertRows>& groups,
                         Projection MlpWeights::*member) {
  const std::int64_t experts = p.weights.experts();
  std::vector<Prepared::Place> places;
  const Tensor offsets(DType::i32, {experts});
  for (const ExpertRows& group : groups) {
    places.push_back({group.expert, &(p.weights.expert(group.expert).*member).prepared});
    for (std::int64_t e = group.expert + 1; e < experts; ++e)
      offsets.as<std::int32_t>()[e] = static_cast<std::int32_t>(group.row + group.rows);
  }
  const std::int64_t here = groups.back().row + groups.back().rows;
  Tensor out(DType::bf16, {codes.size(0), (p.weights.expert(groups.front().expert).*member).rows()});
  ops::run(
      ops::CutlassW4a8MoeMm{
          .d = out.slice(0, 0, here), .a = codes.slice(0, 0, here), .a_scales = scalar(scale), .experts_offsets = offsets},
      p.exec(), Prepared::gather(experts, places));
  return out;
}

/// Other modes read raw weights, which lie apart: of the offsets each expert takes its own.
Tensor multiply_raw(const Pass& p, const Tensor& codes, float scale, const std::vector<ExpertRows>& groups,
                    Projection MlpWeights::*member) {
  const Projection& any = p.weights.expert(groups.front().expert).*member;
  Tensor out(DType::bf16, {codes.size(0), any.rows()});
  for (const ExpertRows& group : groups) {
    const Projection& projection = p.weights.expert(group.expert).*member;
    const auto rows = [&](const Tensor& all) { return all.slice(0, group.row, group.row + group.rows); };
    ops::run(ops::CutlassW4a8MoeMm{.d = rows(out),
                                   .a = rows(codes),
                                   .b = codes_of(projection),
                                   .a_scales = scalar(scale),
                                   .b_scales = projection.block_scales,
                                   .experts_offsets = Tensor(DType::i32, {1})},
             p.exec());
  }
  return out;
}

Tensor multiply(const Pass& p, const Tensor& codes, float scale, const std::vector<ExpertRows>& groups, Projection MlpWeights::*member) {
  const Projection& any = p.weights.expert(groups.front().expert).*member;
  return any.prepared.defined() ? multiply_prepared(p, codes, scale, groups, member) : multiply_raw(p, codes, scale, groups, member);
}

/// Ids among the experts of this rank; those of others have the number behind.
Tensor ids_here(const Pass& p, const Tensor& ids) {
  const Share& mine = p.weights.source().shard().experts;
  if (mine.whole()) return ids;
  const std::int64_t local = p.config().n_routed_experts / mine.count, first = mine.index * local;
  Tensor here(DType::i32, ids.shape());
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const std::int64_t id = ids.as<const std::int32_t>()[i] - first;
    here.as<std::int32_t>()[i] = static_cast<std::int32_t>(id >= 0 && id < local ? id : local);
  }
  return here;
}

/// sglang `cutlass_w4a8_moe`: tokens sorted by expert and quantized with one scale, multiplied, activated and quantized, multiplied,
/// summed.
Tensor by_cutlass(const Pass& p, const Tensor& x, const Routing& routing) {
  const Exec& exec = p.exec();
  const auto& scales = p.weights.expert_input_scales;
  const std::vector<ExpertRows> groups = groups_of(routing.counts);
  const Tensor ids = ids_here(p, routing.ids);
  const std::int64_t hidden = x.size(1), topk = ids.size(1), experts = p.weights.experts() / p.weights.source().shard().experts.count;
  const Tensor src2dst = ops::run(ops::CutlassW4RunMoeEpPreproess{.topk_ids = ids}, exec).src2dst.reshape(ids.shape());
  const Tensor permuted = ops::run(ops::PreReorderForCutlassMoe{.input = x,
                                                                .gateup_input = Tensor(DType::f8_e4m3, {x.size(0) * topk, hidden}),
                                                                .src2dst = src2dst,
                                                                .topk_ids = ids,
                                                                .a1_scales = scalar(scales.gate_up),
                                                                .num_local_experts = experts},
                                   exec)
                              .gateup_input;
  ops::run(ops::GetCutlassW4a8MoeMmData{.topk_ids = ids,
                                        .input_permutation = Tensor(DType::i32, {routing.rows()}),
                                        .output_permutation = Tensor(DType::i32, {routing.rows()}),
                                        .num_experts = experts,
                                        .n = p.config().moe_intermediate_size,
                                        .k = hidden},
           exec);
  const Tensor both = multiply(p, permuted, scales.gate_up, groups, &MlpWeights::gate_up);
  const Tensor count(DType::i32, {1});
  *count.as<std::int32_t>() = static_cast<std::int32_t>(routing.rows());
  const Tensor h =
      ops::run(ops::SiluMulStaticTensorwiseQuantForCutlassMoe{.input = both, .scale = scalar(scales.down), .num_tokens_tensor = count},
               exec)
          .output;
  const Tensor rows = multiply(p, h, scales.down, groups, &MlpWeights::down);
  return ops::run(ops::PostReorderForCutlassMoe{.down_output = rows,
                                                .src2dst = src2dst,
                                                .topk_ids = ids,
                                                .topk_weights = routing.weights,
                                                .num_local_experts = experts,
                                                .routed_scaling_factor = p.config().routed_scaling_factor},
                  exec)
      .output;
}

Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  Work work = reading({x});
  work += products_of(p, routing);
  return run_experts(p, x, work, [&] { return by_cutlass(p, x, routing); });
}

}  // namespace

const LinearMethod w4a8_method{.name = "w4a8", .kernel = "cutlass_w4a8_moe_mm", .narrow = true, .prepare = prepare};

const ExpertsBackend w4a8_experts{.name = "cutlass",
                                  .kernel = "cutlass_w4a8_moe_mm",
                                  .fuses_shared = false,
                                  .sums_rows = true,
                                  .one_input_scale = true,
                                  .accepts = [](const LinearMethod& stored) { return &stored == &w4a8_method ? &w4a8_method : nullptr; },
                                  .run = run};

}  // namespace dodona::model
