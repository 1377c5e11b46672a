#include "ops/softmax/flashinfer/merge_in_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The states merged so far: sums about the largest log-sum-exp. Without any, a sum of 1 that the first one's maximum takes away.
struct Merged {
  float top = -infinity, sum = 1;
  std::vector<float> values;

  explicit Merged(std::int64_t width) : values(static_cast<std::size_t>(width), 0.0f) {}

  /// The maximum drops the NaN of two states without keys.
  static float weight(float s, float top) { return hw::ex2(std::fmax(hw::sub(s, top), -infinity)); }

  template <typename ValueAt>
  void merge(const ValueAt& value_at, float s) {
    const float before = top;
    top = std::fmax(before, s);
    const float kept = weight(before, top), added = weight(s, top);
    sum = hw::fma(sum, kept, added);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = hw::fma(values[i], kept, hw::mul(value_at(i), added));
  }
  void normalize() {
    const float reciprocal = sum > 0 ? hw::div(1.0f, sum) : 0.0f;
    for (float& value : values) value = hw::mul(value, reciprocal);
  }
  float lse() const { return hw::add(top, hw::lg2(sum)); }
};

/// Elements of a head that a thread has.
std::int64_t elements_of_thread(std::int64_t width) {
  return std::max<std::int64_t>(8, width / 32);
}

/// Whether states are shared out.
bool shares_out(const StatesMerge& merge) {
  return merge.v.size(1) >= merge.v.size(0);
}

class Row {
 public:
  Row(const StatesMerge& merge, std::int64_t row)
      : merge_(merge),
        width_(merge.v.size(3)),
        states_(merge.v.size(1)),
        heads_(merge.v.size(2)),
        token_(row / heads_),
        head_(row % heads_) {}

  /// States first, first + step, ..
  Merged of(std::int64_t first, std::int64_t step) const {
    Merged merged(width_);
    for (std::int64_t state = first; state < states_; state += step)
      merged.merge([&](std::size_t i) { return value(state, static_cast<std::int64_t>(i)); }, log_sum(state));
    merged.normalize();
    return merged;
  }
  Merged of_parts(std::int64_t parts) const {
    std::vector<Merged> shared;
    for (std::int64_t part = 0; part < parts; ++part) shared.push_back(of(part, parts));
    Merged merged(width_);
    for (const Merged& part : shared) merged.merge([&](std::size_t i) { return rounded(part.values[i]); }, part.lse());
    merged.normalize();
    return merged;
  }
  float log_sum(std::int64_t state) const { return static_cast<float>(quant::get(merge_.s, (token_ * states_ + state) * heads_ + head_)); }
  float value(std::int64_t state, std::int64_t i) const {
    return static_cast<float>(quant::get(merge_.v, ((token_ * states_ + state) * heads_ + head_) * width_ + i));
  }

 private:
  float rounded(float value) const { return static_cast<float>(quant::round_to(merge_.v.dtype(), value)); }

  const StatesMerge& merge_;
  std::int64_t width_, states_, heads_, token_, head_;
};

}  // namespace

std::int64_t threads_of_merge(const StatesMerge& merge) {
  return shares_out(merge) ? 128 : merge.v.size(2) * merge.v.size(3) / elements_of_thread(merge.v.size(3));
}

void merge_in_order_hopper(const StatesMerge& merge, const Exec& exec) {
  const std::int64_t width = merge.v.size(3), states = merge.v.size(1), parts = 128 / (width / elements_of_thread(width));
  parallel_for(exec.threads, merge.s_merged.elements(), static_cast<double>(states * width), [&](std::int64_t index) {
    const Row row(merge, index);
    const bool none = states == 0, copied = states == 1 && !shares_out(merge);
    if (none) quant::set(merge.s_merged, index, -infinity);
    if (copied) quant::set_bits(merge.s_merged, index, quant::get_bits(merge.s, index));
    for (std::int64_t i = index * width; (none || copied) && i < (index + 1) * width; ++i)
      quant::set_bits(merge.v_merged, i, none ? 0 : quant::get_bits(merge.v, i));
    if (none || copied) return;
    const Merged merged = shares_out(merge) ? row.of_parts(parts) : row.of(0, 1);
    quant::set(merge.s_merged, index, merged.lse());
    for (std::int64_t i = 0; i < width; ++i) quant::set(merge.v_merged, index * width + i, merged.values[static_cast<std::size_t>(i)]);
  });
}

}  // namespace dodona::ops
