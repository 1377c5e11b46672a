#include "ops/softmax/flashinfer/online_rows.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "ops/softmax/triton/arithmetic.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The larger number; a NaN loses.
float larger(float a, float b) {
  return std::fmax(hw::ftz(a), hw::ftz(b));
}
/// 2^(a - b), 0 of two states without keys.
float weight(float a, float b) {
  return hw::ex2(larger(hw::sub(a, b), -infinity));
}

}  // namespace

OnlineRows::OnlineRows(DType type, std::int64_t rows, std::int64_t value_width, std::int64_t sums, float sigma, Isa isa)
    : type_(type),
      width_(value_width),
      sums_(sums),
      sigma_(sigma),
      isa_(isa),
      rows_(static_cast<std::size_t>(rows), Row{-infinity, {1, 1}, 1}),
      outs_(static_cast<std::size_t>(rows * value_width)) {}

void OnlineRows::add(std::vector<float>& scores, std::int64_t keys, const std::uint16_t* values) {
  const auto rows = static_cast<std::int64_t>(rows_.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    Row& row = rows_[static_cast<std::size_t>(i)];
    float* const z = scores.data() + i * keys;
    float top = row.top;
    for (std::int64_t j = 0; j < keys; ++j) top = larger(top, z[j]);
    const float about = larger(hw::mul(top, sigma_), -FLT_MAX), factor = hw::ex2(hw::fma(row.top, sigma_, -about));
    for (std::int64_t j = 0; j < keys; ++j) z[j] = hw::ex2(hw::fma(z[j], sigma_, -about));
    row.top = top;
    for (float& sum : row.sum) sum = hw::mul(sum, factor);
    for (std::int64_t d = i * width_; d < (i + 1) * width_; ++d)
      outs_[static_cast<std::size_t>(d)] = hw::mul(outs_[static_cast<std::size_t>(d)], factor);
  }
  std::vector<std::uint16_t> weights(scores.size()), ones(static_cast<std::size_t>(keys));
  quant::from_f32(type_, scores.data(), weights.data(), static_cast<std::int64_t>(scores.size()));
  for (std::uint16_t& one : ones) one = type_ == DType::bf16 ? 0x3F80 : 0x3C00;
  const std::int64_t part = keys / sums_;
  for (std::int64_t s = 0; s < sums_; ++s)
    triton::multiply(type_, {weights.data() + s * part, rows, keys}, {ones.data(), 1, part}, part, &rows_.front().sum[s],
                     static_cast<std::int64_t>(sizeof(Row) / sizeof(float)), isa_);
  triton::multiply(type_, {weights.data(), rows, keys}, {values, width_, keys}, keys, outs_.data(), width_, isa_);
}

void OnlineRows::close() {
  for (Row& row : rows_) {
    if (row.top != -infinity) row.top = hw::mul(row.top, sigma_);
    if (sums_ == 2) row.sum[0] = hw::add(row.sum[0], row.sum[1]);
  }
}

OnlineRows OnlineRows::merged(const std::vector<OnlineRows>& warps) {
  OnlineRows all = warps.front();
  for (std::size_t i = 0; i < all.rows_.size(); ++i) {
    Row& row = all.rows_[i];
    row.top = -infinity, row.sum[0] = 1;
    for (const OnlineRows& warp : warps) {
      const Row& other = warp.rows_[i];
      const float before = row.top;
      row.top = larger(before, other.top);
      row.sum[0] = hw::fma(row.sum[0], weight(before, row.top), hw::mul(other.sum[0], weight(other.top, row.top)));
    }
    for (std::size_t d = i * static_cast<std::size_t>(all.width_); d < (i + 1) * static_cast<std::size_t>(all.width_); ++d) {
      float out = 0;
      for (const OnlineRows& warp : warps) out = hw::fma(warp.outs_[d], weight(warp.rows_[i].top, row.top), out);
      all.outs_[d] = out;
    }
  }
  return all;
}

void OnlineRows::add_sinks(const std::vector<float>& sinks) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    const float top = sinks[i] > row.top ? sinks[i] : row.top;
    row.factor = weight(row.top, top);
    row.sum[0] = hw::fma(row.sum[0], row.factor, weight(sinks[i], top));
    row.top = top;
  }
}

bool OnlineRows::empty(std::int64_t row) const {
  return rows_[static_cast<std::size_t>(row)].top == -infinity;
}

float OnlineRows::lse(std::int64_t row) const {
  const Row& r = rows_[static_cast<std::size_t>(row)];
  return hw::add(hw::lg2(r.sum[0]), r.top);
}

float OnlineRows::out(std::int64_t row, std::int64_t column) const {
  const Row& r = rows_[static_cast<std::size_t>(row)];
  const float factor = r.top != -infinity ? hw::rcp(r.sum[0]) : 0.0f;
  return hw::mul(hw::mul(outs_[static_cast<std::size_t>(row * width_ + column)], r.factor), factor);
}

}  // namespace dodona::ops
