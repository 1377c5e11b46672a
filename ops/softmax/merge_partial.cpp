#include "ops/softmax/merge_partial.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The log-sum-exp of head `row`.
double lse_of(const PartialMerge& merge, const Tensor& s, std::int64_t row, MergeRule rule = MergeRule::right) {
  const double value = quant::get(s, row);
  return merge.natural != (rule == MergeRule::infinity_otherwise) && value == infinity ? -infinity : value;
}

/// Both sides' shares of one head, and how far those of an honest implementation may be off.
struct Shares {
  double a, b;   ///< a + b = 1
  double error;  ///< of the smaller weight, relative
  Bounded s;
};

/// Error of the weight w = 2^-d or e^-d beside the other's exact 1: the difference d is rounded in fp32, in base e multiplied by the
/// rounded log2(e) (2^-26.2) with one more rounding; the exponential itself is within 2^-22 (ex2.approx, or 2 units of expf).
double weight_error(double distance, bool natural) {
  return (natural ? 2.25 * distance : 0.6932 * distance) * f32_eps + 4.0 * f32_eps;
}

/// Neither side NaN, not both empty.
Shares shares_of(double s_a, double s_b, bool natural) {
  const double top = std::max(s_a, s_b), distance = top - std::min(s_a, s_b);
  double w = natural ? fixed::exp(-distance) : fixed::exp2(-distance);
  if (w < 0x1p-152) w = 0;  // zero in fp32, whatever its error
  const double sum = 1.0 + w, log_sum = natural ? fixed::log1p(w) : fixed::log2(sum);
  Shares shares{1.0 / sum, w / sum, w > 0 ? weight_error(distance, natural) : 0.0, {top + log_sum}};
  if (s_a < s_b) std::swap(shares.a, shares.b);
  if (w == 0) {
    // log(1) is exactly 0: s is the other side's, unless a build flushes it.
    shares.s.slack = std::fabs(top) < flush_floor ? flush_floor : 0.0;
    return shares;
  }
  // The sum is off by the error of w and one rounding; the logarithm by 2^-22 (lg2.approx below 2) or 2^-21.4 (logf of fast-math
  // builds); in base e it is a product, rounded once more. The last sum is the output's own rounding.
  const double sum_error = (w / sum * shares.error + f32_eps) * (natural ? 1.0 : 1.4427);
  shares.s.slack = sum_error + (natural ? 6.1 : 4.0) * f32_eps + log_sum * f32_eps;
  return shares;
}

Shares shares_by(MergeRule rule, double s_a, double s_b, bool natural) {
  Shares shares = shares_of(s_a, s_b, natural);
  if (rule == MergeRule::shares_not_normalized) {
    const double larger = std::max(shares.a, shares.b);
    shares.a /= larger;
    shares.b /= larger;
  } else if (rule == MergeRule::logarithm_left_out) {
    shares.s = {std::max(s_a, s_b)};
  }
  return shares;
}

/// v = v_a * share_a + v_b * share_b.
Bounded merge_element(double v_a, double v_b, const Shares& shares, bool narrow) {
  const double part_a = v_a * shares.a, part_b = v_b * shares.b, value = part_a + part_b;
  const bool a_smaller = shares.a < shares.b;
  const double light = a_smaller ? shares.a : shares.b, light_v = a_smaller ? v_a : v_b, heavy_v = a_smaller ? v_b : v_a;
  if (!std::isfinite(value)) {
    // An infinity whose share may be flushed to zero gives NaN there.
    return {value, 0.0, std::isinf(light_v) && light > 0 && light < 0x1p-125};
  }
  // One side alone passes unchanged; only a denormal may be flushed (and the sign of a zero is nobody's promise).
  if (light == 0) return {value, std::fabs(heavy_v) < flush_floor ? flush_floor : 0.0};
  // Of both shares: the weight's error moves v along v_a - v_b; sum 1, division 4 (2 units), product 1 rounding. Then the rounding of
  // the fp32 result, where it is not the output's own. Builds that flush lose inputs, products and the smaller share.
  const double magnitude = std::fabs(part_a) + std::fabs(part_b);
  const double slack = shares.error * std::fabs(v_a - v_b) * shares.a * shares.b + 6.0 * f32_eps * magnitude +
                       (narrow ? f32_eps * std::fabs(value) : 0.0) + flush_floor * (3.0 + std::fabs(light_v));
  return {value, slack};
}

}  // namespace

void merge_golden(const PartialMerge& merge, const Exec& exec, Reference* reference, MergeRule rule) {
  const GoldenOutput v(merge.v_merged, reference, "v_merged"), s(merge.s_merged, reference, "s_merged");
  v.make_open();
  s.make_open();
  const std::int64_t width = merge.v_a.size(-1);
  const bool narrow = merge.v_merged.dtype() != DType::f32;
  parallel_for(exec.threads, merge.s_a.elements(), static_cast<double>(width), [&](std::int64_t row) {
    const double s_a = lse_of(merge, merge.s_a, row, rule), s_b = lse_of(merge, merge.s_b, row, rule);
    const bool both_empty = s_a == -infinity && s_b == -infinity;
    // -inf - -inf, and in base 2 inf - inf, as the formula has them.
    if (both_empty || std::isnan(s_a) || std::isnan(s_b) || s_a == infinity || s_b == infinity) {
      const bool zero = both_empty && merge.empty_is_zero;
      const double nan = std::numeric_limits<double>::quiet_NaN();
      // The base-2 kernel that makes zeros of two empty sides lets a maximum drop NaN, and multiplies values with 0.
      const bool drops = merge.empty_is_zero && !merge.natural && !both_empty;
      s.put(row, {zero ? -infinity : nan, 0.0, drops});
      for (std::int64_t d = 0; d < width; ++d) {
        const std::int64_t i = row * width + d;
        const bool finite = std::isfinite(quant::get(merge.v_a, i)) && std::isfinite(quant::get(merge.v_b, i));
        v.put(i, {zero ? 0.0 : nan, zero ? flush_floor : 0.0, drops || (zero && !finite)});
      }
      return;
    }
    const Shares shares = shares_by(rule, s_a, s_b, merge.natural);
    s.put(row, shares.s);
    for (std::int64_t d = 0; d < width; ++d) {
      const std::int64_t i = row * width + d;
      v.put(i, merge_element(quant::get(merge.v_a, i), quant::get(merge.v_b, i), shares, narrow));
    }
  });
}

void merge_fast(const PartialMerge& merge, const Exec& exec) {
  constexpr std::int64_t block_heads = 16;
  const std::int64_t tokens = merge.s_a.size(0), heads = merge.s_a.size(1), width = merge.v_a.size(-1);
  const std::int64_t blocks = (heads + block_heads - 1) / block_heads;
  const DType type = merge.v_a.dtype();
  const std::int64_t bytes = bits(type) / 8;
  const auto values = [&](const Tensor& v, std::int64_t t, std::int64_t n) {
    return static_cast<std::byte*>(v.data()) + (t * v.stride(0) + n * v.stride(1)) * bytes;
  };
  const auto lse = [](const Tensor& s, std::int64_t t, std::int64_t n) { return s.as<float>() + t * s.stride(0) + n; };
  parallel_for(exec.threads, tokens * blocks, static_cast<double>(block_heads * width), [&](std::int64_t i) {
    const std::int64_t t = i / blocks, n = i % blocks * block_heads;
    const MergeHeads block{.v_a = values(merge.v_a, t, n),
                           .v_b = values(merge.v_b, t, n),
                           .s_a = lse(merge.s_a, t, n),
                           .s_b = lse(merge.s_b, t, n),
                           .v_merged = values(merge.v_merged, t, n),
                           .s_merged = lse(merge.s_merged, t, n),
                           .heads = std::min(block_heads, heads - n),
                           .width = width,
                           .stride_a = merge.v_a.stride(1) * bytes,
                           .stride_b = merge.v_b.stride(1) * bytes,
                           .stride_v = merge.v_merged.stride(1) * bytes,
                           .type = type,
                           .natural = merge.natural,
                           .empty_is_zero = merge.empty_is_zero};
    dispatch<MergeKernel>(exec.isa, block);
  });
}

void merge_hopper(const PartialMerge& merge, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t width = merge.v_a.size(-1);
  parallel_for(exec.threads, merge.s_a.elements(), static_cast<double>(width), [&](std::int64_t row) {
    const auto s_a = static_cast<float>(lse_of(merge, merge.s_a, row)), s_b = static_cast<float>(lse_of(merge, merge.s_b, row));
    const float top = std::fmax(s_a, s_b);
    const auto weight = [&](float s) {
      const float distance = hw::sub(s, top);
      return hw::ex2(merge.natural ? hw::mul(distance, hw::log2_e) : distance);
    };
    const float w_a = weight(s_a), w_b = weight(s_b), sum = hw::add(w_a, w_b), log_sum = hw::lg2(sum);
    const float share_a = hw::div(w_a, sum), share_b = hw::div(w_b, sum);
    quant::set(merge.s_merged, row, merge.natural ? hw::fma(log_sum, hw::ln_2, top) : hw::add(log_sum, top));
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const auto v_a = static_cast<float>(quant::get(merge.v_a, i)), v_b = static_cast<float>(quant::get(merge.v_b, i));
      quant::set(merge.v_merged, i, hw::fma(v_a, share_a, hw::mul(v_b, share_b)));
    }
  });
}

}  // namespace dodona::ops
