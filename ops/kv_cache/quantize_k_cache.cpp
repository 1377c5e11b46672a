#include "ops/kv_cache/quantize_k_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/fp8_codes.h"
#include "ops/rows/group_row.h"
#include "ops/rows/k_cache_row.h"
#include "quant/amax.h"

namespace dodona::ops {
namespace {

constexpr auto group_size = static_cast<std::size_t>(k_cache_group);
using Group = std::array<float, group_size>;

Group group_of(const QuantizeKCache& op, std::int64_t row, std::int64_t g) {
  Group x;
  quant::to_f32(bf16, row_begin(op.cache_k, row, 2) + 2 * g * k_cache_group, x.data(), k_cache_group);
  return x;
}

/// The scale before its rounding: either way to divide. `amax` passes NaN over.
Bounded scale_of(const Group& x, float (*amax)(std::span<const float>)) {
  const Bounded scale = fp8_scale(amax(x), true);
  return scale.exact == 0 ? Bounded{0.0} : scale;
}
/// No code is known where the reciprocal of the scale is infinite or NaN, or the scale may be flushed.
bool open_codes(float scale) {
  return !std::isfinite(scale) || !(scale >= 0x1p-126f);
}

/// The value that is rounded to a code, in units of 2^-24: 2 for a reciprocal that is approximate, 1 for each of two roundings, and 1 for
/// what multiplies the other way round.
Bounded code_value(float x, float scale) {
  const double value = static_cast<double>(x) / static_cast<double>(scale);
  return {std::clamp(value, -448.0, 448.0), std::fabs(value) * 5 * f32_eps, std::isnan(x)};
}
std::uint8_t code_of(double value) {
  return static_cast<std::uint8_t>(GoldenOutput::saturating_code(f8_e4m3, value));
}

/// Writes bytes and their records.
class Bytes {
 public:
  Bytes(const QuantizeKCache& op, Reference* reference) : op_(op) {
    if (reference == nullptr) return;
    record_ = &reference->output("output", op.output.elements());
    record_->unspecified.assign(record_->exact.size(), 0);
  }
  void put(std::int64_t row, std::int64_t at, std::byte byte, bool open = false) const {
    row_begin_mutable(op_.output, row, 1)[at] = byte;
    if (record_ == nullptr) return;
    const auto linear = static_cast<std::size_t>(row * k_cache_row_bytes + at);
    record_->exact[linear] = static_cast<double>(byte);
    record_->unspecified[linear] = open ? 1 : 0;
  }

 private:
  const QuantizeKCache& op_;
  ReferenceOutput* record_ = nullptr;
};

template <float (*amax)(std::span<const float>)>
void golden_by(const QuantizeKCache& op, const Exec& exec, Reference* reference) {
  const Bytes bytes(op, reference);
  parallel_for(exec.threads, row_count(op.cache_k), 1e4, [&](std::int64_t row) {
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const Group x = group_of(op, row, g);
      const auto scale = static_cast<float>(scale_of(x, amax).exact);
      const auto stored = std::bit_cast<std::array<std::byte, 4>>(scale);
      for (std::size_t i = 0; i < 4; ++i) bytes.put(row, k_cache_scales_at + 4 * g + static_cast<std::int64_t>(i), stored[i]);
      for (std::size_t k = 0; k < group_size; ++k) {
        const bool open = open_codes(scale) || std::isnan(x[k]);
        bytes.put(row, g * k_cache_group + static_cast<std::int64_t>(k),
                  static_cast<std::byte>(open ? 0 : code_of(code_value(x[k], scale).exact)), open);
      }
    }
    const std::byte* const rope = row_begin(op.cache_k, row, 2) + 2 * k_cache_nope;
    for (std::int64_t i = 0; i < 2 * k_cache_rope; ++i) bytes.put(row, k_cache_rope_at + i, rope[i]);
  });
}

/// A scale that either way to divide gives is taken as it is, and a code that it may lead to.
void condition(const QuantizeKCache& actual, const Exec& exec, Reference& reference) {
  ReferenceOutput& record = reference.output("output", actual.output.elements());
  parallel_for(exec.threads, row_count(actual.cache_k), 1e4, [&](std::int64_t row) {
    const std::byte* const bytes = row_begin(actual.output, row, 1);
    const auto first = static_cast<std::size_t>(row * k_cache_row_bytes);
    const auto accept = [&](std::int64_t at) { record.exact[first + static_cast<std::size_t>(at)] = static_cast<double>(bytes[at]); };
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const Group x = group_of(actual, row, g);
      const Bounded exact = scale_of(x, quant::amax);
      auto scale = static_cast<float>(exact.exact);
      const float stored = k_cache_scale(bytes, g);
      if (stored >= static_cast<float>(exact.exact - exact.slack) && stored <= static_cast<float>(exact.exact + exact.slack)) {
        scale = stored;
        for (std::int64_t i = 0; i < 4; ++i) accept(k_cache_scales_at + 4 * g + i);
      }
      if (open_codes(scale)) continue;
      for (std::size_t k = 0; k < group_size; ++k) {
        const std::int64_t at = g * k_cache_group + static_cast<std::int64_t>(k);
        const Bounded value = code_value(x[k], scale);
        const std::uint8_t golden = code_of(value.exact), code = static_cast<std::uint8_t>(bytes[at]);
        record.exact[first + static_cast<std::size_t>(at)] = golden;
        if (code == code_of(value.exact - value.slack) || code == code_of(value.exact + value.slack)) accept(at);
      }
    }
  });
}

void fast(const QuantizeKCache& op, const Exec& exec) {
  parallel_for(exec.threads, row_count(op.cache_k), 1e3, [&](std::int64_t row) {
    const std::byte* const x = row_begin(op.cache_k, row, 2);
    std::byte* const out = row_begin_mutable(op.output, row, 1);
    const GroupRow groups{x, k_cache_groups, k_cache_group, bf16};
    std::array<float, static_cast<std::size_t>(k_cache_groups)> maxima, factors;
    dispatch<GroupMaximaKernel>(exec.isa, groups, maxima.data());
    for (std::size_t g = 0; g < maxima.size(); ++g) {
      const float scale = maxima[g] / 448.0f;
      set_k_cache_scale(out, static_cast<std::int64_t>(g), scale);
      factors[g] = scale > 0 ? 1.0f / scale : 0.0f;
    }
    dispatch<GroupCodesKernel>(exec.isa, groups, factors.data(), GroupCode::e4m3, reinterpret_cast<std::uint8_t*>(out));
    std::memcpy(out + k_cache_rope_at, x + 2 * k_cache_nope, 2 * k_cache_rope);
  });
}

float largest_value(std::span<const float> group) {
  return std::max(0.0f, quant::largest_value(group));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_quantize_k_cache() {
  return define<ops::QuantizeKCache>({
      .contract = R"(
For each 128 of the first 512 elements: s = fl32(max |x| / 448), NaN passed over, without any least scale; code = e4m3(x * (1/s)), to
nearest even, saturating. Budget: a scale 2^-24 relative (a true division, or a product with fl32(1/448) as compilers make of it), the
one that was stored being the one that codes are held against; codes 5 units of 2^-24 of the value that is rounded (an approximate
reciprocal, the product). Codes of groups of zeros, whose reciprocal is infinite, of scales below 2^-126, of groups with infinities and
of NaN are not judged (upstream's clamp gives them either bound; here 0 for groups of zeros). Bytes 528 to 655 are copies.)",
      .golden = ops::golden_by<quant::amax>,
      .fast = ops::fast,
      .condition = ops::condition,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ops::golden_by<ops::largest_value>}},
      .cases = {"S=5", "S=3 --dist outliers", "S=2 --dist edge"},
      .bench_cases = {"S=4096"},
  });
}
}  // namespace dodona
