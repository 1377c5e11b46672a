#include "ops/tiles/dot/thread_dots.h"

#include <array>

#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr std::int64_t warp = 32;

/// By the rules of flushing, addition by addition.
float by_rules(const ThreadDot& dot) {
  std::array<float, dot_threads> sums{};
  for (std::int64_t at = 0; at < dot.steps * dot_threads; at += dot_threads)
    for (std::int64_t r = 0; r < dot_threads; ++r) {
      float& sum = sums[static_cast<std::size_t>(r)];
      sum = hw::fma(dot.x[at + r], dot.w[at + r], sum);
    }
  float total = 0;
  for (auto first = sums.begin(); first != sums.end(); first += warp) {
    // After each exchange the lower lanes hold what all lanes hold: addition commutes.
    for (std::int64_t other = warp / 2; other > 0; other /= 2)
      for (std::int64_t lane = 0; lane < other; ++lane) first[lane] = hw::add(first[lane], first[lane + other]);
    total = hw::add(total, *first);
  }
  return total;
}

/// Products, and so all sums, are multiples of 2^(sum of the smallest exponents - 14): none is denormal, nor was one rounded up, if that is
/// 2^-126 or more.
bool none_denormal(int smallest_field, int other) {
  constexpr int bias = 127, mantissa_bits = 7;
  return smallest_field + other - 2 * (bias + mantissa_bits) >= -126;
}

}  // namespace

ThreadRows::ThreadRows(const std::uint16_t* codes, std::int64_t rows, std::int64_t width, Isa isa)
    : k(width), values(static_cast<std::size_t>(rows * k)) {
  for (std::int64_t row = 0; row < rows; ++row)
    smallest_field.push_back(dispatch<ThreadRowKernel>(isa, ThreadRow{codes + row * k, k, values.data() + row * k}));
}

void thread_dots(const ThreadRows& x, const ThreadRows& w, std::int64_t row, float* dots, Isa isa) {
  const std::int64_t k = w.k;
  const int field = w.smallest_field[static_cast<std::size_t>(row)];
  for (std::size_t i = 0; i < x.smallest_field.size(); ++i) {
    const ThreadDot dot{x.values.data() + static_cast<std::int64_t>(i) * k, w.values.data() + row * k, k / dot_threads};
    dots[i] = none_denormal(x.smallest_field[i], field) ? hw::add(dispatch<ThreadDotKernel>(isa, dot), 0.0f) : by_rules(dot);
  }
}

}  // namespace dodona::ops
