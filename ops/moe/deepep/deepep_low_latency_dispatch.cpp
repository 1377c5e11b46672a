#include "ops/moe/deepep/deepep_low_latency_dispatch.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/rows/copies/placed_rows.h"
#include "ops/rows/quantize/group_quant.h"

namespace dodona::ops {
namespace {

using Dispatch = DeepepLowLatencyDispatch;

constexpr std::int64_t group_size = 128;
constexpr float least_amax = 1e-4f;

// ---- what is sent

/// Tokens as they are sent.
struct Payload {
  Tensor x, scales;  ///< [tokens, H], and [tokens, groups or words]; scales undefined without fp8
};

/// Scales as the kernel sends them: exponents, or with round_scale alone the powers themselves.
Tensor powers_of(const Tensor& words, std::int64_t groups) {
  Tensor powers(f32, {words.size(0), groups});
  for (std::int64_t t = 0; t < words.size(0); ++t)
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::uint64_t word = quant::get_bits(words, t * words.size(1) + g / 4);
      powers.as<float>()[t * groups + g] = std::ldexp(1.0f, static_cast<int>(word >> (g % 4 * 8) & 0xFF) - 127);
    }
  return powers;
}

template <class Quantize>
Payload payload_of(const Dispatch& op, const Quantize& quantize) {
  const std::int64_t tokens = op.ranks() * op.tokens(), width = op.x.size(2), groups = width / group_size;
  const Tensor x = op.x.reshape({tokens, width});
  if (!op.use_fp8) return {x, {}};
  Payload sent{Tensor(f8_e4m3, {tokens, width}), op.round_scale ? Tensor(i32, {tokens, (groups + 3) / 4}) : Tensor(f32, {tokens, groups})};
  quantize(GroupQuant{x, sent.x, sent.scales, nullptr, group_size, least_amax, -448.0, 448.0, op.round_scale, false, true, false});
  if (op.round_scale && !op.use_ue8m0) sent.scales = powers_of(sent.scales, groups);
  return sent;
}

void place_all(const Dispatch& op, const DealtRows& rows, const Payload& sent, const Exec& exec) {
  place_rows(rows.token, sent.x, op.packed_recv_x, exec);
  if (op.packed_recv_x_scales.defined()) place_rows(rows.token, sent.scales, op.packed_recv_x_scales, exec);
  place_sources(low_latency_of(op), rows);
}

// ---- golden

/// What is known of powers sent as numbers, from what is known of their exponents, four to a word.
ReferenceOutput of_powers(const ReferenceOutput& exponents, std::int64_t groups) {
  ReferenceOutput powers;
  const std::size_t count = static_cast<std::size_t>(groups), of_words = (count + 3) / 4 * 4;
  for (std::size_t row = 0; row < exponents.exact.size(); row += of_words)
    for (std::size_t g = 0; g < count; ++g) {
      powers.exact.push_back(exponents.exact[row + g]);
      powers.slack.push_back(exponents.slack[row + g]);
      powers.unspecified.push_back(exponents.unspecified[row + g]);
    }
  return powers;
}

/// `out` holds the rows that `rows` says.
void record_all(const Dispatch& out, const DealtRows& rows, const Reference& sent, Reference& reference) {
  record_placed(rows.token, out.packed_recv_x, out.use_fp8 ? sent.find("output_q") : nullptr, reference, "packed_recv_x");
  if (out.packed_recv_x_scales.defined()) {
    const ReferenceOutput& quantized = *sent.find("output_s");
    const bool as_numbers = out.round_scale && !out.use_ue8m0;
    const ReferenceOutput powers = as_numbers ? of_powers(quantized, out.x.size(2) / group_size) : ReferenceOutput{};
    record_placed(rows.token, out.packed_recv_x_scales, as_numbers ? &powers : &quantized, reference, "packed_recv_x_scales",
                  Storage{f8_e8m0, {}});
  }
  record_sources(low_latency_of(out), rows, reference);
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, range_halves_swapped, scale_of_whole_row };

template <Rule rule>
void golden(const Dispatch& op, const Exec& exec, Reference* reference) {
  Reference sent;
  const DealtRows rows = dealt_rows(low_latency_of(op));
  const Payload payload = payload_of(op, [&](const GroupQuant& quant) {
    golden_group_quant(quant, rule == Rule::scale_of_whole_row ? largest_of_half_group : quant::amax, exec, &sent);
  });
  place_all(op, rows, payload, exec);
  if (rule == Rule::range_halves_swapped)
    for (std::int64_t i = 0; i < op.packed_recv_layout_range.elements(); ++i) {
      std::int64_t& range = op.packed_recv_layout_range.as<std::int64_t>()[i];
      range = (range & 0xFFFFFFFF) << 32 | range >> 32;
    }
  if (reference != nullptr) record_all(op, rows, sent, *reference);
}

void condition(const Dispatch& actual, const Exec& exec, Reference& reference) {
  DealtRows rows;
  if (!rows_as_dealt(low_latency_of(actual), rows)) return;
  Dispatch out = actual;
  for (Tensor* t :
       {&out.packed_recv_x, &out.packed_recv_x_scales, &out.packed_recv_count, &out.packed_recv_src_info, &out.packed_recv_layout_range})
    if (t->defined()) *t = Tensor(t->dtype(), t->shape());
  Reference sent;
  const Payload payload = payload_of(out, [&](const GroupQuant& quant) { golden_group_quant(quant, quant::amax, exec, &sent); });
  place_all(out, rows, payload, exec);
  record_all(out, rows, sent, reference);
}

void fast(const Dispatch& op, const Exec& exec) {
  place_all(op, dealt_rows(low_latency_of(op)), payload_of(op, [&](const GroupQuant& quant) { fast_group_quant(quant, exec); }), exec);
}

void make_outputs(Dispatch& op) {
  // Numbers that the schema refuses are left to it.
  constexpr std::int64_t most = 1 << 20;
  const auto in_range = [](std::int64_t number) { return number >= 1 && number <= most; };
  if (!op.x.defined() || op.x.rank() != 3 || !in_range(op.num_experts) || !in_range(op.num_max_dispatch_tokens_per_rank)) return;
  const std::int64_t rows = op.room(), width = op.x.size(2), groups = (width + group_size - 1) / group_size;
  if (!op.packed_recv_x.defined() && op.use_fp8) op.packed_recv_x = Tensor(f8_e4m3, {op.num_experts, rows, width});
  if (!op.packed_recv_x_scales.defined() && op.use_fp8 && op.use_ue8m0)
    op.packed_recv_x_scales = Tensor(i32, {op.num_experts, rows, (groups + 3) / 4});
}

void check(const Dispatch& op) {
  require_ranks(low_latency_of(op));
  if (op.use_ue8m0 && !(op.use_fp8 && op.round_scale))
    throw Error(ErrorCode::bad_value, "", "use_ue8m0", "is true, expected use_fp8 and round_scale with it");
  if (op.round_scale && !op.use_fp8) throw Error(ErrorCode::bad_value, "", "round_scale", "is true, expected use_fp8 with it");
  const auto wants = [&](const Tensor& t, const char* name, DType type) {
    if (t.defined() && t.dtype() != type)
      throw Error(
          ErrorCode::bad_dtype, "", name,
          "has dtype " + std::string(dodona::name(t.dtype())) + ", expected " + std::string(dodona::name(type)) + " with these attributes");
  };
  wants(op.packed_recv_x, "packed_recv_x", op.use_fp8 ? f8_e4m3 : bf16);
  wants(op.packed_recv_x_scales, "packed_recv_x_scales", op.use_ue8m0 ? i32 : f32);
  if (op.packed_recv_x_scales.defined() && !op.use_fp8)
    throw Error(ErrorCode::bad_value, "", "packed_recv_x_scales", "is given, expected none without use_fp8");
  require_room(low_latency_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_low_latency_dispatch() {
  const std::string few = " --attr num_max_dispatch_tokens_per_rank=8 --attr num_experts=8";
  return define<ops::DeepepLowLatencyDispatch>({
      .contract = R"(
A row for each token and each expert that it chose, in the expert's room; rows of a rank lie together, in any order, and so do ranks: here
by rank and token. Without use_fp8 a copy of bits. With it groups of 128: amax = max(1e-4, max |x|), s = fl32(amax * fl32(1/448)), code =
e4m3(fl32(x * fl32(448/amax))), saturating; with round_scale s = 2^e, the least that is not below that, and code = e4m3(x * 2^-e);
use_ue8m0 stores e + 127. Budgets as in version 2 of sgl_per_token_group_quant_8bit; of a group that holds an infinity the power and the codes are open with
round_scale. The rows that layout_range and src_info name decide where each token's must lie. What stands behind an expert's count is unspecified. An H100 gave fast mode's rows bit by bit; their order is
left to atomics, so there is no hopper mode.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"range-halves-swapped", "layout_range has the begin in the low half", ops::golden<ops::Rule::range_halves_swapped>}},
      .cases = {"R=2 T=5 H=256 topk=3" + few, "R=4 T=3 H=128 topk=2 --attr use_fp8=false" + few,
                "R=2 T=4 H=640 topk=4 --attr round_scale=true --attr use_ue8m0=true" + few,
                "R=1 T=6 H=384 topk=2 --attr round_scale=true" + few},
      .bench_cases = {"R=4 T=32 H=7168 topk=8 --attr num_max_dispatch_tokens_per_rank=32 --attr num_experts=64"},
  });
}
}  // namespace dodona
