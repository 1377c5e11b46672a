#include "ops/sums/eight_lines.h"

#include "ops/base/double_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int64_t lanes = double_lanes;
static_assert(ops::lines_together == lanes);
typedef std::int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef std::int16_t Shorts __attribute__((vector_size(2 * lanes)));
typedef std::int16_t ShortsInMemory __attribute__((vector_size(2 * lanes), aligned(2), may_alias));

/// The exponent of a number above zero, else `none`; and the power of two of one.
#define DODONA_EXPONENT(x) ((x) > zero ? (reinterpret_cast<Bits>(x) >> 52) - 1023 : none)
#define DODONA_POWER(e) reinterpret_cast<Lanes>(((e) + 1023) << 52)

void add_products(const ops::ContiguousLines& c) {
  const Lanes zero = {}, line_normal = zero + c.line_normal;
  Lanes sum = zero, lowest = zero, highest = zero, positive = zero, negative = zero, largest = zero;
  for (std::int64_t k = 0; k < c.k; ++k) {
    const Lanes line = DODONA_CONST_LANES(c.lines + k * lanes);
    const double column = c.column[k], column_magnitude = column < 0 ? -column : column;
    const double column_normal = column_magnitude < c.column_normal ? c.column_normal : column_magnitude;
    const Lanes product = line * column, magnitude = DODONA_MAGNITUDE(product), line_magnitude = DODONA_MAGNITUDE(line);
    const Lanes normal = DODONA_LARGER(line_magnitude, line_normal) * column_normal;
    const Lanes counts = product != zero ? normal : zero;
    largest = DODONA_LARGER(largest, counts);
    sum += product;
    lowest = DODONA_SMALLER(lowest, sum);
    highest = DODONA_LARGER(highest, sum);
    positive += 0.5 * (magnitude + product);
    negative += 0.5 * (magnitude - product);
  }
  for (int i = 0; i < lanes; ++i) {
    ops::ContiguousSums& s = c.sums[i];
    s.sum = sum[i], s.positive = positive[i], s.negative = negative[i];
    s.lowest = lowest[i], s.highest = highest[i], s.largest = largest[i];
  }
}

// ---- steps

using Question = ops::StepQuestion;

/// The sums, and of each line the largest magnitude of a sum at whole steps.
template <Question question>
void add_steps(const ops::StepLines& s, double* largest_sums) {
  const Lanes zero = {};
  Lanes sum = zero, twice_positive = zero, twice_negative = zero, largest = zero;
  const std::int64_t step = question == Question::lost ? s.products : s.k;
  for (std::int64_t k = 0; k < s.k;) {
    const std::int64_t end = s.k - k < step ? s.k : k + step;
    for (; k < end; ++k) {
      const Lanes product = DODONA_CONST_LANES(s.lines + k * lanes) * s.column[k];
      sum += product;
      if constexpr (question != Question::sum) {
        const Lanes magnitude = DODONA_MAGNITUDE(product);
        twice_positive += magnitude + product;
        twice_negative += magnitude - product;
      }
    }
    const Lanes size = DODONA_MAGNITUDE(sum);
    largest = DODONA_LARGER(largest, size);
  }
  for (int i = 0; i < lanes; ++i) {
    s.sums[i].sum = sum[i], s.sums[i].positive = twice_positive[i] / 2, s.sums[i].negative = twice_negative[i] / 2;
    largest_sums[i] = largest[i];
  }
}

/// StepSums::lost, of what begins at zero. What is cut of all products and of them with their signs says what is of those of either sign.
void follow_steps(const ops::StepLines& s, const double* largest_sums) {
  const Lanes zero = {};
  const Bits none = Bits{} - 1000;
  const Lanes largest = DODONA_CONST_LANES(largest_sums);
  Lanes sum = zero, cut = zero, signed_cut = zero, lost_sums = zero;
  Bits last = -none;  // the first accumulator is zero
#define DODONA_LOST (0.5 * (cut + DODONA_MAGNITUDE(signed_cut)) + lost_sums)
  for (std::int64_t begin = 0; begin < s.k; begin += s.products) {
    const std::int64_t end = s.k - begin < s.products ? s.k : begin + s.products;
    Ints exponents = Ints{} - 1000;
    for (std::int64_t k = begin; k < end; ++k) {
      const Shorts line = *reinterpret_cast<const ShortsInMemory*>(s.exponents + k * lanes);
      const Ints both = __builtin_convertvector(line, Ints) + std::int32_t{s.column_exponents[k]};
      exponents = DODONA_LARGER(exponents, both);
    }
    const Bits of_products = __builtin_convertvector(exponents, Bits);
    const Lanes lost = DODONA_LOST, kept = DODONA_MAGNITUDE(sum) - lost, size = largest + lost;
    const Bits of_sum = DODONA_EXPONENT(kept), of_size = DODONA_EXPONENT(size);
    const Bits least = DODONA_LARGER(of_products, of_sum), most = DODONA_LARGER(of_products, of_size), any = Bits{} - 900;
    const Bits place = DODONA_LARGER(most - s.addend_bits, any);
    const Lanes grid = DODONA_POWER(place), inverse = DODONA_POWER(-place);
    const Bits beyond_last = (of_products != none) & (of_products > last);
    lost_sums += beyond_last ? DODONA_POWER(of_products - s.addend_bits) : zero;
    for (std::int64_t k = begin; k < end; ++k) {
      const Lanes product = DODONA_CONST_LANES(s.lines + k * lanes) * s.column[k];
      const Lanes magnitude = DODONA_MAGNITUDE(product);
      // No product is 2^31 times the grid.
      const Lanes left = magnitude - __builtin_convertvector(__builtin_convertvector(magnitude * inverse, Ints), Lanes) * grid;
      const Bits sign = reinterpret_cast<Bits>(product) & (-0x7FFFFFFFFFFFFFFF - 1);
      cut += left;
      signed_cut += reinterpret_cast<Lanes>(reinterpret_cast<Bits>(left) | sign);
      sum += product;
    }
    const Lanes size_now = DODONA_MAGNITUDE(sum) + DODONA_LOST;
    const Bits now = DODONA_EXPONENT(size_now);
    const Bits outgrown = (of_products != none) & (now - s.sum_bits > least - s.addend_bits);
    lost_sums += outgrown ? DODONA_POWER(now - s.sum_bits) : zero;
    last = of_products != none ? of_products : last;
  }
  const Lanes lost = DODONA_LOST;
  for (int i = 0; i < lanes; ++i) s.sums[i].lost = lost[i];
#undef DODONA_LOST
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void ContiguousLinesKernel::run(const ContiguousLines& lines) {
  DODONA_TIER::add_products(lines);
}
template void ContiguousLinesKernel::run<tier::DODONA_TIER>(const ContiguousLines&);

template <class Tier>
void StepLinesKernel::run(const StepLines& lines) {
  using namespace DODONA_TIER;
  double largest[lines_together];
  switch (lines.question) {
    case StepQuestion::sum: return add_steps<StepQuestion::sum>(lines, largest);
    case StepQuestion::magnitudes: return add_steps<StepQuestion::magnitudes>(lines, largest);
    case StepQuestion::lost: add_steps<StepQuestion::lost>(lines, largest);
  }
  follow_steps(lines, largest);
}
template void StepLinesKernel::run<tier::DODONA_TIER>(const StepLines&);

}  // namespace dodona::ops
