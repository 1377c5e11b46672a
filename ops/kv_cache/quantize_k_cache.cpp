#include "ops/kv_cache/quantize_k_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/cache/fp8_bytes.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/rows/quantize/group_row.h"
#include "ops/rows/quantize/scale_mistakes.h"
#include "quant/amax.h"
#include "quant/e4m3.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

constexpr auto group_size = static_cast<std::size_t>(k_cache_group);
using Group = std::array<float, group_size>;

Group group_of(const QuantizeKCache& op, std::int64_t row, std::int64_t g) {
  Group x;
  quant::to_f32(bf16, row_begin(op.cache_k, row, 2) + 2 * g * k_cache_group, x.data(), k_cache_group);
  return x;
}

bool has_no_number(const Group& x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isnan(value); });
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

template <ScaleMade made>
void golden_by(const QuantizeKCache& op, const Exec& exec, Reference* reference) {
  const Bytes bytes(op, reference);
  parallel_for(exec.threads, row_count(op.cache_k), 1e4, [&](std::int64_t row) {
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const Group x = group_of(op, row, g);
      const Fp8Bytes group = fp8_bytes(x, 0.0f, made);
      const auto stored = std::bit_cast<std::array<std::byte, 4>>(group.scale);
      const bool open = has_no_number(x);
      for (std::size_t i = 0; i < 4; ++i) bytes.put(row, k_cache_scales_at + 4 * g + static_cast<std::int64_t>(i), stored[i], open);
      for (std::size_t k = 0; k < group_size; ++k)
        bytes.put(row, g * k_cache_group + static_cast<std::int64_t>(k), static_cast<std::byte>(group.codes[k]), group.open[k]);
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
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const std::int64_t codes_at = g * k_cache_group, scale_at = k_cache_scales_at + 4 * g;
      const Fp8Bytes group = conditioned_fp8_bytes(group_of(actual, row, g), 0.0f, k_cache_scale(bytes, g), {bytes + codes_at, group_size});
      const auto scale = std::bit_cast<std::array<std::uint8_t, 4>>(group.scale);
      for (std::size_t i = 0; i < 4; ++i) record.exact[first + static_cast<std::size_t>(scale_at) + i] = scale[i];
      for (std::size_t k = 0; k < group_size; ++k) record.exact[first + static_cast<std::size_t>(codes_at) + k] = group.codes[k];
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

/// As Triton compiles upstream's kernel: the maximum passes NaN over while there is a number, the factor is an approximate division, and
/// NaN (zero times an infinite factor, too) is clamped to the largest code.
void hopper(const QuantizeKCache& op, const Exec& exec) {
  namespace hw = quant::hopper;
  parallel_for(exec.threads, row_count(op.cache_k), 1e4, [&](std::int64_t row) {
    const std::byte* const x = row_begin(op.cache_k, row, 2);
    std::byte* const out = row_begin_mutable(op.output, row, 1);
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const Group group = group_of(op, row, g);
      const float largest = has_no_number(group) ? hw::canonical_nan() : quant::amax(group);
      const float scale = hw::triton::div(1.0f, 448.0f) * largest, factor = hw::triton::div(1.0f, scale);
      set_k_cache_scale(out, g, scale);
      for (std::size_t k = 0; k < group_size; ++k)
        out[static_cast<std::size_t>(g) * group_size + k] =
            static_cast<std::byte>(quant::to_e4m3_satfinite(quant::clamp_high_first(group[k] * factor, -448.0f, 448.0f)));
    }
    std::memcpy(out + k_cache_rope_at, x + 2 * k_cache_nope, 2 * k_cache_rope);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_quantize_k_cache() {
  return define<ops::QuantizeKCache>({
      .contract = R"(
For each 128 of the first 512 elements: s = fl32(max |x| / 448), NaN passed over (open where there is nothing else), without any least scale; code = e4m3(x * (1/s)), to
nearest even, saturating. Budget: a scale 2^-24 relative (a true division, or a product with fl32(1/448) as compilers make of it), the
one that was stored being the one that codes are held against; codes 5 units of 2^-24 of the value that is rounded (an approximate
reciprocal, the product). Codes of groups of zeros, whose reciprocal is infinite, of scales below 2^-126, of groups with infinities and
of NaN are not judged (upstream's clamp gives them either bound; here 0 for groups of zeros). Bytes 528 to 655 are copies. Hopper mode: s = max |x| * fl32(1/448), and x * (1/s) by Triton's approximate
division; NaN becomes the largest code.)",
      .contract_version = 2,
      .golden = ops::golden_by<ops::ScaleMade::by_rule>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .condition = ops::condition,
      .mistakes = ops::scale_mistakes<ops::QuantizeKCache>([]<ops::ScaleMade made>() { return ops::golden_by<made>; }),
      .cases = {"S=5", "S=3 --dist outliers", "S=2 --dist edge"},
      .bench_cases = {"S=4096"},
  });
}
}  // namespace dodona
