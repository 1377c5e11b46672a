#include "quant/tensor_core/accumulate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "dodona/error.h"
#include "quant/tensor_core/step.h"

namespace dodona::quant::tensor_core {
namespace {

[[noreturn]] void fail(ErrorCode code, const std::string& message) {
  throw Error(code, "tensor core", "", message);
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check_extent(std::int64_t rows, std::int64_t k, std::int64_t row_stride) {
  if (rows < 0 || k < 0 || row_stride < 0) {
    fail(ErrorCode::bad_value, "expected sizes of at least 0, got [" + std::to_string(rows) + ", " + std::to_string(k) + "], row stride " +
                                   std::to_string(row_stride));
  }
}

// --- One step, 16 accumulators at once ------------------------------------------------------------------------------------------

/// The decoded factors of one step: a[products], b[products][mma_lanes].
struct Step {
  const float* a;
  const std::int16_t* a_exponents;
  const float* b;
  const std::int16_t* b_exponents;
};

void reference_step(const MmaSpec& spec, const Step& step, float* accumulators) {
  std::array<Factor, 32> a{}, b{};
  const std::size_t products = static_cast<std::size_t>(spec.products);
  for (std::size_t i = 0; i < products; ++i) a[i] = {step.a[i], step.a_exponents[i]};
  for (int lane = 0; lane < mma_lanes; ++lane) {
    for (std::size_t i = 0; i < products; ++i) {
      const std::size_t at = i * mma_lanes + static_cast<std::size_t>(lane);
      b[i] = {step.b[at], step.b_exponents[at]};
    }
    accumulators[lane] = mma_step(spec, {a.data(), products}, {b.data(), products}, accumulators[lane]);
  }
}

// Registers that every x86-64 and AArch64 CPU has. (Left to themselves, compilers vectorize these loops well at some optimization levels
// and badly at others.)
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
using Shorts = std::int16_t __attribute__((vector_size(16)));

template <class Vector, class Element>
inline Vector load(const Element* from) {
  Vector to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

/// The largest exponents of the products, 16 lanes.
template <int products>
inline void largest_exponents(const std::int16_t* a, const std::int16_t* b, std::int16_t* largest) {
  Shorts largest0 = Shorts{} + std::int16_t{2 * absent}, largest1 = largest0;
  for (int i = 0; i < products; ++i) {
    const Shorts exponent0 = load<Shorts>(b + i * mma_lanes) + a[i], exponent1 = load<Shorts>(b + i * mma_lanes + 8) + a[i];
    largest0 = exponent0 > largest0 ? exponent0 : largest0;
    largest1 = exponent1 > largest1 ? exponent1 : largest1;
  }
  std::memcpy(largest, &largest0, sizeof largest0);
  std::memcpy(largest + 8, &largest1, sizeof largest1);
}

/// sum = a * b * scale, each product cut to an integer, 8 lanes. A product is below 4 in units of the window, so `run` products of
/// addend_bits fit 32 bits if run * 2^(addend_bits + 2) is at most 2^31.
template <int products, int run>
inline void sum_products(const float* a, const float* b, const float* scale, double* sum) {
  const Floats scale0 = load<Floats>(scale), scale1 = load<Floats>(scale + 4);
  for (int begin = 0; begin < products; begin += run) {
    Ints sum0{}, sum1{};
    for (int i = begin; i < begin + run; ++i) {
      const Floats addend0 = load<Floats>(b + i * mma_lanes) * a[i] * scale0;
      const Floats addend1 = load<Floats>(b + i * mma_lanes + 4) * a[i] * scale1;
      sum0 += __builtin_convertvector(addend0, Ints);
      sum1 += __builtin_convertvector(addend1, Ints);
    }
    for (int lane = 0; lane < 4; ++lane) {
      sum[lane] = (begin == 0 ? 0.0 : sum[lane]) + static_cast<double>(sum0[lane]);
      sum[lane + 4] = (begin == 0 ? 0.0 : sum[lane + 4]) + static_cast<double>(sum1[lane]);
    }
  }
}

/// Exponents of the window within which fp32 holds products, scaled addends and results exactly (or too small to count): scales are at most
/// 2^125, products that fp32 rounds lie below the window's last bit, results lie between 2^-125 and 2^103.
constexpr int lowest_quick = -100, highest_quick = 96;

/// One step of all lanes. False, and nothing done, if a lane's window lies outside the quick range: that lane has an infinity, a NaN or
/// extreme exponents.
/// Addends are scaled so that the last bit of the window is 1; converting them to integers then cuts them toward zero.
template <int products, int run>
bool quick_step(const MmaSpec& spec, const Step& step, float* accumulators) {
  std::int16_t largest[mma_lanes];
  largest_exponents<products>(step.a_exponents, step.b_exponents, largest);

  std::int32_t window[mma_lanes], outside = 0;
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(accumulators[lane]) & 0x7FFFFFFF;
    const std::int32_t own = magnitude == 0 ? 2 * absent : std::max(magnitude >> 23, 1) - 127;
    const std::int32_t top = std::max<std::int32_t>(largest[lane], own);
    const std::int32_t too_high = top > highest_quick, too_low = top<lowest_quick, present = top> absent_below;
    outside |= too_high | (too_low & present);
    window[lane] = std::max(top, lowest_quick);
  }
  if (outside != 0) return false;

  float scale[mma_lanes];
  for (int lane = 0; lane < mma_lanes; ++lane) scale[lane] = std::bit_cast<float>((127 + spec.addend_bits - window[lane]) << 23);
  double sum[mma_lanes];
  for (int lane = 0; lane < mma_lanes; lane += 8) sum_products<products, run>(step.a, step.b + lane, scale + lane, sum + lane);

  // A mask cuts the total's mantissa.
  const std::uint64_t kept = ~((std::uint64_t{1} << (52 - spec.sum_bits)) - 1);
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const std::int32_t carried = static_cast<std::int32_t>(accumulators[lane] * scale[lane]);
    const double total = sum[lane] + static_cast<double>(carried);
    const double cut = std::bit_cast<double>(std::bit_cast<std::uint64_t>(total) & kept);
    const float unit = std::bit_cast<float>((127 - spec.addend_bits + window[lane]) << 23);
    accumulators[lane] = static_cast<float>(cut * static_cast<double>(unit));
  }
  return true;
}

/// The quick steps that there are; of the first that fits. Other numbers of products go by the definition.
struct QuickStep {
  int products, most_bits;
  bool (*step)(const MmaSpec&, const Step&, float*);
};
constexpr QuickStep quick_steps[] = {
    {8, 25, quick_step<8, 8>}, {16, 25, quick_step<16, 16>}, {32, 24, quick_step<32, 32>}, {32, 25, quick_step<32, 16>}};

bool no_quick_step(const MmaSpec&, const Step&, float*) {
  return false;
}
auto quick_step_of(const MmaSpec& spec) {
  for (const QuickStep& quick : quick_steps)
    if (quick.products == spec.products && spec.addend_bits <= quick.most_bits) return quick.step;
  return no_quick_step;
}

}  // namespace

MmaRows::MmaRows(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k, std::int64_t row_stride)
    : spec_(spec), rows_(rows), k_(k), granule_(granule_of(spec)), padded_k_(0) {
  decoder_of(spec, type);  // refuses what the unit does not take
  check_extent(rows, k, row_stride);
  padded_k_ = padded_k(spec, k);
  values_.assign(static_cast<std::size_t>(rows * padded_k_), 0.0f);
  exponents_.assign(values_.size(), absent);
  for (std::int64_t row = 0; row < rows; ++row)
    decode_line(spec, type, static_cast<const std::byte*>(codes) + row * row_stride * bits(type) / 8, k, values_.data() + row * padded_k_,
                exponents_.data() + row * padded_k_);
}

MmaColumns::MmaColumns(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k, std::int64_t row_stride)
    : spec_(spec), columns_(columns), k_(k), granule_(0), padded_k_(0) {
  const Decoder& decoder = decoder_of(spec, type);
  check_extent(columns, k, row_stride);
  granule_ = granule_of(spec);
  padded_k_ = padded_k(spec, k);
  values_.assign(static_cast<std::size_t>(panels() * padded_k_ * mma_lanes), 0.0f);
  exponents_.assign(values_.size(), absent);
  with_codes(type, codes, [&](const auto* typed) {
    for (std::int64_t panel = 0; panel < panels(); ++panel) {
      const std::int64_t first = panel * mma_lanes, count = std::min<std::int64_t>(mma_lanes, columns - first);
      for (std::int64_t i = 0; i < k; ++i) {
        const std::size_t at = static_cast<std::size_t>((panel * padded_k_ + position_of(spec, i)) * mma_lanes);
        for (std::int64_t lane = 0; lane < count; ++lane) {
          const std::size_t code = typed[(first + lane) * row_stride + i];
          values_[at + static_cast<std::size_t>(lane)] = decoder.values[code];
          exponents_[at + static_cast<std::size_t>(lane)] = decoder.exponents[code];
        }
      }
    }
  });
}

void accumulate(const MmaRows& a, std::int64_t row, const MmaColumns& b, std::int64_t panel, std::int64_t k_begin, std::int64_t k_end,
                std::span<float, mma_lanes> accumulators) {
  if (a.spec_ != b.spec_ || a.k_ != b.k_ || a.granule_ != b.granule_) fail(ErrorCode::bad_value, "the operands do not fit together");
  if (row < 0 || row >= a.rows_ || panel < 0 || panel >= b.panels()) {
    fail(ErrorCode::bad_value, "no row " + std::to_string(row) + " or panel " + std::to_string(panel));
  }
  if (k_begin < 0 || k_begin > k_end || k_end > a.k_ || k_begin % a.granule_ != 0 || (k_end % a.granule_ != 0 && k_end != a.k_)) {
    fail(ErrorCode::bad_value, "expected a range of K at multiples of " + std::to_string(a.granule_) + " up to " + std::to_string(a.k_) +
                                   ", got " + std::to_string(k_begin) + " to " + std::to_string(k_end));
  }
  const std::int64_t products = a.spec_.products, last = round_up(k_end, a.granule_);
  const auto quick_step = quick_step_of(a.spec_);
  for (std::int64_t i = k_begin; i < last; i += products) {
    const std::int64_t at_a = row * a.padded_k_ + i, at_b = (panel * a.padded_k_ + i) * mma_lanes;
    const Step step{a.values_.data() + at_a, a.exponents_.data() + at_a, b.values_.data() + at_b, b.exponents_.data() + at_b};
    if (!quick_step(a.spec_, step, accumulators.data())) reference_step(a.spec_, step, accumulators.data());
  }
}

void accumulate(const MmaRows& a, const MmaColumns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride) {
  for (std::int64_t panel = 0; panel < b.panels(); ++panel) {
    const std::int64_t first = panel * mma_lanes, count = std::min<std::int64_t>(mma_lanes, b.columns() - first);
    for (std::int64_t row = 0; row < a.rows(); ++row) {
      float* out = c + row * c_stride + first;
      std::array<float, mma_lanes> lanes{};
      std::copy_n(out, count, lanes.begin());
      accumulate(a, row, b, panel, k_begin, k_end, lanes);
      std::copy_n(lanes.begin(), count, out);
    }
  }
}

void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int64_t b_stride, std::int32_t* c) {
  for (std::int64_t j = 0; j < n; ++j) {
    std::uint32_t sum = static_cast<std::uint32_t>(c[j]);
    for (std::int64_t i = 0; i < k; ++i) sum += static_cast<std::uint32_t>(a[i] * b[j * b_stride + i]);
    c[j] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace dodona::quant::tensor_core
