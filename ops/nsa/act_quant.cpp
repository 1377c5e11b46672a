#include "ops/nsa/act_quant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/quantize/group_row.h"
#include "quant/amax.h"
#include "quant/e4m3.h"
#include "quant/group_scale.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr float least_magnitude = 1e-4f;
/// Of a scale about a power of two, relative: a logarithm that is approximate may fall on the other side.
constexpr double log_blur = 0x1p-20;
/// Of the value that is rounded: an approximate division, or a reciprocal and a product.
constexpr double code_units = 4 * f32_eps;

std::int64_t blocks_of(const ActQuant& op) {
  return op.s.elements();
}
std::vector<float> block_of(const ActQuant& op, std::int64_t b) {
  std::vector<float> x(static_cast<std::size_t>(op.block_size));
  quant::to_f32(bf16, op.x.as<const std::byte>() + 2 * b * op.block_size, x.data(), op.block_size);
  return x;
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, without_magnitude, power_below };

float magnitude_of(std::span<const float> x, Rule rule) {
  return std::max(least_magnitude, rule == Rule::without_magnitude ? quant::largest_value(x) : quant::amax(x));
}
/// Before it is rounded, to fp32 or to a power of two.
double exact_scale(std::span<const float> x, Rule rule) {
  return static_cast<double>(magnitude_of(x, rule)) / 448.0;
}
float scale_of(const ActQuant& op, std::span<const float> x, Rule rule) {
  const float scale = magnitude_of(x, rule) * (1.0f / 448.0f);
  if (!op.powers()) return scale;
  return quant::power_of_two_by_bits(quant::ceil_exponent_by_bits(scale) - (rule == Rule::power_below ? 1 : 0));
}

void put_codes(const ActQuant& op, const GoldenOutput& codes, std::int64_t b, std::span<const float> x, float scale) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::int64_t at = b * op.block_size + static_cast<std::int64_t>(k);
    const double value = static_cast<double>(x[k]) / static_cast<double>(scale);
    if (std::isnan(value) || std::isinf(scale)) {
      codes.leave_open(at);
    } else {
      codes.put_saturating(at, {value, op.powers() ? 0.0 : std::fabs(value) * code_units});
    }
  }
}

template <Rule rule>
void golden(const ActQuant& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.y, reference, "y"), scales(op.s, reference, "s");
  codes.make_open();
  parallel_for(exec.threads, blocks_of(op), 16.0 * static_cast<double>(op.block_size), [&](std::int64_t b) {
    const std::vector<float> x = block_of(op, b);
    const float scale = scale_of(op, x, rule);
    const double exact = op.powers() ? scale : static_cast<double>(magnitude_of(x, rule)) * (1.0f / 448.0f);
    scales.put(b, {exact, op.powers() || !std::isfinite(exact) ? 0.0 : 2 * f32_eps * exact});
    put_codes(op, codes, b, x, scale);
  });
}

/// A scale that an honest implementation may have stored is taken as it is, and codes follow from it.
void condition(const ActQuant& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.y.clone();
  const GoldenOutput codes(scratch, &reference, "y");
  codes.make_open();
  ReferenceOutput& scales = reference.output("s", actual.s.elements());
  parallel_for(exec.threads, blocks_of(actual), 16.0 * static_cast<double>(actual.block_size), [&](std::int64_t b) {
    const std::vector<float> x = block_of(actual, b);
    const float stored = actual.s.as<const float>()[b], golden_scale = scale_of(actual, x, Rule::right);
    const double exact = exact_scale(x, Rule::right);
    if (stored == golden_scale || !std::isfinite(stored) || !std::isfinite(golden_scale) || !(stored > 0)) return;
    bool possible = std::fabs(stored - exact) <= 2 * f32_eps * exact + std::fabs(golden_scale - exact);
    if (actual.powers()) {
      const int exponent = std::ilogb(stored);
      // Powers just below the exact scale, or twice one just above it.
      possible = std::ldexp(1.0, exponent) == stored && stored >= exact * (1 - log_blur) && stored <= 2 * exact * (1 + log_blur);
      if (possible) scales.exact[static_cast<std::size_t>(b)] = stored;
    }
    if (possible) put_codes(actual, codes, b, x, stored);
  });
}

void fast(const ActQuant& op, const Exec& exec) {
  parallel_for(exec.threads, blocks_of(op), static_cast<double>(op.block_size), [&](std::int64_t b) {
    const GroupRow row{op.x.as<const std::byte>() + 2 * b * op.block_size, 1, op.block_size, bf16};
    float scale;
    dispatch<GroupMaximaKernel>(exec.isa, row, &scale);
    scale = std::max(least_magnitude, scale) * (1.0f / 448.0f);
    if (op.powers()) scale = quant::power_of_two_by_bits(quant::ceil_exponent_by_bits(scale));
    const float factor = 1.0f / scale;
    dispatch<GroupCodesKernel>(exec.isa, row, &factor, GroupCode::e4m3, op.y.as<std::uint8_t>() + b * op.block_size);
    op.s.as<float>()[b] = scale;
  });
}

/// As upstream's kernels are written: tilelang's without fast math; triton's with its approximate division and the logarithm of a library,
/// which rounds to the whole number a few units above a power of two. NaN is passed over by the maximum and becomes -448.
void hopper(const ActQuant& op, const Exec& exec) {
  const bool triton = op.kernel == "triton";
  parallel_for(exec.threads, blocks_of(op), 16.0 * static_cast<double>(op.block_size), [&](std::int64_t b) {
    const std::vector<float> x = block_of(op, b);
    float scale = magnitude_of(x, Rule::right) * (1.0f / 448.0f);
    if (op.powers() && !(triton && std::isinf(scale)))
      scale = quant::power_of_two_by_bits(triton ? quant::ceil_exponent_by_log2(scale) : quant::ceil_exponent_by_bits(scale));
    for (std::size_t k = 0; k < x.size(); ++k) {
      const float value = triton ? hw::triton::div(x[k], scale) : x[k] / scale;
      op.y.as<std::uint8_t>()[b * op.block_size + static_cast<std::int64_t>(k)] =
          quant::to_e4m3_satfinite(quant::clamp_low_first(value, -448.0f, 448.0f));
    }
    op.s.as<float>()[b] = scale;
  });
}

void check(const ActQuant& op) {
  if (!std::has_single_bit(static_cast<std::uint64_t>(op.block_size)))
    throw Error(ErrorCode::bad_value, "", "block_size", "is " + std::to_string(op.block_size) + ", expected a power of two");
}

std::optional<Refusal> unsupported(const ActQuant& op, Mode mode) {
  if (!of_a_gpu(mode) || op.block_size == 128 || op.kernel == "triton") return std::nullopt;
  return Refusal{"block_size", "is " + std::to_string(op.block_size) + ", expected 128, which tilelang's kernel has"};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_act_quant() {
  return define<ops::ActQuant>({
      .contract = R"(
For each block: s = fl32(max(1e-4, max |x|) * fl32(1/448)), NaN passed over; with scale_fmt the least power of two that is not below it;
y = e4m3(fl32(x / s)), clamped to 448. Budget: s 2 units of 2^-24 (a true division, too); either power where it lies within 2^-20 of one,
relative (an approximate logarithm), the one that was stored being the one that codes are held against. Codes: 4 units of 2^-24 of the value
that is rounded, none where s is a power of two. Codes of NaN and of blocks with infinities are not judged. Hopper mode: tilelang's kernel as it is
written, without fast math; triton's, whose logarithm rounds, with kernel=triton.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                    ops::golden<ops::Rule::without_magnitude>},
                   {"power-below", "with scale_fmt the power of two is the one below", ops::golden<ops::Rule::power_below>}},
      .cases = {"T=5 G=2", "T=3 G=1 --attr scale_fmt=ue8m0", "T=3 G=2 --dist edge --attr scale_fmt=ue8m0 --attr kernel=triton",
                "T=4 G=2 --attr block_size=32 --dist outliers --attr kernel=triton"},
      .bench_cases = {"T=1 G=1", "T=65536 G=1 --attr scale_fmt=ue8m0"},
  });
}
}  // namespace dodona
