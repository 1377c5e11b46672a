#include "model/layer/attention/rope_table.h"

#include <algorithm>
#include <cmath>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "dodona/error.h"

namespace dodona::model {
namespace {

struct Span {
  double low, high;
};

/// The dimensions between which YaRN blends: those that turn beta_fast and beta_slow times over the original context.
Span correction_span(const ModelConfig& config) {
  constexpr double two_pi = 0x1.921fb54442d18p2;
  const YarnConfig& y = *config.yarn;
  const auto r = static_cast<double>(config.qk_rope_head_dim);
  const auto dimension = [&](double turns) {
    return r * fixed::log(static_cast<double>(y.original_max_positions) / (turns * two_pi)) / (2 * fixed::log(config.rope_theta));
  };
  Span span{std::max(std::floor(dimension(y.beta_fast)), 0.0), std::min(std::ceil(dimension(y.beta_slow)), r - 1)};
  if (span.low == span.high) span.high += 0.001;
  return span;
}

/// g(factor, mscale) / g(factor, mscale_all_dim): 1 for R1.
float table_factor(const ModelConfig& config) {
  if (!config.yarn || config.yarn->factor <= 1) return 1;
  const double log_factor = fixed::log(config.yarn->factor);
  return static_cast<float>((0.1 * config.yarn->mscale * log_factor + 1) / (0.1 * config.yarn->mscale_all_dim * log_factor + 1));
}

void fill_row(std::int64_t position, const std::vector<float>& inverse, float factor, float* row) {
  const std::size_t half = inverse.size();
  for (std::size_t i = 0; i < half; ++i) {
    // Rounded to fp32, as upstream's angle is: at position 160000 that is worth up to 0.004 rad.
    const float angle = static_cast<float>(position) * inverse[i];
    const fixed::SinCos direction = fixed::sincos(static_cast<double>(angle));
    row[i] = static_cast<float>(direction.cos) * factor;
    row[half + i] = static_cast<float>(direction.sin) * factor;
  }
}

void check_position(const ModelConfig& config, std::int64_t position) {
  if (position < 0 || position >= config.max_position_embeddings)
    throw Error(ErrorCode::bad_value, "", "",
                "position " + std::to_string(position) + " is out of range: " + config.name + " has max_position_embeddings " +
                    std::to_string(config.max_position_embeddings));
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const ModelConfig& config) {
  const std::int64_t half = config.qk_rope_head_dim / 2;
  std::vector<float> inverse;
  for (std::int64_t i = 0; i < half; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(config.qk_rope_head_dim);
    const auto power = static_cast<float>(fixed::pow(config.rope_theta, static_cast<double>(exponent)));
    const float original = 1.0f / power;
    if (!config.yarn) {
      inverse.push_back(original);
      continue;
    }
    const float stretched = 1.0f / (static_cast<float>(config.yarn->factor) * power);
    const Span span = correction_span(config);
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(span.low)) / static_cast<float>(span.high - span.low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float a = stretched * (1.0f - keep), b = original * keep;
    inverse.push_back(a + b);
  }
  return inverse;
}

Tensor rope_table(const ModelConfig& config, std::int64_t positions, int threads) {
  if (positions > 0) check_position(config, positions - 1);
  Tensor table(DType::f32, {positions, config.qk_rope_head_dim});
  const std::vector<float> inverse = rope_inverse_frequencies(config);
  const float factor = table_factor(config);
  auto* data = table.as<float>();
  const std::int64_t width = config.qk_rope_head_dim;
  parallel_for(threads, positions, 50.0 * static_cast<double>(width),
               [&](std::int64_t p) { fill_row(p, inverse, factor, data + p * width); });
  return table;
}

Tensor rope_table_rows(const ModelConfig& config, const std::vector<std::int64_t>& positions) {
  for (const std::int64_t position : positions) check_position(config, position);
  const auto count = static_cast<std::int64_t>(positions.size());
  Tensor table(DType::f32, {count, config.qk_rope_head_dim});
  const std::vector<float> inverse = rope_inverse_frequencies(config);
  const float factor = table_factor(config);
  for (std::int64_t i = 0; i < count; ++i)
    fill_row(positions[static_cast<std::size_t>(i)], inverse, factor, table.as<float>() + i * config.qk_rope_head_dim);
  return table;
}

}  // namespace dodona::model
