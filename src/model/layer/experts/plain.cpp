// Experts one by one, whatever their weights.
#include "core/define.h"
#include "core/threads.h"
#include "model/layer/experts/experts.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/moe/align/prepare_moe_input.h"
#include "ops/moe/permute/shuffle_rows.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

/// weighed[t,j] = round(weight[t,j] * rows[permutation[t,j]]) for fp32 rows: the products of the experts' second GEMM, which the Triton
/// kernel weighs before it stores them.
Tensor weighed(const Pass& p, const Routing& routing, const Tensor& rows, const Tensor& permutation, DType type) {
  const std::int64_t columns = rows.size(1), topk = routing.ids.size(1);
  Tensor out = Tensor::uninitialized(type, {p.tokens(), topk, columns});
  parallel_for(p.exec().threads, routing.rows(), static_cast<double>(columns), [&](std::int64_t i) {
    std::vector<float> products(static_cast<std::size_t>(columns));
    const float weight = routing.weights.as<float>()[i];
    const float* const row = rows.as<float>() + permutation.as<std::int32_t>()[i] * columns;
    for (std::size_t k = 0; k < products.size(); ++k) products[k] = weight * row[k];
    quant::from_f32(type, products.data(), out.as<std::byte>() + bytes_for(type, i * columns), columns);
  });
  return out;
}

Tensor one_by_one(const Pass& p, const Tensor& x, const Routing& routing, const std::vector<ExpertRows>& groups) {
  const Exec& exec = p.exec();
  const auto sorted = ops::run(
      ops::PrepareMoeInput{
          .topk_ids = routing.ids, .num_experts = p.weights.experts(), .n = p.config().moe_intermediate_size, .k = p.config().hidden_size},
      exec);
  const Tensor permuted = ops::run(ops::ShuffleRows{.input_tensor = x, .dst2src_map = sorted.input_permutation}, exec).output_tensor;
  const Tensor down(DType::f32, {routing.rows(), p.config().hidden_size});
  for (const ExpertRows& group : groups) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    const Tensor gate_up = expert.gate_up(permuted.slice(0, group.row, group.row + group.rows), exec);
    const Tensor activated = ops::run(ops::SiluAndMul{.input = gate_up}, exec).out;
    // Unrounded: rows are weighed first.
    copy(expert.down.method->apply(expert.down, activated, DType::f32, exec), down.slice(0, group.row, group.row + group.rows));
  }
  return sum_by_triton(p, weighed(p, routing, down, sorted.output_permutation, x.dtype()));
}

Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  const std::vector<ExpertRows> groups = groups_of(routing.counts);
  Work work;
  for (const ExpertRows& group : groups) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    work += expert.gate_up.work(group.rows, x.dtype());
    work += expert.down.work(group.rows, x.dtype());
  }
  return run_experts(p, x, work, [&] { return one_by_one(p, x, routing, groups); });
}

}  // namespace

const ExpertsBackend plain_experts{
    .name = "plain",
    .roundings = {.weighs_first = true},
    .accepts = [](const LinearMethod& stored) { return stored.apply != nullptr && stored.gives_f32 ? &stored : nullptr; },
    .run = run};

}  // namespace dodona::model
