// FP8 experts as grouped products: four backends, which differ in how rows are dealt, quantized, multiplied and added up.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/define.h"
#include "dodona/error.h"
#include "model/layer/experts/deepep.h"
#include "model/layer/experts/experts.h"
#include "model/layer/values.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/moe/activation/silu_and_mul_masked_post_quant_fwd.h"
#include "ops/moe/align/moe_align_block_size.h"
#include "ops/moe/align/moe_ep_deepgemm_preprocess.h"
#include "ops/moe/align/prepare_moe_input.h"
#include "ops/moe/combine/apply_shuffle_mul_sum.h"
#include "ops/moe/combine/post_reorder_triton_kernel.h"
#include "ops/moe/deepep/deepep_low_latency_combine.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch.h"
#include "ops/moe/grouped/es_fp8_blockwise_scaled_grouped_mm.h"
#include "ops/moe/grouped/fp8_blockwise_scaled_grouped_mm.h"
#include "ops/moe/grouped/fused_moe_kernel.h"
#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_masked.h"
#include "ops/moe/permute/shuffle_rows.h"
#include "ops/quantization/sgl_per_token_group_quant_fp8.h"
#include "quant/sizes.h"

namespace dodona::model {
namespace {

/// One weight of all experts that have rows.
struct Stack {
  Tensor codes, scales;                    ///< [E, N, K], [E, N/128, K/128]
  Prepared prepared = {};                  ///< stands for the codes where there is any
  std::vector<std::int64_t> experts = {};  ///< in their order
};

/// The experts that have rows, one behind the other: the others are absent, and no row names them.
struct Experts : RoutedExperts {
  const Pass& pass;

  Experts(const Pass& p, const Tensor& rows, const Routing& route) : RoutedExperts{p.weights, rows, route}, pass(p) {}

  const Exec& exec() const { return pass.exec(); }
  float factor() const { return static_cast<float>(pass.config().routed_scaling_factor); }

  /// Codes are copied where they are raw.
  Stack stacked(Projection MlpWeights::*member) const {
    const Projection& any = expert(0).*member;
    const bool packed = any.prepared.defined();
    const Dims scales = any.block_scales.shape();
    Stack stack{packed ? Tensor() : Tensor::uninitialized(DType::f8_e4m3, {count(), any.rows(), any.columns()}),
                Tensor(DType::f32, {count(), scales[0], scales[1]})};
    const auto put = [](const Tensor& one, const Tensor& all, std::size_t at) {
      const auto bytes = static_cast<std::size_t>(bytes_for(one.dtype(), one.elements()));
      std::memcpy(all.as<std::byte>() + at * bytes, one.data(), bytes);
    };
    std::vector<Prepared::Place> places;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const Projection& one = expert(static_cast<std::int64_t>(i)).*member;
      put(one.block_scales, stack.scales, i);
      places.push_back({static_cast<std::int64_t>(i), &one.prepared});
      if (!packed) put(one.weight.weight, stack.codes, i);
    }
    if (packed) stack.prepared = Prepared::gather(count(), places);
    stack.experts = ids();
    return stack;
  }
  /// Raw codes are kept in the order of first use, not copied.
  Stack kept(Projection MlpWeights::*member) const {
    if ((expert(0).*member).prepared.defined()) return stacked(member);
    const ExpertStack& all = pass.weights.stack(member, ids());
    const auto there = static_cast<std::int64_t>(all.experts.size());
    return {all.codes.slice(0, 0, there), all.scales.slice(0, 0, there), {}, all.experts};
  }
};

constexpr auto gate_up = &MlpWeights::gate_up, down = &MlpWeights::down;

struct Quantized {
  Tensor codes, scales;
};
Quantized quantized(const Tensor& x, const Exec& exec) {
  const auto run = ops::run(ops::SglPerTokenGroupQuantFp8{.input = x}, exec);
  return {run.output_q, run.output_s};
}
Tensor activated(const Tensor& both, const Exec& exec) {
  return ops::run(ops::SiluAndMul{.input = both}, exec).out;
}

/// sglang `cutlass_fused_experts_fp8`; with expert specialization both of its products are another kernel's.
template <class Product>
Tensor by_cutlass(const Experts& e) {
  const auto sorted = ops::run(
      ops::PrepareMoeInput{.topk_ids = e.ids_among_these(DType::i32), .num_experts = e.count(), .n = e.width(), .k = e.hidden()}, e.exec());
  const auto shuffled = [&](const Tensor& rows) {
    // Scales of layers narrower than any model's: upstream's kernel moves 16 bytes at a time, and would leave theirs where they are.
    Exec exec = e.exec();
    if (bytes_for(rows.dtype(), rows.size(1)) % 16 != 0) exec.mode = Mode::fast;
    return ops::run(ops::ShuffleRows{.input_tensor = rows, .dst2src_map = sorted.input_permutation}, exec).output_tensor;
  };
  const auto multiply = [&](const Quantized& a, Projection MlpWeights::*member) {
    const Stack b = e.stacked(member);
    return ops::run(Product{.a = a.codes,
                            .b = b.codes.defined() ? b.codes.transpose(1, 2) : Tensor(),
                            .scales_a = a.scales,
                            .scales_b = b.scales.transpose(1, 2),
                            .expert_offsets = sorted.expert_offsets.slice(0, 0, e.count())},
                    e.exec(), b.prepared)
        .output;
  };
  const Quantized tokens = quantized(e.x, e.exec());
  const Tensor both = multiply({shuffled(tokens.codes), shuffled(tokens.scales)}, gate_up);
  const Tensor rows = multiply(quantized(activated(both, e.exec()), e.exec()), down);
  return ops::run(ops::ApplyShuffleMulSum{.input = rows,
                                          .permutation = sorted.output_permutation,
                                          .factors = rounded(e.routing.weights, DType::bf16),
                                          .output = Tensor(DType::bf16, e.x.shape())},
                  e.exec())
      .output;
}

/// sglang `fused_experts_impl` with fp8 blocks and the default tiles.
Tensor by_triton(const Experts& e) {
  constexpr std::int64_t block_rows = 64, block = 128;
  const Stack first = e.kept(gate_up), second = e.kept(down);
  const Tensor ids = local_ids(e.routing, first.experts, DType::i32);
  const auto experts = static_cast<std::int64_t>(first.experts.size());
  const std::int64_t slots = experts + 1, room = ids.elements() + slots * (block_rows - 1), blocks = (room + block_rows - 1) / block_rows;
  const auto aligned = ops::run(ops::MoeAlignBlockSize{.topk_ids = ids,
                                                       .sorted_token_ids = Tensor(DType::i32, {quant::align(room, 4)}),
                                                       .experts_ids = Tensor(DType::i32, {blocks}),
                                                       .cumsum_buffer = Tensor(DType::i32, {slots + 1}),
                                                       .num_experts = slots,
                                                       .block_size = block_rows,
                                                       .pad_sorted_token_ids = true},
                                e.exec());
  const auto multiply = [&](const Quantized& a, const Stack& b, bool last) {
    return ops::run(ops::FusedMoeKernel{.A = a.codes,
                                        .B = b.codes,
                                        .A_scale = a.scales,
                                        .B_scale = b.scales,
                                        .topk_weights = e.routing.weights,
                                        .topk_ids = ids,
                                        .sorted_token_ids = aligned.sorted_token_ids,
                                        .expert_ids = aligned.experts_ids,
                                        .num_tokens_post_padded = aligned.num_tokens_post_pad,
                                        .mul_routed_weight = last,
                                        .top_k = last ? 1 : e.topk(),
                                        .block_size_m = block_rows,
                                        .block_size_n = block,
                                        .block_size_k = block,
                                        .use_fp8_w8a8 = true,
                                        .block_n = block,
                                        .block_k = block},
                    e.exec(), b.prepared)
        .C;
  };
  const Tensor both = multiply(quantized(e.x, e.exec()), first, false);
  const Tensor h = activated(both.reshape({ids.elements(), 2 * e.width()}), e.exec());
  return sum_by_triton(e.pass, multiply(quantized(h, e.exec()), second, true));
}

/// Both masked products of rows [E, M, H] and what lies between them.
Tensor masked_products(const Experts& e, const Quantized& rows, const Tensor& counts) {
  // Most rows of rooms count for nothing: the ops clear them, nobody else has to before.
  const auto room = [&](DType type, std::int64_t columns) {
    return Tensor::uninitialized(type, {rows.codes.size(0), rows.codes.size(1), columns});
  };
  const auto multiply = [&](const Quantized& a, Projection MlpWeights::*member) {
    const Stack b = e.stacked(member);
    const std::int64_t columns = (e.expert(0).*member).rows();
    return ops::run(
               ops::MGroupedFp8GemmNtMasked{
                   .a = a.codes, .sfa = a.scales, .b = b.codes, .sfb = b.scales, .d = room(DType::bf16, columns), .masked_m = counts},
               e.exec(), b.prepared)
        .d;
  };
  const auto h = ops::run(ops::SiluAndMulMaskedPostQuantFwd{.input = multiply(rows, gate_up),
                                                            .output = room(DType::f8_e4m3, e.width()),
                                                            .output_scale = room(DType::f32, e.width() / 128),
                                                            .masked_m = counts},
                          e.exec());
  return multiply({h.output, h.output_scale}, down);
}

/// Rows of every expert's room: those of the fullest; on a GPU whole tiles, as its kernel stores them. Upstream, which does not know how
/// many rows there are, has room for all tokens.
std::int64_t room_of(const Experts& e) {
  constexpr std::int64_t tile_rows = 64;
  return of_a_gpu(e.exec().mode) ? quant::align(e.most_rows(), tile_rows) : e.most_rows();
}

/// sglang's DeepGEMM runner behind its standard dispatch. The sum in bf16 is multiplied by the factor, and rounded again.
Tensor by_deepgemm(const Experts& e) {
  const std::int64_t room = room_of(e), upstreams = quant::align(e.tokens() + 1, 256);
  const auto dealt =
      ops::run(ops::MoeEpDeepgemmPreprocess{.topk_ids = e.ids_among_these(DType::i32),
                                            .hidden_states = e.x,
                                            .gateup_input = Tensor::uninitialized(DType::f8_e4m3, {e.count(), room, e.hidden()}),
                                            .gateup_input_scale = Tensor::uninitialized(DType::f32, {e.count(), room, e.hidden() / 128}),
                                            .num_local_experts = e.count(),
                                            .spare_rows = upstreams - room},
               e.exec());
  const Tensor rows = masked_products(e, {dealt.gateup_input, dealt.gateup_input_scale}, dealt.masked_m);
  const Tensor sums = ops::run(ops::PostReorderTritonKernel{.down_output = rows.reshape({rows.size(0) * rows.size(1), e.hidden()}),
                                                            .src2dst = dealt.src2dst,
                                                            .topk_ids = e.routing.ids,
                                                            .topk_weights = e.routing.weights},
                               e.exec())
                          .output;
  return times(sums, e.factor());
}

/// DeepEP's low-latency mode with one rank around DeepGEMM's masked products. The factor is applied where the sum is added to another.
Tensor by_deepep(const Experts& e) {
  const Tensor ids = e.ids_among_these(DType::i64).reshape({1, e.tokens(), e.topk()});
  const std::int64_t upstreams = quant::align(e.tokens(), 64);
  const auto sent = ops::run(ops::DeepepLowLatencyDispatch{.x = e.x.reshape({1, e.tokens(), e.hidden()}),
                                                           .topk_idx = ids,
                                                           .num_max_dispatch_tokens_per_rank = upstreams,
                                                           .num_experts = e.count(),
                                                           .spare_rows = upstreams - room_of(e)},
                             for_transport(e.exec()));
  const Tensor rows = masked_products(e, {sent.packed_recv_x, sent.packed_recv_x_scales}, sent.packed_recv_count);
  return ops::run(ops::DeepepLowLatencyCombine{.x = rows,
                                               .topk_idx = ids,
                                               .topk_weights = e.routing.weights.reshape(ids.shape()),
                                               .src_info = sent.packed_recv_src_info,
                                               .layout_range = sent.packed_recv_layout_range},
                  e.exec())
      .combined_x.reshape(e.x.shape());
}

Tensor sent_rows(const Pass& p, const Routing& routing, const LowLatencyExchange::Received& rows) {
  return masked_products(Experts(p, rows.x, routing), {rows.x, rows.scales}, rows.count);
}

template <Tensor (*body)(const Experts&)>
Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  Work work;
  for (const ExpertRows& group : groups_of(routing.counts)) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    for (const Projection* const projection : {&expert.gate_up, &expert.down}) {
      const double numbers = static_cast<double>(projection->rows()) * static_cast<double>(projection->columns());
      work.bytes += numbers, work.weight_bytes += numbers;
      work.flops += 2.0 * static_cast<double>(group.rows) * numbers;
    }
  }
  work.bytes += reading({x}).bytes;
  return run_experts(p, x, work, [&] { return body(Experts(p, x, routing)); });
}

template <const LinearMethod& method>
const LinearMethod* as_blocks(const LinearMethod& stored) {
  return stored.apply != nullptr ? &method : nullptr;
}

}  // namespace

// Both products take their activations in groups as long as a block.
constexpr std::int64_t block = 128;

const ExpertsBackend cutlass_fp8_experts{.name = "cutlass",
                                         .weights = ExpertWeights::fp8,
                                         .kernel = "fp8_blockwise_scaled_grouped_mm",
                                         .factor = FactorPlace::router,
                                         .roundings = {.narrow_weights = true},
                                         .sizes_are_multiples_of = block,
                                         .accepts = as_blocks<fp8_grouped_method>,
                                         .run = run<by_cutlass<ops::Fp8BlockwiseScaledGroupedMm>>};
const ExpertsBackend cutlass_es_experts{.name = "cutlass_es",
                                        .weights = ExpertWeights::fp8,
                                        .kernel = "es_fp8_blockwise_scaled_grouped_mm",
                                        .factor = FactorPlace::router,
                                        .roundings = {.narrow_weights = true},
                                        .sizes_are_multiples_of = block,
                                        .accepts = as_blocks<fp8_blocks_method>,
                                        .run = run<by_cutlass<ops::EsFp8BlockwiseScaledGroupedMm>>};
const ExpertsBackend triton_fp8_experts{.name = "triton",
                                        .weights = ExpertWeights::fp8,
                                        .kernel = "fused_moe_kernel",
                                        .factor = FactorPlace::experts,
                                        .roundings = {.weighs_first = true},
                                        .sizes_are_multiples_of = block,
                                        .accepts = as_blocks<fp8_fused_method>,
                                        .run = run<by_triton>};
const ExpertsBackend deepgemm_experts{.name = "deepgemm",
                                      .weights = ExpertWeights::fp8,
                                      .kernel = "m_grouped_fp8_gemm_nt_masked",
                                      .factor = FactorPlace::experts,
                                      .roundings = {.rounds_activation = true, .narrow_weights = true, .rounds_between = true},
                                      .sizes_are_multiples_of = block,
                                      .accepts = as_blocks<fp8_masked_method>,
                                      .run = run<by_deepgemm>};
const ExpertsBackend deepep_experts{.name = "deepep",
                                    .weights = ExpertWeights::fp8,
                                    .kernel = "m_grouped_fp8_gemm_nt_masked",
                                    .factor = FactorPlace::addition,
                                    .fuses_shared = false,
                                    .roundings = {.rounds_activation = true},
                                    .sizes_are_multiples_of = block,
                                    .accepts = as_blocks<fp8_masked_method>,
                                    .run = run<by_deepep>,
                                    .run_sent = sent_rows};

}  // namespace dodona::model
