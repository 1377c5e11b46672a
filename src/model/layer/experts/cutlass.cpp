// NVFP4 experts as grouped products.
#include "core/define.h"
#include "model/layer/experts/experts.h"
#include "model/layer/values.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/moe/align/prepare_moe_input.h"
#include "ops/moe/combine/apply_shuffle_mul_sum.h"
#include "ops/moe/grouped/cutlass_fp4_group_mm.h"
#include "ops/moe/permute/shuffle_rows.h"
#include "ops/quantization/scaled_fp4_experts_quant.h"
#include "quant/sizes.h"

namespace dodona::model {
namespace {

constexpr Part part = Part::experts_cutlass;

/// What the functions below need of the pass.
struct Experts {
  const Pass& pass;
  const Routing& routing;
  std::vector<ExpertRows> groups;
  ops::PrepareMoeInput sorted = {};  ///< of a plan, nothing

  std::int64_t count() const { return pass.weights.experts(); }
  std::int64_t rows() const { return routing.rows(); }
};

/// One of an expert's two products.
struct Product {
  std::string_view note;
  Projection MlpWeights::*member;
  const Projection& of(const Experts& e, const ExpertRows& group) const { return e.pass.weights.expert(group.expert).*member; }
};
constexpr Product gate_up{"gate_up", &MlpWeights::gate_up}, down{"down", &MlpWeights::down};

void sort_by_expert(Experts& e) {
  const Pass& p = e.pass;
  const Tensor& ids = e.routing.ids;
  p.trace.run({.part = part,
               .name = "prepare_moe_input",
               .inputs = {{"topk_ids", ids.shape()}},
               .outputs = {{"output_permutation", DType::i32, {e.rows()}}, {"input_permutation", DType::i32, {e.rows()}}},
               .work = reading({ids})},
              [&]() -> std::vector<Tensor> {
                e.sorted = ops::run(ops::PrepareMoeInput{.topk_ids = ids,
                                                         .num_experts = e.count(),
                                                         .n = p.config().moe_intermediate_size,
                                                         .k = p.config().hidden_size,
                                                         .with_blockscale_offsets = true},
                                    p.exec());
                return {e.sorted.output_permutation, e.sorted.input_permutation};
              });
}

struct Quantized {
  Tensor codes, scales;
};
/// Bytes of codes, two a byte, that share a block scale.
constexpr double codes_a_scale_byte = 8;

/// Experts without rows are not there: any scale does.
Tensor encode_scales(const Experts& e, const Product& product) {
  Tensor scales(DType::f32, {e.count()});
  for (std::int64_t i = 0; i < e.count(); ++i) scales.as<float>()[i] = 1.0f;
  for (const ExpertRows& group : e.groups) scales.as<float>()[group.expert] = 1.0f / product.of(e, group).weight.input_scale;
  return scales;
}

Quantized experts_quant(const Experts& e, const Product& product, const Tensor& x) {
  Tensor scales;
  Work work = reading({x});
  work.bytes += static_cast<double>(x.elements()) / 2 / codes_a_scale_byte;  // the scales; codes are the op's output
  const Tensor codes = e.pass.trace.run1({.part = part,
                                          .name = "scaled_fp4_experts_quant",
                                          .note = product.note,
                                          .inputs = {{"input", x.shape()}},
                                          .outputs = {{"output", DType::u8}},
                                          .work = work},
                                         [&] {
                                           const auto run =
                                               ops::run(ops::ScaledFp4ExpertsQuant{.input_tensor = x,
                                                                                   .input_global_scale = encode_scales(e, product),
                                                                                   .expert_offsets = e.sorted.expert_offsets,
                                                                                   .blockscale_offsets = e.sorted.blockscale_offsets,
                                                                                   .topk = e.routing.ids.size(1)},
                                                        e.pass.exec());
                                           scales = run.output_scales;
                                           return run.output;
                                         });
  return {codes, scales};
}

/// Weights as fast mode takes them, and what else each expert has; experts without rows have none.
Tensor multiply_prepared(const Experts& e, const Product& product, const Quantized& a) {
  Tensor alphas(DType::f32, {e.count()});
  std::vector<Prepared::Place> places;
  for (const ExpertRows& group : e.groups) {
    const Projection& projection = product.of(e, group);
    alphas.as<float>()[group.expert] = projection.alpha();
    places.push_back({group.expert, &projection.prepared});
  }
  return ops::run(ops::CutlassFp4GroupMm{.a_fp4 = a.codes,
                                         .a_blockscale = a.scales,
                                         .alphas = alphas,
                                         .expert_offsets = e.sorted.expert_offsets.slice(0, 0, e.count()),
                                         .blockscale_offsets = e.sorted.blockscale_offsets.slice(0, 0, e.count())},
                  e.pass.exec(), Prepared::gather(e.count(), places))
      .out;
}

/// Other modes read raw weights, which lie apart: each expert is a grouped product of its own.
Tensor multiply_raw(const Experts& e, const Product& product, const Quantized& a, std::int64_t columns) {
  const auto alone = [](const Tensor& tensor) { return tensor.reshape({1, tensor.size(0), tensor.size(1)}); };
  Tensor out(DType::bf16, {e.rows(), columns});
  for (const ExpertRows& group : e.groups) {
    const Projection& projection = product.of(e, group);
    ops::run(ops::CutlassFp4GroupMm{.a_fp4 = a.codes.slice(0, group.row, group.row + group.rows),
                                    .b_fp4 = alone(projection.weight.weight),
                                    .a_blockscale = a.scales.slice(0, group.scale_row, group.scale_row + quant::align(group.rows, 128)),
                                    .b_blockscale = alone(projection.block_scales),
                                    .alphas = scalar(projection.alpha()),
                                    .expert_offsets = Tensor(DType::i32, {1}),
                                    .out = out.slice(0, group.row, group.row + group.rows)},
             e.pass.exec());
  }
  return out;
}

Tensor group_mm(const Experts& e, const Product& product, const Quantized& a) {
  const Projection& any = product.of(e, e.groups.front());
  Work work;
  for (const ExpertRows& group : e.groups) work += product.of(e, group).product(group.rows);
  work.bytes += bytes_of(a.codes) * (1 + 1.0 / codes_a_scale_byte);
  return e.pass.trace.run1(
      {.part = part,
       .name = "cutlass_fp4_group_mm",
       .note = product.note,
       .inputs = {{"input", Dims{e.rows(), any.columns()}}, {"packed", a.codes.shape()}},
       .outputs = {{"output", DType::bf16}},
       .work = work},
      [&] { return any.prepared.defined() ? multiply_prepared(e, product, a) : multiply_raw(e, product, a, any.rows()); });
}

Tensor weighted_sum(const Experts& e, const Tensor& rows) {
  const Pass& p = e.pass;
  const Tensor& weights = e.routing.weights;
  const auto body = [&] {
    Tensor output(rows.dtype(), {p.tokens(), rows.size(1)});
    return ops::run(
               ops::ApplyShuffleMulSum{
                   .input = rows, .permutation = e.sorted.output_permutation, .factors = rounded(weights, rows.dtype()), .output = output},
               p.exec())
        .output;
  };
  return p.trace.run1({.part = part,
                       .name = "apply_shuffle_mul_sum",
                       .inputs = {{"input", rows.shape()}, {"topk_weights", weights.shape()}},
                       .outputs = {{"output", rows.dtype()}},
                       .work = reading({rows, weights, e.routing.ids})},
                      body);
}

Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  p.trace.enter(Part::mlp_moe, "self.experts()");
  const Trace::Scope scope(p.trace);
  Experts e{p, routing, groups_of(routing.counts)};
  sort_by_expert(e);
  const Tensor permuted = p.trace.run1(
      {.part = part, .name = "shuffle_rows", .inputs = {{"input", x.shape()}}, .outputs = {{"output", x.dtype()}}, .work = reading({x})},
      [&] { return ops::run(ops::ShuffleRows{.input_tensor = x, .dst2src_map = e.sorted.input_permutation}, p.exec()).output_tensor; });
  const Tensor both = group_mm(e, gate_up, experts_quant(e, gate_up, permuted));
  const Tensor activated = p.trace.run1({.part = part,
                                         .name = "silu_and_mul",
                                         .inputs = {{"input", both.shape()}},
                                         .outputs = {{"output", both.dtype()}},
                                         .work = reading({both})},
                                        [&] { return ops::run(ops::SiluAndMul{.input = both}, p.exec()).out; });
  Tensor out = weighted_sum(e, group_mm(e, down, experts_quant(e, down, activated)));
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace

const ExpertsBackend cutlass_experts{
    .name = "cutlass",
    .kernel = "cutlass_fp4_group_mm",
    .factor = FactorPlace::router,
    .accepts = [](const LinearMethod& stored) { return &stored == &nvfp4_method ? &nvfp4_grouped_method : nullptr; },
    .run = run,
    .bounded = bounded_cutlass_nvfp4};

}  // namespace dodona::model
