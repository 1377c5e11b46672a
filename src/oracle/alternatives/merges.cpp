#include <cmath>
#include <limits>

#include "oracle/alternatives/families.h"

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

}  // namespace

bool merge_state(const Call& call) {
  return merge(call, false);
}
bool merge_state_v2(const Call& call) {
  return merge(call, true);
}

}  // namespace dodona::oracle::alternatives
