#include <cmath>
#include <limits>
#include <vector>

#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

bool merge(const Call& call, bool natural) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> v_a = floats(call.tensor("v_a")), v_b = floats(call.tensor("v_b"));
  std::vector<float> s_a = floats(call.tensor("s_a")), s_b = floats(call.tensor("s_b"));
  const Tensor &v = call.tensor("v_merged"), &s = call.tensor("s_merged");
  const auto width = static_cast<std::size_t>(v.size(-1));
  for (std::size_t row = 0; row < s_a.size(); ++row) {
    if (natural && s_a[row] == infinity) s_a[row] = -infinity;
    if (natural && s_b[row] == infinity) s_b[row] = -infinity;
    const bool zero = s_a[row] == -infinity && s_b[row] == -infinity && call.is("both_empty", "zero");
    const float top = s_a[row] > s_b[row] ? s_a[row] : s_b[row];
    const float w_a = natural ? exp(s_a[row] - top) : exp2(s_a[row] - top), w_b = natural ? exp(s_b[row] - top) : exp2(s_b[row] - top);
    const float sum = w_a + w_b;
    store(s, static_cast<std::int64_t>(row), zero ? -infinity : top + (natural ? log(sum) : log2(sum)));
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      const float merged = call.way == Way::strided ? std::fma(v_b[i], w_b * (1.0f / sum), v_a[i] * (w_a * (1.0f / sum)))
                                                    : v_a[i] * (w_a / sum) + v_b[i] * (w_b / sum);
      store(v, static_cast<std::int64_t>(i), zero ? 0.0f : merged);
    }
  }
  return true;
}

/// A state of a running merge: values that the sum of the weights divides, the maximum, and that sum.
struct Running {
  std::vector<float> values;
  float top = -infinity, sum = 0;

  void add(const float* v, float s) {
    const float before = top, after = top > s ? top : s;
    const float kept = before == -infinity ? 0.0f : exp2(before - after), taken = s == -infinity ? 0.0f : exp2(s - after);
    for (std::size_t d = 0; d < values.size(); ++d) values[d] = std::fma(values[d], kept, v[d] * taken);
    sum = sum * kept + taken;
    top = after;
  }
  float log_sum() const { return sum == 0 ? -infinity : top + log2(sum); }
  float value(std::size_t d) const { return sum == 0 ? 0.0f : values[d] * (1.0f / sum); }
};

}  // namespace

/// In one chain, or as FlashInfer has many states: every eighth one in a chain of its own, whose values are kept in the type in between.
bool merge_states(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &values = call.tensor("v"), &v_merged = call.tensor("v_merged");
  const std::vector<float> v = floats(values), s = floats(call.tensor("s"));
  const auto states = static_cast<std::size_t>(values.size(1)), heads = static_cast<std::size_t>(values.size(2));
  const auto width = static_cast<std::size_t>(values.size(3)),
             chains = call.way == Way::strided && states > 1 ? std::size_t{8} : std::size_t{1};
  for (std::size_t row = 0; row < static_cast<std::size_t>(values.size(0)) * heads; ++row) {
    Running whole{std::vector<float>(width)};
    for (std::size_t chain = 0; chain < chains; ++chain) {
      Running part{std::vector<float>(width)};
      for (std::size_t i = chain; i < states; i += chains) {
        const std::size_t at = (row / heads * states + i) * heads + row % heads;
        part.add(v.data() + at * width, s[at]);
      }
      if (chains == 1) {
        whole = part;
        break;
      }
      std::vector<float> kept(width);
      for (std::size_t d = 0; d < width; ++d)
        kept[d] = static_cast<float>(quant::round_to(values.dtype(), static_cast<double>(part.value(d))));
      whole.add(kept.data(), part.log_sum());
    }
    const bool alone = states == 1;
    store(call.tensor("s_merged"), static_cast<std::int64_t>(row), alone ? s[row] : whole.log_sum());
    for (std::size_t d = 0; d < width; ++d)
      store(v_merged, static_cast<std::int64_t>(row * width + d), alone ? v[row * width + d] : whole.value(d));
  }
  return true;
}

bool merge_state(const Call& call) {
  return merge(call, false);
}
bool merge_state_v2(const Call& call) {
  return merge(call, true);
}

}  // namespace dodona::oracle::alternatives
