#include "ops/quantization/sgl_per_tensor_quant_fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/fp8_codes.h"
#include "ops/rows/quantize/fp8_row.h"
#include "quant/amax.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr float largest_code = quant::e4m3_max;
constexpr std::uint8_t largest_code_bits = 0x7E;

/// The input in pieces that lie together in memory, to be worked on apart: their maxima have no order.
struct Pieces {
  const Tensor& input;
  std::int64_t count, longest, element_bytes = bits(input.dtype()) / 8;
  bool together;

  explicit Pieces(const Tensor& x) : input(x), together(x.contiguous()) {
    constexpr std::int64_t some = 16384;
    longest = together ? some : x.size(-1);
    count = !together ? row_count(x) : (x.elements() + some - 1) / some;
  }
  std::int64_t first(std::int64_t i) const { return i * longest; }
  std::int64_t size(std::int64_t i) const { return std::min(longest, input.elements() - first(i)); }
  const std::byte* begin(std::int64_t i) const {
    return together ? input.as<const std::byte>() + first(i) * element_bytes : row_begin(input, i, static_cast<int>(element_bytes));
  }
  std::vector<float> values(std::int64_t i) const {
    std::vector<float> x(static_cast<std::size_t>(size(i)));
    quant::to_f32(input.dtype(), begin(i), x.data(), size(i));
    return x;
  }
};

using Maximum = float (*)(std::span<const float>);

float largest_of(const std::vector<float>& maxima) {
  return maxima.empty() ? 0.0f : *std::max_element(maxima.begin(), maxima.end());
}

std::vector<float> maxima_of(const Pieces& pieces, Maximum maximum, int threads) {
  std::vector<float> maxima(static_cast<std::size_t>(pieces.count));
  parallel_for(threads, pieces.count, static_cast<double>(pieces.longest),
               [&](std::int64_t i) { maxima[static_cast<std::size_t>(i)] = maximum(pieces.values(i)); });
  return maxima;
}

/// The kernel's atomic maximum compares bits as integers, so that a zero with a sign gives way to one without.
bool stays(float before, float needed) {
  return std::bit_cast<std::int32_t>(before) > std::bit_cast<std::int32_t>(needed);
}

/// Writes and records the scale, and says what it is in fp32. `largest`: 448, or a mistake in its place.
float put_scale(const SglPerTensorQuantFp8& op, Reference* reference, float amax, double largest) {
  const float before = *op.output_s.as<float>();
  const Bounded needed = fp8_scale(amax, op.divide == "ieee", largest);
  if (op.is_static || stays(before, static_cast<float>(needed.exact + needed.slack))) {
    record_exact(op.output_s, reference, "output_s");
    return before;
  }
  const GoldenOutput scale(op.output_s, reference, "output_s");
  // A scale that lay there and is within the slack is as good.
  scale.put(0, {stays(before, static_cast<float>(needed.exact)) ? before : needed.exact, needed.slack});
  return *op.output_s.as<float>();
}

/// Codes given the scale. The reciprocal of one that may be flushed is infinite or not; that of a given zero is nobody's contract.
void put_codes(const SglPerTensorQuantFp8& op, const GoldenOutput& codes, const Pieces& pieces, float scale, int threads) {
  const bool open = may_flush(scale) || (op.is_static && scale == 0);
  parallel_for(threads, pieces.count, static_cast<double>(pieces.longest),
               [&](std::int64_t i) { put_fp8_codes(codes, pieces.first(i), pieces.values(i), scale, open); });
}

/// Mistake: the maximum of values, not of magnitudes.
float largest_value(std::span<const float> x) {
  return std::max(0.0f, quant::largest_value(x));
}

/// Mistake: of each piece the first value alone.
float first_magnitude(std::span<const float> x) {
  return quant::amax(x.first(std::min<std::size_t>(1, x.size())));
}

template <Maximum maximum, bool to_240 = false>
void golden_by(const SglPerTensorQuantFp8& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output_q, reference, "output_q");
  codes.make_open();
  const Pieces pieces(op.input);
  const float amax = op.is_static ? 0.0f : largest_of(maxima_of(pieces, maximum, exec.threads));
  put_codes(op, codes, pieces, put_scale(op, reference, amax, to_240 ? largest_code_elsewhere : quant::e4m3_max), exec.threads);
}

/// Codes follow from the scale that was stored, if that is a legitimate one.
void condition(const SglPerTensorQuantFp8& actual, const Exec& exec, Reference& reference) {
  const ReferenceOutput& scale = reference.output("output_s", 1);
  const double exact = scale.exact[0], slack = scale.slack[0];
  const float stored = *actual.output_s.as<float>();
  if (slack == 0 || stored == static_cast<float>(exact) || may_flush(exact)) return;
  if (stored < static_cast<float>(exact - slack) || stored > static_cast<float>(exact + slack)) return;
  const Tensor scratch = actual.output_q.clone();
  const GoldenOutput codes(scratch, &reference, "output_q");
  codes.make_open();
  put_codes(actual, codes, Pieces(actual.input), stored, exec.threads);
}

/// Bytes.
constexpr std::int64_t fetched_ahead = 4096;

float fast_amax(const Pieces& pieces, const Exec& exec) {
  std::vector<float> maxima(static_cast<std::size_t>(pieces.count));
  parallel_for(exec.threads, pieces.count, static_cast<double>(pieces.longest), [&](std::int64_t i) {
    dispatch<LargestMagnitudeKernel>(exec.isa, LargestMagnitude{.input = pieces.begin(i),
                                                                .n = pieces.size(i),
                                                                .type = pieces.input.dtype(),
                                                                .result = &maxima[static_cast<std::size_t>(i)],
                                                                .fetched = fetched_ahead});
  });
  return largest_of(maxima);
}

void fast(const SglPerTensorQuantFp8& op, const Exec& exec) {
  const Pieces pieces(op.input);
  float& scale = *op.output_s.as<float>();
  if (!op.is_static) {
    const auto needed = static_cast<float>(fp8_scale(fast_amax(pieces, exec), op.divide == "ieee").exact);
    if (!stays(scale, needed)) scale = needed;
  }
  const float factor = scale != 0 ? 1.0f / scale : 0.0f;
  const bool streamed = worth_streaming(op.output_q);
  const auto cost = static_cast<double>(pieces.longest);
  parallel_for_rows(exec.threads, pieces.count, cost, streamed, pieces.longest, [&](std::int64_t i, Writing writing) {
    dispatch<Fp8CodesKernel>(exec.isa, Fp8Codes{.input = pieces.begin(i),
                                                .codes = op.output_q.as<std::uint8_t>() + pieces.first(i),
                                                .n = pieces.size(i),
                                                .type = op.input.dtype(),
                                                .factor = factor,
                                                .fetched = fetched_ahead,
                                                .writing = writing});
  });
}

std::optional<Refusal> unsupported(const SglPerTensorQuantFp8& op, Mode mode) {
  if (mode == Mode::hopper && op.divide == "ieee") return Refusal{"divide", "'ieee' has no hopper mode: builds for the H200 use fast math"};
  return {};
}

void hopper(const SglPerTensorQuantFp8& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const Pieces pieces(op.input);
  float& scale = *op.output_s.as<float>();
  if (!op.is_static) {
    const float needed = hw::mul(largest_of(maxima_of(pieces, quant::amax, exec.threads)), hw::rcp(largest_code));
    if (!stays(scale, needed)) scale = needed;
  }
  const float factor = hw::rcp(scale);
  parallel_for(exec.threads, pieces.count, static_cast<double>(pieces.longest), [&](std::int64_t i) {
    std::uint8_t* code = op.output_q.as<std::uint8_t>() + pieces.first(i);
    for (const float x : pieces.values(i))
      *code++ = quant::to_e4m3_satfinite(quant::clamp_high_first(hw::mul(x, factor), -largest_code, largest_code));
  });
}

bool explains_zero_tensor(const SglPerTensorQuantFp8& actual, std::string_view output, std::int64_t linear) {
  return output == "output_q" && !actual.is_static && actual.output_q.as<std::uint8_t>()[linear] == largest_code_bits &&
         *actual.output_s.as<float>() <= 0 && std::fabs(quant::get(actual.input, linear)) < 448 * flush_floor;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_sgl_per_tensor_quant_fp8() {
  return define<ops::SglPerTensorQuantFp8>({
      .contract = R"(
Dynamic: amax = max |x| of all elements, NaN passed over; s = fl32(amax * fl32(1/448)), or fl32(amax/448) with divide=ieee;
output_s = the larger of s and what output_s holds (an atomic maximum, so that calls add up). Static: output_s is read and not
written. r = fl32(1/output_s), 0 where that is 0; code = e4m3(fl32(x*r)), to nearest even, saturating at 448; NaN products, and
so NaN elements and infinite ones, give +448. Budget: the scale 2^-24 relative (either division) and all of a denormal, none where it was given or
stays; codes 5 units of 2^-24 of x*r (reciprocals within a unit in the last place, two roundings of the product), from the scale
that was stored; open where the scale is denormal, or given as 0; all of x*r where r is denormal, and open of infinities. The quantizer of the absorbed matmuls (sglang
per_tensor_quant_mla_fp8: max(|x|, 1e-12) / 448) is divide=ieee on an output_s that holds fl32(fl32(1e-12) / 448).)",
      .contract_version = 2,
      .golden = ops::golden_by<quant::amax>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .condition = ops::condition,
      .defects = {{"zero-tensor-448", "output_q",
                   "an all-zero tensor, or one whose scale is flushed, gets scale 0 and the code 0x7E (448) everywhere",
                   ops::explains_zero_tensor}},
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ops::golden_by<ops::largest_value>},
                   {"maximum-of-few", "the scale is that of some elements, for the maximum was not taken over all",
                    ops::golden_by<ops::first_magnitude>},
                   {"largest-code-240", "the largest code is taken for 240, as on another vendor's e4m3",
                    ops::golden_by<quant::amax, true>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_per_tensor_quant_fp8.py, decoded to f32"}},
      .cases = {"T=4 H=7168 --dist wide-exponent", "T=3 H=1076 --dtype input=f16 --attr is_static=true",
                "T=5 H=37 --dtype input=f32 --attr divide=ieee --dist wide-exponent", "T=3 H=64 --attr is_static=true --dist outliers",
                "T=7 H=256 --special fresh-scales"},
      .bench_cases = {"T=1 H=7168 --special fresh-scales", "T=512 H=7168 --special fresh-scales", "T=4096 H=7168 --special fresh-scales"},
  });
}
}  // namespace dodona
