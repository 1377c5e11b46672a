// Experts by one kernel, from tokens to their sums: FlashInfer's, of fp8 blocks and of NVFP4.
#include <cstring>
#include <limits>
#include <vector>

#include "core/define.h"
#include "dodona/error.h"
#include "model/layer/experts/experts.h"
#include "model/layer/values.h"
#include "ops/moe/whole/cutlass_fused_moe.h"
#include "ops/moe/whole/trtllm_bf16_moe.h"
#include "ops/moe/whole/trtllm_fp4_block_scale_moe.h"
#include "ops/moe/whole/trtllm_fp8_block_scale_moe.h"
#include "ops/quantization/fp4_quantize.h"
#include "ops/quantization/sgl_per_token_group_quant_fp8.h"
#include "quant/sizes.h"
#include "quant/swizzle.h"

namespace dodona::model {
namespace {

// ---- weights as the kernels take them

/// One matrix of an expert, or of several one behind the other: codes [E, N, ..], scales [E, ..].
struct Matrices {
  Tensor codes, scales;
};
/// Rows of up before those of gate, and the second matrix.
struct Pair {
  Matrices first, second;
};
/// A kernel's order of an expert's weights, [1, ..].
using Arrange = Pair (*)(const MlpWeights&);

std::int64_t bytes_of_row(const Tensor& rows) {
  return bytes_for(rows.dtype(), rows.size(1));
}

/// [N, ..] to [1, N, ..]: row r of the result is row from(r).
template <class From>
Tensor reordered(const Tensor& rows, const From& from) {
  Tensor out = Tensor::uninitialized(rows.dtype(), {1, rows.size(0), rows.size(1)});
  const auto bytes = static_cast<std::size_t>(bytes_of_row(rows));
  for (std::int64_t r = 0; r < rows.size(0); ++r)
    std::memcpy(out.as<std::byte>() + static_cast<std::size_t>(r) * bytes, rows.as<std::byte>() + static_cast<std::size_t>(from(r)) * bytes,
                bytes);
  return out;
}
Tensor alone(const Tensor& matrix) {
  return matrix.reshape({1, matrix.size(0), matrix.size(1)});
}
/// Gate and up exchanged.
Tensor exchanged(const Tensor& rows) {
  return reordered(rows, [&](std::int64_t r) { return (r + rows.size(0) / 2) % rows.size(0); });
}
/// Block scales [1, N, K/16] in tiles of 128 x 4.
Tensor tiled(const Tensor& scales) {
  constexpr auto layout = quant::ScaleLayout::swizzled_128x4;
  const auto padded = quant::padded_size(layout, scales.size(1), scales.size(2));
  Tensor tiles(DType::f8_e4m3, {1, padded.rows, padded.columns});
  quant::swizzle_scales(layout, {scales.as<std::uint8_t>(), static_cast<std::size_t>(scales.elements())}, scales.size(1), scales.size(2),
                        {tiles.as<std::uint8_t>(), static_cast<std::size_t>(tiles.elements())});
  return tiles;
}

Pair arranged_blocks(const MlpWeights& expert) {
  return {{exchanged(expert.gate_up.weight.weight), exchanged(expert.gate_up.block_scales)},
          {alone(expert.down.weight.weight), alone(expert.down.block_scales)}};
}
/// Without scales.
Pair arranged_bf16(const MlpWeights& expert) {
  return {{exchanged(expert.gate_up.weight.weight), {}}, {alone(expert.down.weight.weight), {}}};
}
/// Scales row by row.
Pair arranged_nvfp4(const MlpWeights& expert) {
  return {{exchanged(expert.gate_up.weight.weight), exchanged(expert.gate_up.weight.weight_scale)},
          {alone(expert.down.weight.weight), alone(expert.down.weight.weight_scale)}};
}
/// Of raw weights that grouped products take, whose scales are in tiles.
Pair arranged_grouped_nvfp4(const MlpWeights& expert) {
  const auto linear = [](const Projection& projection) {
    const std::int64_t rows = projection.rows(), columns = projection.columns() / 16;
    const Tensor& tiles = projection.block_scales;
    Tensor scales = Tensor::uninitialized(DType::f8_e4m3, {rows, columns});
    quant::unswizzle_scales(quant::ScaleLayout::swizzled_128x4, {tiles.as<std::uint8_t>(), static_cast<std::size_t>(tiles.elements())},
                            rows, columns, {scales.as<std::uint8_t>(), static_cast<std::size_t>(scales.elements())});
    return scales;
  };
  return {{exchanged(expert.gate_up.weight.weight), exchanged(linear(expert.gate_up))},
          {alone(expert.down.weight.weight), alone(linear(expert.down))}};
}
Pair arranged_nvfp4_tiles(const MlpWeights& expert) {
  Pair pair = arranged_nvfp4(expert);
  for (Matrices* const matrix : {&pair.first, &pair.second}) matrix->scales = tiled(matrix->scales);
  return pair;
}
/// trtllm-gen's shuffle deals out rows and their scales alike.
Pair arranged_nvfp4_shuffled(const MlpWeights& expert) {
  Pair pair = arranged_nvfp4(expert);
  for (Matrices* const matrix : {&pair.first, &pair.second}) {
    const ops::MoeMatrix order{.n = matrix->codes.size(1),
                               .shuffled = ops::trtllm_nvfp4_blocks.shuffled,
                               .alternating = ops::trtllm_nvfp4_blocks.alternating && matrix == &pair.first};
    const auto shuffled = [&](const Tensor& rows) {
      return reordered(rows.reshape({rows.size(1), rows.size(2)}), [&](std::int64_t r) { return ops::plain_row(order, r); });
    };
    *matrix = {shuffled(matrix->codes), tiled(shuffled(matrix->scales))};
  }
  return pair;
}

// ---- a call

/// What a kernel is called with.
struct Experts : RoutedExperts {
  /// A number of each expert.
  template <class Number>
  Tensor each(const Number& number) const {
    Tensor numbers(DType::f32, {count()});
    for (std::int64_t i = 0; i < count(); ++i) numbers.as<float>()[i] = number(expert(i));
    return numbers;
  }

  /// All weights in a kernel's order; nothing where they are packed.
  Pair stacked(Arrange arranged) const {
    if (expert(0).whole.defined()) return {};
    Pair all;
    const auto put = [this](const Tensor& one, Tensor& stack, std::int64_t at) {
      if (!one.defined()) return;
      if (at == 0) {
        Dims shape = one.shape();
        shape[0] = count();
        stack = Tensor::uninitialized(one.dtype(), shape);
      }
      std::memcpy(stack.slice(0, at, at + 1).data(), one.data(), static_cast<std::size_t>(bytes_for(one.dtype(), one.elements())));
    };
    for (std::int64_t i = 0; i < count(); ++i) {
      const Pair one = arranged(expert(i));
      put(one.first.codes, all.first.codes, i);
      put(one.first.scales, all.first.scales, i);
      put(one.second.codes, all.second.codes, i);
      put(one.second.scales, all.second.scales, i);
    }
    return all;
  }
  Prepared packed() const {
    if (!expert(0).whole.defined()) return {};
    std::vector<Prepared::Place> all;
    for (std::int64_t i = 0; i < count(); ++i) all.push_back({i, &expert(i).whole});
    return Prepared::gather(count(), all);
  }

  /// What an honest implementation's sums are, by the composition's golden mode. `moe` has what is not said here.
  std::vector<ops::Bounded> bounded(ops::WholeMoe moe, Arrange arranged, const Exec& exec) const {
    const Pair all = stacked(arranged);
    const bool tiles = moe.scheme.numbers != ops::MoeNumbers::nvfp4;
    moe.x = x;
    moe.first = {.codes = all.first.codes, .scales = all.first.scales, .n = 2 * width(), .k = hidden(), .scales_in_tiles = tiles};
    moe.second = {.codes = all.second.codes, .scales = all.second.scales, .n = hidden(), .k = width(), .scales_in_tiles = tiles};
    const std::vector<std::int64_t> place = places();
    for (std::int64_t t = 0; t < tokens(); ++t) {
      ops::TokenExperts route;
      for (std::int64_t i = t * topk(); i < (t + 1) * topk(); ++i) {
        const auto weight = static_cast<double>(routing.weights.as<float>()[i]);
        route.experts.push_back(place[static_cast<std::size_t>(routing.ids.as<std::int32_t>()[i])]);
        route.weights.push_back({moe.scheme.weights_in_f32 ? weight : quant::round_to(DType::bf16, weight)});
      }
      moe.routes.push_back(std::move(route));
    }
    moe.output = Tensor(DType::bf16, x.shape());
    Reference reference;
    ops::golden_whole_moe(moe, exec, &reference);
    const ReferenceOutput& record = *reference.find("output");
    std::vector<ops::Bounded> sums;
    for (std::size_t i = 0; i < record.exact.size(); ++i)
      sums.push_back(
          ops::rounded_to(DType::bf16, {record.exact[i], record.slack[i], !record.unspecified.empty() && record.unspecified[i] != 0}));
    return sums;
  }
};

/// Scales of NVFP4 activations and what products are multiplied with, of each expert. Source: sglang `ModelOptNvFp4FusedMoEMethod`.
struct Factors {
  Tensor rows_encode, activated_encode, first, second;

  /// One input scale for all experts, the largest.
  static Factors shared(const Experts& e) {
    const auto& scales = e.weights.expert_input_scales;
    return {scalar(1.0f / scales.gate_up), scalar(1.0f / scales.down),
            e.each([&](const MlpWeights& expert) { return scales.gate_up * expert.gate_up.weight.weight_scale_2; }),
            e.each([&](const MlpWeights& expert) { return scales.down * expert.down.weight.weight_scale_2; })};
  }
  /// Each expert has its own.
  static Factors own(const Experts& e) {
    return {e.each([](const MlpWeights& expert) { return 1.0f / expert.gate_up.weight.input_scale; }),
            e.each([](const MlpWeights& expert) { return 1.0f / expert.down.weight.input_scale; }),
            e.each([](const MlpWeights& expert) { return expert.gate_up.alpha(); }),
            e.each([](const MlpWeights& expert) { return expert.down.alpha(); })};
  }
  /// Of up where what the second product takes is encoded by it.
  Tensor encoded_first() const {
    Tensor factors = first.clone();
    for (std::int64_t i = 0; i < factors.elements(); ++i) factors.as<float>()[i] *= *activated_encode.as<float>();
    return factors;
  }
};

ops::WholeMoe of_scheme(ops::MoeScheme scheme, const ops::Requantizer& rows) {
  scheme.rows_become = rows;
  return {.scheme = scheme};
}
ops::WholeMoe of_factors(const ops::MoeScheme& scheme, const Factors& factors) {
  ops::WholeMoe moe = of_scheme(scheme, ops::encoded_nvfp4);
  moe.gate_factor = moe.up_factor = factors.first;
  moe.out_factor = factors.second;
  moe.rows_encode = factors.rows_encode;
  moe.activated_encode = factors.activated_encode;
  return moe;
}

// ---- trtllm-gen

/// Where every expert stands that tokens go to: those of this rank, then those elsewhere.
struct AllPlaces {
  std::vector<std::int64_t> of_expert;
  std::int64_t count;
};
AllPlaces all_places(const Experts& e) {
  AllPlaces all{e.places(), e.count()};
  for (std::int64_t i = 0; i < e.routing.rows(); ++i) {
    std::int64_t& place = all.of_expert[static_cast<std::size_t>(e.routing.ids.as<std::int32_t>()[i])];
    if (place < 0) place = all.count++;
  }
  return all;
}

/// Its routing as one that gives back the weights: the best logits, which are the weights themselves.
Tensor logits_of(const Experts& e, const std::vector<std::int64_t>& place, std::int64_t experts) {
  Tensor logits = Tensor::uninitialized(DType::f32, {e.tokens(), experts});
  for (std::int64_t i = 0; i < logits.elements(); ++i) logits.as<float>()[i] = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < e.routing.ids.elements(); ++i) {
    const std::int32_t id = e.routing.ids.as<std::int32_t>()[i];
    float& logit = logits.as<float>()[i / e.topk() * experts + place[static_cast<std::size_t>(id)]];
    if (logit != -std::numeric_limits<float>::infinity())
      throw Error(ErrorCode::unsupported, "", "experts",
                  "are run by trtllm, whose routing sends no token to one expert twice, as token " + std::to_string(i / e.topk()) +
                      " goes to expert " + std::to_string(id));
    logit = e.routing.weights.as<float>()[i];
  }
  return logits;
}

/// A call's weights. How those of bf16 are dealt out in memory changes no number: they stay in their own order.
template <class Op>
Op trtllm_weights(const Pair& pair) {
  Op op;
  op.gemm1_weights = pair.first.codes;
  op.gemm2_weights = pair.second.codes;
  if constexpr (requires { op.gemm1_weights_scale; }) {
    op.gemm1_weights_scale = pair.first.scales;
    op.gemm2_weights_scale = pair.second.scales;
  } else {
    op.weight_layout = 0;
    op.use_shuffled_weight = false;
  }
  return op;
}

/// The routing, the weights and their sizes.
template <class Op>
Op trtllm_call(const Experts& e, Arrange arranged) {
  const AllPlaces places = all_places(e);
  const std::int64_t experts = quant::align(places.count, 4);
  Op op = trtllm_weights<Op>(e.stacked(arranged));
  op.routing_logits = logits_of(e, places.of_expert, experts);
  op.num_experts = experts;
  op.top_k = e.topk();
  op.intermediate_size = e.width();
  op.local_num_experts = e.count();
  op.routing_method_type = "TopK";
  return op;
}

Tensor by_trtllm(const Experts& e, const Exec& exec) {
  const auto tokens = ops::run(ops::SglPerTokenGroupQuantFp8{.input = e.x}, exec);
  auto op = trtllm_call<ops::TrtllmFp8BlockScaleMoe>(e, arranged_blocks);
  op.hidden_states = tokens.output_q;
  op.hidden_states_scale = tokens.output_s.transpose(0, 1).clone();
  return ops::run(op, exec, e.packed()).output;
}

Tensor by_trtllm_nvfp4(const Experts& e, const Exec& exec) {
  const Factors factors = Factors::shared(e);
  const auto tokens = ops::run(ops::Fp4Quantize{.input = e.x, .global_scale = factors.rows_encode, .is_sf_swizzled_layout = false}, exec);
  auto op = trtllm_call<ops::TrtllmFp4BlockScaleMoe>(e, arranged_nvfp4_shuffled);
  op.hidden_states = tokens.x_q;
  op.hidden_states_scale = tokens.sf;
  op.output1_scale_scalar = factors.encoded_first();
  op.output1_scale_gate_scalar = factors.first;
  op.output2_scale_scalar = factors.second;
  return ops::run(op, exec, e.packed()).output;
}

Tensor by_trtllm_bf16(const Experts& e, const Exec& exec) {
  auto op = trtllm_call<ops::TrtllmBf16Moe>(e, arranged_bf16);
  op.hidden_states = e.x;
  return ops::run(op, exec, e.packed()).output;
}

std::vector<ops::Bounded> bounded_trtllm(const Experts& e, const Exec& exec) {
  return e.bounded(of_scheme(ops::trtllm_fp8_blocks, ops::sgl_fp8_groups), arranged_blocks, exec);
}
std::vector<ops::Bounded> bounded_trtllm_bf16(const Experts& e, const Exec& exec) {
  return e.bounded({.scheme = ops::trtllm_bf16}, arranged_bf16, exec);
}
std::vector<ops::Bounded> bounded_trtllm_nvfp4(const Experts& e, const Exec& exec) {
  const Factors factors = Factors::shared(e);
  ops::WholeMoe moe = of_factors(ops::trtllm_nvfp4_blocks, factors);
  moe.up_factor = factors.encoded_first();
  moe.activated_encode = Tensor();
  return e.bounded(moe, arranged_nvfp4, exec);
}

// ---- CUTLASS, as FlashInfer has it

ops::CutlassFusedMoe cutlass_call(const Experts& e, Arrange arranged) {
  const Pair all = e.stacked(arranged);
  return {.input = e.x,
          .token_selected_experts = e.ids_among_these(DType::i32),
          .token_final_scales = e.routing.weights,
          .fc1_expert_weights = all.first.codes,
          .fc2_expert_weights = all.second.codes,
          .fc1_weight_scale = all.first.scales,
          .fc2_weight_scale = all.second.scales};
}

Tensor by_flashinfer_cutlass(const Experts& e, const Exec& exec) {
  ops::CutlassFusedMoe op = cutlass_call(e, arranged_blocks);
  op.use_deepseek_fp8_block_scale = true;
  return ops::run(op, exec, e.packed()).output;
}
/// Tokens in bf16: the kernel quantizes them.
Tensor by_flashinfer_cutlass_nvfp4(const Experts& e, const Exec& exec) {
  const Factors factors = Factors::shared(e);
  ops::CutlassFusedMoe op = cutlass_call(e, arranged_nvfp4_tiles);
  op.fc1_act_scale = factors.rows_encode;
  op.fc2_act_scale = factors.activated_encode;
  op.fc1_dequant = factors.first;
  op.fc2_dequant = factors.second;
  return ops::run(op, exec, e.packed()).output;
}

std::vector<ops::Bounded> bounded_flashinfer_cutlass(const Experts& e, const Exec& exec) {
  return e.bounded({.scheme = ops::cutlass_fp8_blocks}, arranged_blocks, exec);
}
std::vector<ops::Bounded> bounded_flashinfer_cutlass_nvfp4(const Experts& e, const Exec& exec) {
  return e.bounded(of_factors(ops::cutlass_nvfp4_blocks, Factors::shared(e)), arranged_nvfp4, exec);
}
/// sglang's grouped products: each expert with its own input scales, weights in bf16.
std::vector<ops::Bounded> bounded_grouped_nvfp4(const Experts& e, const Exec& exec) {
  ops::MoeScheme scheme = ops::cutlass_nvfp4_blocks;
  scheme.weights_in_f32 = false;
  return e.bounded(of_factors(scheme, Factors::own(e)), arranged_grouped_nvfp4, exec);
}

// ---- backends

template <Tensor (*kernel)(const Experts&, const Exec&)>
Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  Work work = {};
  for (const ExpertRows& group : groups_of(routing.counts)) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    work += expert.gate_up.work(group.rows, x.dtype());
    work += expert.down.work(group.rows, x.dtype());
  }
  return run_experts(p, x, work, [&] { return kernel(Experts{{p.weights, x, routing}}, p.exec()); });
}

template <std::vector<ops::Bounded> (*sums)(const Experts&, const Exec&)>
std::vector<ops::Bounded> bounded(const LayerWeights& weights, const Tensor& x, const Routing& routing, const Exec& exec) {
  return sums(Experts{{weights, x, routing}}, exec);
}

const LinearMethod* as_blocks(const LinearMethod& stored) {
  return stored.apply != nullptr ? &fp8_blocks_method : nullptr;
}
const LinearMethod* as_nvfp4(const LinearMethod& stored) {
  return &stored == &nvfp4_method ? &nvfp4_whole_method : nullptr;
}

/// Raw weights are given up.
template <class Weights>
void keep_packed(MlpWeights& expert, const Weights& weights, const Exec& exec) {
  expert.whole = ops::prepare(weights, exec);
  for (Projection* const projection : {&expert.gate_up, &expert.down})
    projection->weight.weight = projection->weight.weight_scale = projection->block_scales = Tensor();
}
template <class Op, Arrange arranged>
void pack_trtllm(MlpWeights& expert, const Exec& exec) {
  keep_packed(expert, trtllm_weights<Op>(arranged(expert)), exec);
}
template <Arrange arranged>
void pack_cutlass(MlpWeights& expert, const Exec& exec) {
  const Pair pair = arranged(expert);
  keep_packed(expert,
              ops::CutlassFusedMoe{.fc1_expert_weights = pair.first.codes,
                                   .fc2_expert_weights = pair.second.codes,
                                   .fc1_weight_scale = pair.first.scales,
                                   .fc2_weight_scale = pair.second.scales},
              exec);
}

const LinearMethod bf16_stored{.name = "bf16, as stored", .kernel = "trtllm_bf16_moe", .prepare = [](Projection&, const Exec&) {}};

}  // namespace

const LinearMethod nvfp4_whole_method{
    .name = "nvfp4, whole mixtures", .kernel = "cutlass_fused_moe", .narrow = true, .prepare = [](Projection&, const Exec&) {}};

std::vector<ops::Bounded> bounded_cutlass_nvfp4(const LayerWeights& weights, const Tensor& x, const Routing& routing, const Exec& exec) {
  return bounded<bounded_grouped_nvfp4>(weights, x, routing, exec);
}

const ExpertsBackend trtllm_bf16_experts{
    .name = "trtllm",
    .kernel = "trtllm_bf16_moe",
    .factor = FactorPlace::router,
    .fuses_shared = false,
    .sums_rows = true,
    .sizes_are_multiples_of = 128,
    .accepts = [](const LinearMethod& stored) { return &stored == &bf16_method ? &bf16_stored : nullptr; },
    .pack = pack_trtllm<ops::TrtllmBf16Moe, arranged_bf16>,
    .run = run<by_trtllm_bf16>,
    .bounded = bounded<bounded_trtllm_bf16>};
const ExpertsBackend trtllm_experts{.name = "trtllm",
                                    .weights = ExpertWeights::fp8,
                                    .kernel = "trtllm_fp8_block_scale_moe",
                                    .factor = FactorPlace::router,
                                    .fuses_shared = false,
                                    .sums_rows = true,
                                    .sizes_are_multiples_of = 128,
                                    .accepts = as_blocks,
                                    .pack = pack_trtllm<ops::TrtllmFp8BlockScaleMoe, arranged_blocks>,
                                    .run = run<by_trtllm>,
                                    .bounded = bounded<bounded_trtllm>};
const ExpertsBackend flashinfer_cutlass_experts{.name = "flashinfer_cutlass",
                                                .weights = ExpertWeights::fp8,
                                                .kernel = "cutlass_fused_moe",
                                                .factor = FactorPlace::router,
                                                .sums_rows = true,
                                                .sizes_are_multiples_of = 128,
                                                .accepts = as_blocks,
                                                .pack = pack_cutlass<arranged_blocks>,
                                                .run = run<by_flashinfer_cutlass>,
                                                .bounded = bounded<bounded_flashinfer_cutlass>};
const ExpertsBackend trtllm_nvfp4_experts{.name = "trtllm",
                                          .kernel = "trtllm_fp4_block_scale_moe",
                                          .factor = FactorPlace::router,
                                          .fuses_shared = false,
                                          .sums_rows = true,
                                          .one_input_scale = true,
                                          .sizes_are_multiples_of = 128,
                                          .accepts = as_nvfp4,
                                          .pack = pack_trtllm<ops::TrtllmFp4BlockScaleMoe, arranged_nvfp4_shuffled>,
                                          .run = run<by_trtllm_nvfp4>,
                                          .bounded = bounded<bounded_trtllm_nvfp4>};
const ExpertsBackend flashinfer_cutlass_nvfp4_experts{.name = "flashinfer_cutlass",
                                                      .kernel = "cutlass_fused_moe",
                                                      .factor = FactorPlace::router,
                                                      .sums_rows = true,
                                                      .one_input_scale = true,
                                                      .sizes_are_multiples_of = 64,
                                                      .accepts = as_nvfp4,
                                                      .pack = pack_cutlass<arranged_nvfp4_tiles>,
                                                      .run = run<by_flashinfer_cutlass_nvfp4>,
                                                      .bounded = bounded<bounded_flashinfer_cutlass_nvfp4>};

}  // namespace dodona::model
