#include <algorithm>
#include <cmath>

#include "oracle/alternatives/families.h"

namespace dodona::oracle::alternatives {
namespace {

/// Chains of max(64, n/128) additions at most, as the contract asks, then a tree.
float sum_of_squares(std::span<const float> x, Way way) {
  std::vector<float> squares;
  for (const float value : x) squares.push_back(value * value);
  if (way == Way::strided) return strided_sum(squares, 128);
  const std::size_t part = std::max<std::size_t>(64, x.size() / 128);
  std::vector<float> sums;
  for (std::size_t begin = 0; begin < squares.size(); begin += part)
    sums.push_back(reversed_sum(std::span(squares).subspan(begin, std::min(part, squares.size() - begin))));
  return strided_sum(sums, 256);
}

float row_factor(std::span<const float> x, float eps, Way way) {
  const float sum = sum_of_squares(x, way), n = static_cast<float>(x.size());
  return way == Way::strided ? std::sqrt(1.0f / (sum * (1.0f / n) + eps)) : 1.0f / std::sqrt(sum / n + eps);
}

/// `x` has all rows.
void normalise(std::span<const float> x, const std::vector<float>& weight, float eps, bool weight_rounded, Way way, const Tensor& out) {
  for (std::size_t begin = 0; begin < x.size(); begin += weight.size()) {
    const float factor = row_factor(x.subspan(begin, weight.size()), eps, way);
    for (std::size_t h = 0; h < weight.size(); ++h) {
      const float normalised = x[begin + h] * factor;
      store(out, static_cast<std::int64_t>(begin + h), (weight_rounded ? rounded(out.dtype(), normalised) : normalised) * weight[h]);
    }
  }
}

void normalise(const Call& call, std::span<const float> x, const Tensor& out) {
  std::vector<float> weight = floats(call.tensor("weight"));
  const auto bias = static_cast<float>(call.number("weight_bias"));
  for (float& value : weight) value = bias == 0 ? value : bias + value;
  normalise(x, weight, static_cast<float>(call.number("eps")), call.is("weight_order", "rounded"), call.way, out);
}

}  // namespace

bool rmsnorm(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  normalise(call, floats(call.tensor("input")), call.tensor("output"));
  return true;
}

bool fused_add_rmsnorm(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input"), &residual = call.tensor("residual");
  std::vector<float> h = floats(input);
  const std::vector<float> addend = floats(residual);
  for (std::size_t i = 0; i < h.size(); ++i) {
    h[i] += addend[i];
    store(residual, static_cast<std::int64_t>(i), h[i]);
    if (call.is("normalize", "rounded")) h[i] = rounded(input.dtype(), h[i]);
  }
  normalise(call, h, input);
  return true;
}

/// The sum's order and roundings are the contract's; the norm behind it leaves something open.
bool trtllm_allreduce_fusion(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& terms = call.tensor("allreduce_in");
  const std::vector<float> all = floats(terms), residual = floats(call.tensor("residual_in"));
  const bool between = !call.flag("fp32_acc");
  std::vector<float> x(residual.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    float sum = call.flag("use_oneshot") ? all[i] + 0.0f : all[i];
    for (std::size_t at = i + x.size(); at < all.size(); at += x.size())
      sum = between ? rounded(terms.dtype(), sum + all[at]) : sum + all[at];
    x[i] = rounded(terms.dtype(), rounded(terms.dtype(), sum) + residual[i]);
    store(call.tensor("residual_out"), static_cast<std::int64_t>(i), x[i]);
  }
  normalise(x, floats(call.tensor("rms_gamma")), static_cast<float>(call.number("rms_eps")), false, call.way, call.tensor("norm_out"));
  return true;
}

bool layernorm(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> x = floats(call.tensor("input")), gemma = floats(call.tensor("gemma")), beta = floats(call.tensor("beta"));
  const auto eps = static_cast<float>(call.number("eps")), n = static_cast<float>(gemma.size());
  const auto sum = [&](const std::vector<float>& terms) {
    return call.way == Way::strided ? strided_sum(terms, 128) : strided_sum(terms, 256);
  };
  for (std::size_t begin = 0; begin < x.size(); begin += gemma.size()) {
    const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                 x.begin() + static_cast<std::ptrdiff_t>(begin + gemma.size()));
    const float mean = call.way == Way::strided ? sum(row) * (1.0f / n) : sum(row) / n;
    std::vector<float> squares;
    for (const float value : row) squares.push_back((value - mean) * (value - mean));
    const float factor =
        call.way == Way::strided ? std::sqrt(1.0f / (sum(squares) * (1.0f / n) + eps)) : 1.0f / std::sqrt(sum(squares) / n + eps);
    for (std::size_t d = 0; d < row.size(); ++d)
      store(call.tensor("out"), static_cast<std::int64_t>(begin + d), (row[d] - mean) * factor * gemma[d] + beta[d]);
  }
  return true;
}

bool log_softmax(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& input = call.tensor("input");
  const std::vector<float> x = floats(input);
  const auto width = static_cast<std::size_t>(input.size(-1));
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    const auto row = std::span(x).subspan(begin, width);
    const float most = *std::max_element(row.begin(), row.end());
    std::vector<float> terms;
    for (const float value : row) terms.push_back(exp(value - most));
    const float log_sum = log(call.way == Way::strided ? strided_sum(terms, 64) : reversed_sum(terms));
    for (std::size_t n = 0; n < width; ++n) store(call.tensor("output"), static_cast<std::int64_t>(begin + n), row[n] - most - log_sum);
  }
  return true;
}

bool mean_dim(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input"), &output = call.tensor("output");
  const auto count = static_cast<std::size_t>(input.size(1)), behind = static_cast<std::size_t>(input.size(2));
  const std::vector<float> x = floats(input);
  std::vector<float> column(count);
  for (std::size_t e = 0; e < static_cast<std::size_t>(output.elements()); ++e) {
    for (std::size_t n = 0; n < count; ++n) column[n] = x[(e / behind * count + n) * behind + e % behind];
    const float n = static_cast<float>(count);
    store(output, static_cast<std::int64_t>(e), call.way == Way::strided ? strided_sum(column, 32) * (1.0f / n) : reversed_sum(column) / n);
  }
  return true;
}

}  // namespace dodona::oracle::alternatives
