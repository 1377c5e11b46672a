#include "quant/tensor_core/fp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "dodona/error.h"
#include "quant/e2m1.h"

namespace dodona::quant::tensor_core {
namespace {

constexpr std::int64_t products = 64, group = 16, groups = products / group;

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::bad_value, "tensor core", "", message);
}

std::int64_t whole_steps(const Fp4Spec& spec, std::int64_t lines, std::int64_t k) {
  if (spec.products != products || spec.group != group || spec.scale_block < group || products % spec.scale_block != 0)
    fail("no model adds e2m1 products in steps of " + std::to_string(spec.products) + ", groups of " + std::to_string(spec.group) +
         " and blocks of " + std::to_string(spec.scale_block));
  if (lines < 0 || k < 0 || k % spec.scale_block != 0)
    fail("expected K in blocks of " + std::to_string(spec.scale_block) + ", got [" + std::to_string(lines) + ", " + std::to_string(k) +
         "]");
  return (k + products - 1) / products * products;
}

/// One line, decoded, up to whole steps.
struct Line {
  std::vector<std::int8_t> numbers;
  std::vector<std::uint8_t> scale_codes;
  std::vector<std::uint16_t> counting;
  std::vector<std::int16_t> exponents;
  std::vector<float> scales;

  Line(const Fp4Spec& spec, std::int64_t padded_k)
      : numbers(static_cast<std::size_t>(padded_k)),
        scale_codes(static_cast<std::size_t>(padded_k / spec.scale_block)),
        counting(static_cast<std::size_t>(padded_k / group)),
        exponents(counting.size()),
        scales(counting.size()) {}

  void read(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t line, std::int64_t k) {
    const std::uint8_t* const codes = operand.codes + line * operand.line_bytes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) numbers[i] = e2m1_doubled[codes[i / 2] >> (i % 2 * 4) & 0xFu];
    const std::int64_t blocks = k / spec.scale_block;
    std::copy_n(operand.scales + line * blocks, blocks, scale_codes.begin());
    for (std::size_t g = 0; g < counting.size(); ++g) {
      const ScaleFactor scale =
          decode_scale(spec.scale, scale_codes[g * static_cast<std::size_t>(group) / static_cast<std::size_t>(spec.scale_block)]);
      counting[g] = 0;
      exponents[g] = scale.nan ? special : static_cast<std::int16_t>(scale.exponent);
      scales[g] = scale.nan ? 0.0f : std::ldexp(scale.significand, scale.exponent);
      for (std::size_t i = 0; i < 16; ++i)
        if (scales[g] != 0 && numbers[g * 16 + i] != 0) counting[g] = static_cast<std::uint16_t>(counting[g] | 1u << i);
    }
  }
};

// Registers that every x86-64 and AArch64 CPU has.
using Shorts = std::int16_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));
using FourShorts = std::int16_t __attribute__((vector_size(8)));
using TwoFloats = float __attribute__((vector_size(8)));
using Ints = std::int32_t __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(16)));

template <class Vector, class Element>
inline Vector load(const Element* from) {
  Vector to;
  std::memcpy(&to, from, sizeof to);
  return to;
}
template <class Vector, class Element>
inline void store(const Vector& from, Element* to) {
  std::memcpy(to, &from, sizeof from);
}

/// One step of a row and a panel: numbers a[64], b[64][lanes]; of groups [4] and [4][lanes].
struct Step {
  const std::int16_t* a;
  const std::uint16_t* a_counting;
  const std::int16_t* a_exponents;
  const float* a_scales;
  const std::int16_t* b;
  const std::uint16_t* b_counting;
  const std::int16_t* b_exponents;
  const float* b_scales;
};

/// What decides whether nothing is cut in a lane: the exponents of all groups, and of those that count.
struct Exponents {
  std::int16_t highest[mma_lanes], top[mma_lanes], bottom[mma_lanes];
};
constexpr std::int16_t no_bottom = -absent;

inline void exponents_of(const Step& step, Exponents& exponents) {
  for (int lane = 0; lane < mma_lanes; lane += 8) {
    Shorts highest = Shorts{} + std::int16_t{2 * absent}, top = Shorts{} + absent, bottom = Shorts{} + no_bottom;
    for (int g = 0; g < groups; ++g) {
      const Shorts exponent = load<Shorts>(step.b_exponents + g * mma_lanes + lane) + step.a_exponents[g];
      const Shorts counting = load<Shorts>(step.b_counting + g * mma_lanes + lane) & static_cast<std::int16_t>(step.a_counting[g]);
      const Shorts counts = counting != 0;
      const Shorts low = (exponent & counts) | (absent & ~counts), high = (exponent & counts) | (no_bottom & ~counts);
      highest = exponent > highest ? exponent : highest;
      top = low > top ? low : top;
      bottom = high < bottom ? high : bottom;
    }
    store(highest, exponents.highest + lane);
    store(top, exponents.top + lane);
    store(bottom, exponents.bottom + lane);
  }
}

/// Sums of the groups, exact: a group's sum has 12 bits and its scale 8; what lies in a window that cuts nothing has fewer than 53.
inline void sum_groups(const Step& step, double* sums) {
  for (int lane = 0; lane < mma_lanes; lane += 8) {
    Doubles sum[4]{};
    for (int g = 0; g < groups; ++g) {
      Shorts dot{};
      for (int i = 0; i < group; ++i) dot += load<Shorts>(step.b + (g * group + i) * mma_lanes + lane) * step.a[g * group + i];
      std::int16_t dots[8];
      store(dot, dots);
      for (int q = 0; q < 2; ++q) {
        const Floats scale = load<Floats>(step.b_scales + g * mma_lanes + lane + 4 * q) * step.a_scales[g];
        const Floats addend = __builtin_convertvector(__builtin_convertvector(load<FourShorts>(dots + 4 * q), Ints), Floats) * scale;
        float addends[4];
        store(addend, addends);
        sum[2 * q] += __builtin_convertvector(load<TwoFloats>(addends), Doubles);
        sum[2 * q + 1] += __builtin_convertvector(load<TwoFloats>(addends + 2), Doubles);
      }
    }
    for (int q = 0; q < 4; ++q) store(sum[q], sums + lane + 2 * q);
  }
}

/// Exponents within which scales, addends and results are fp32's normal numbers.
constexpr int lowest_quick = -60, highest_quick = 96;

/// One step of the lanes whose window cuts none of the addends; the others are returned, a bit each, as they were.
/// A group's addend is a multiple of 2^(its exponent - 8), one of the accumulator of 2^(its exponent - 23).
std::uint32_t quick_step(const Fp4Spec& spec, const Step& step, float* accumulators) {
  Exponents exponents;
  exponents_of(step, exponents);
  double sums[mma_lanes];
  sum_groups(step, sums);
  std::uint32_t others = 0;
  std::int32_t slow[mma_lanes];
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(accumulators[lane]) & 0x7FFFFFFF;
    const std::int32_t field = magnitude >> 23, own = magnitude == 0 ? 2 * absent : std::max(field, 1) - 127;
    const std::int32_t top = std::max<std::int32_t>(exponents.top[lane], own);
    const std::int32_t window = top - spec.addend_bits;
    const std::int32_t extreme = std::max<std::int32_t>(exponents.highest[lane], own) > highest_quick;
    const std::int32_t low = static_cast<std::int32_t>(top < lowest_quick) & static_cast<std::int32_t>(top > absent);
    const std::int32_t group_cut = exponents.bottom[lane] - 8 < window;
    const std::int32_t own_cut = static_cast<std::int32_t>(magnitude != 0) & static_cast<std::int32_t>(own - 23 < window);
    slow[lane] = extreme | low | group_cut | own_cut;
  }
  const std::uint64_t kept = ~((std::uint64_t{1} << (52 - spec.sum_bits)) - 1);
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const double total = sums[lane] + static_cast<double>(accumulators[lane]);
    const auto cut = static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(total) & kept));
    accumulators[lane] = slow[lane] != 0 ? accumulators[lane] : cut;
    others |= static_cast<std::uint32_t>(slow[lane]) << lane;
  }
  return others;
}

}  // namespace

Fp4Rows::Fp4Rows(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t rows, std::int64_t k)
    : spec_(spec), rows_(rows), k_(k), padded_k_(whole_steps(spec, rows, k)) {
  Line line(spec, padded_k_);
  for (std::int64_t row = 0; row < rows; ++row) {
    line.read(spec, operand, row, k);
    numbers_.insert(numbers_.end(), line.numbers.begin(), line.numbers.end());
    scale_codes_.insert(scale_codes_.end(), line.scale_codes.begin(), line.scale_codes.end());
    counting_.insert(counting_.end(), line.counting.begin(), line.counting.end());
    exponents_.insert(exponents_.end(), line.exponents.begin(), line.exponents.end());
    for (const float scale : line.scales) scales_.push_back(scale * 0.25f);
  }
}

Fp4Factors Fp4Rows::step(std::int64_t row, std::int64_t at) const {
  const std::int64_t blocks = products / spec_.scale_block;
  return {{numbers_.data() + row * padded_k_ + at, static_cast<std::size_t>(products)},
          {scale_codes_.data() + (row * padded_k_ + at) / spec_.scale_block, static_cast<std::size_t>(blocks)}};
}

Fp4Columns::Fp4Columns(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t columns, std::int64_t k)
    : spec_(spec), columns_(columns), k_(k), padded_k_(whole_steps(spec, columns, k)) {
  numbers_.assign(static_cast<std::size_t>(panels() * padded_k_ * mma_lanes), 0);
  counting_.assign(static_cast<std::size_t>(panels() * (padded_k_ / group) * mma_lanes), 0);
  exponents_.assign(counting_.size(), 0);
  scales_.assign(counting_.size(), 0.0f);
  Line line(spec, padded_k_);
  for (std::int64_t column = 0; column < columns; ++column) {
    line.read(spec, operand, column, k);
    scale_codes_.insert(scale_codes_.end(), line.scale_codes.begin(), line.scale_codes.end());
    const std::int64_t panel = column / mma_lanes, lane = column % mma_lanes;
    for (std::int64_t i = 0; i < padded_k_; ++i)
      numbers_[static_cast<std::size_t>((panel * padded_k_ + i) * mma_lanes + lane)] = line.numbers[static_cast<std::size_t>(i)];
    for (std::int64_t g = 0; g < padded_k_ / group; ++g) {
      const auto at = static_cast<std::size_t>((panel * (padded_k_ / group) + g) * mma_lanes + lane), from = static_cast<std::size_t>(g);
      counting_[at] = line.counting[from];
      exponents_[at] = line.exponents[from];
      scales_[at] = line.scales[from];
    }
  }
}

void accumulate(const Fp4Rows& a, std::int64_t row, const Fp4Columns& b, std::int64_t panel, std::int64_t k_begin, std::int64_t k_end,
                std::span<float, mma_lanes> accumulators) {
  if (a.spec_ != b.spec_ || a.k_ != b.k_) fail("the operands do not fit together");
  if (row < 0 || row >= a.rows_ || panel < 0 || panel >= b.panels())
    fail("no row " + std::to_string(row) + " or panel " + std::to_string(panel));
  if (k_begin < 0 || k_begin > k_end || k_end > a.k_ || k_begin % products != 0 || (k_end % products != 0 && k_end != a.k_))
    fail("expected a range of K at multiples of " + std::to_string(products) + " up to " + std::to_string(a.k_) + ", got " +
         std::to_string(k_begin) + " to " + std::to_string(k_end));
  const std::int64_t lanes = std::min<std::int64_t>(mma_lanes, b.columns_ - panel * mma_lanes);
  const std::int64_t blocks = products / a.spec_.scale_block;
  for (std::int64_t at = k_begin; at < k_end; at += products) {
    std::array<std::int16_t, products> numbers;
    const std::int64_t row_group = (row * a.padded_k_ + at) / group, panel_at = panel * b.padded_k_ + at;
    std::copy_n(a.numbers_.begin() + row * a.padded_k_ + at, products, numbers.begin());
    const Step step{numbers.data(),
                    a.counting_.data() + row_group,
                    a.exponents_.data() + row_group,
                    a.scales_.data() + row_group,
                    b.numbers_.data() + panel_at * mma_lanes,
                    b.counting_.data() + panel_at / group * mma_lanes,
                    b.exponents_.data() + panel_at / group * mma_lanes,
                    b.scales_.data() + panel_at / group * mma_lanes};
    const std::uint32_t others = quick_step(a.spec_, step, accumulators.data());
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      if ((others >> lane & 1u) == 0) continue;
      std::array<std::int8_t, products> column;
      for (std::int64_t i = 0; i < products; ++i)
        column[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(step.b[i * mma_lanes + lane]);
      const std::int64_t first = (panel * mma_lanes + lane) * b.padded_k_ + at;
      const Fp4Factors right{column, {b.scale_codes_.data() + first / a.spec_.scale_block, static_cast<std::size_t>(blocks)}};
      float& accumulator = accumulators[static_cast<std::size_t>(lane)];
      accumulator = fp4_step(a.spec_, a.step(row, at), right, accumulator);
    }
  }
}

void accumulate(const Fp4Rows& a, const Fp4Columns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride) {
  for (std::int64_t panel = 0; panel < b.panels(); ++panel) {
    const std::int64_t first = panel * mma_lanes, count = std::min<std::int64_t>(mma_lanes, b.columns() - first);
    for (std::int64_t row = 0; row < a.rows(); ++row) {
      float* const out = c + row * c_stride + first;
      std::array<float, mma_lanes> lanes{};
      std::copy_n(out, count, lanes.begin());
      accumulate(a, row, b, panel, k_begin, k_end, lanes);
      std::copy_n(lanes.begin(), count, out);
    }
  }
}

}  // namespace dodona::quant::tensor_core
