#include "ops/sums/accumulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "ops/sums/eight_lines.h"
#include "ops/sums/lines_together.h"

namespace dodona::ops {

const std::string_view half_sum_contract = R"(
acc = sum over k of the products, in fp32 (no TF32, no 16-bit accumulator); out = rn(acc), to nearest even. NaN and infinities
follow IEEE; where the magnitudes of the products add up beyond fp32, infinities and NaN pass too. Budget of acc: the larger of
two ways to add. (1) k ascending, in one chain or in contiguous parts whose fp32 sums are added: with D the largest magnitude of
a sum over any contiguous range of k, K + 16 + min(48, K/16) units of 2^-24 D. That holds for one rounding an addition, and for
tensor cores that take 16 products a step: 17 addends cut below 2^-25 of the largest and a sum cut to 24 bits lose less than 16
such units a step, and up to 48 parts are added; there a denormal factor counts as its type's smallest normal, so D is at least
the largest such product. (2) any other order in which no product passes through more than K/16 + 32 additions (never more than
K): that many units of 2^-24 of the larger of two sums, of all positive products and of all negative ones, which no partial sum
exceeds. Where a product of the two types does not fit fp32, its own rounding: 2^-24 of the sum of all magnitudes. Builds with fast
math flush: 2^-126 for each product and each addition, and the whole product of a denormal factor (with infinity: open).)";

namespace {

/// Terms begin <= k < end of two lines.
struct Terms {
  const Accumulator& accumulator;
  const Line &a, &b;
  std::size_t begin, end;
  bool judged;

  double count() const { return static_cast<double>(end - begin); }
  double product(std::size_t k) const { return a.values[k] * b.values[k]; }
};

constexpr double largest_f32 = 0x1.ffp127;

/// Sums of all positive products and of all negative ones, their magnitudes; without meaning once a product is infinite or NaN. Signs
/// follow no pattern, and a branch on them would cost more than the sums: half of |x| + x is x or 0, exactly.
struct BySign {
  double positive = 0, negative = 0;
  void add(double product) {
    const double magnitude = std::fabs(product);
    positive += 0.5 * (magnitude + product);
    negative += 0.5 * (magnitude - product);
  }
};

// ---- Order::exact

constexpr std::int64_t fp32_holds = std::int64_t{1} << 24;

/// A sum that fp32 does not hold is rounded before it is scaled.
Bounded exact_sum(const Terms& t) {
  std::int64_t sum = 0;
  for (std::size_t k = t.begin; k < t.end; ++k) sum += t.a.integers[k] * t.b.integers[k];
  const Bounded exact{static_cast<double>(sum) * t.a.unit * t.b.unit};
  return t.judged && std::abs(sum) > fp32_holds ? rounded_f32(exact) : exact;
}

// ---- Order::any and Order::steps

/// Any: one rounding of 2^-24 for every addition. No partial sum exceeds the sum of all positive products, or of all negative ones. Steps:
/// every accumulator may also do the fp32 additions of a better one.
Bounded bounded(const Accumulator& accumulator, double count, const StepSums& s, bool judged) {
  if (!judged || !std::isfinite(s.sum)) return {s.sum};
  const double any = count * f32_eps * std::max(s.positive, s.negative);
  return {s.sum, accumulator.order == Order::steps ? std::max(any, s.lost) : any};
}

// ---- Order::contiguous

/// What a tensor core takes a denormal factor's exponent from.
double smallest_normal(DType type) {
  return type == DType::f16 ? 0x1p-14 : 0x1p-126;
}

/// Units of 2^-24 of the largest partial sum that a product costs: a rounding of fp32, or its share of what a step of the unit loses
/// (every addend, the accumulator included, cut at addend_bits; the sum cut at sum_bits).
double units_of_product(const quant::tensor_core::MmaSpec& unit) {
  const double step = (unit.products + 1) * std::ldexp(1.0, 24 - unit.addend_bits) + std::ldexp(1.0, 24 - unit.sum_bits);
  return std::max(1.0, step / unit.products);
}

ContiguousSums contiguous_sums(const Terms& t) {
  const double a_normal = smallest_normal(t.a.type), b_normal = smallest_normal(t.b.type);
  ContiguousSums s;
  BySign by_sign;
  for (std::size_t k = t.begin; k < t.end; ++k) {
    const double product = t.product(k),
                 normal = std::max(std::fabs(t.a.values[k]), a_normal) * std::max(std::fabs(t.b.values[k]), b_normal);
    s.largest = std::max(s.largest, product != 0 ? normal : 0.0);
    s.sum += product;
    s.lowest = std::min(s.lowest, s.sum), s.highest = std::max(s.highest, s.sum);
    by_sign.add(product);
  }
  s.positive = by_sign.positive, s.negative = by_sign.negative;
  return s;
}

/// Builds with fast math take a denormal factor for zero: what its products add up to, which may be far more than denormal, and whether
/// one is with infinity.
struct DenormalProducts {
  double magnitude = 0;
  bool with_infinity = false;
};
DenormalProducts denormal_products(const Terms& t) {
  DenormalProducts lost;
  if (!t.a.denormal && !t.b.denormal) return lost;
  const auto denormal = [](double x) { return x != 0 && std::fabs(x) < flush_floor; };
  for (std::size_t k = t.begin; k < t.end; ++k) {
    if (!denormal(t.a.values[k]) && !denormal(t.b.values[k])) continue;
    const double product = std::fabs(t.product(k));
    lost.with_infinity = lost.with_infinity || std::isinf(product);
    if (std::isfinite(product)) lost.magnitude += product;
  }
  return lost;
}

Bounded bounded(const Terms& t, const ContiguousSums& s) {
  const Accumulator& accumulator = t.accumulator;
  const bool exact_products = t.a.type != DType::f32 && t.b.type != DType::f32;
  const double sum = s.sum, magnitudes = s.positive + s.negative;
  if (!std::isfinite(sum)) {
    // Of an operand. A finite product that overflows may turn the one infinity into NaN.
    double finite = 0;
    for (std::size_t k = t.begin; k < t.end; ++k)
      if (const double product = std::fabs(t.product(k)); std::isfinite(product)) finite += product;
    return {sum, 0.0, !std::isnan(sum) && (finite > largest_f32 || denormal_products(t).with_infinity)};
  }
  if (magnitudes > largest_f32) return {sum, 0.0, true};
  const double steps = std::ceil(t.count() / accumulator.unit->products);
  const double ascending = (t.count() * units_of_product(*accumulator.unit) + accumulator.unit->products +
                            std::min(static_cast<double>(accumulator.parts), steps)) *
                           std::max(s.highest - s.lowest, s.largest);
  const double chain = std::ceil(t.count() / static_cast<double>(accumulator.spread)) + static_cast<double>(accumulator.depth);
  const double spread = std::min(chain, t.count()) * std::max(s.positive, s.negative);
  const double products = exact_products ? 0.0 : magnitudes;
  // Each addition and each product may be flushed, and each denormal factor. A sum of nothing but zeros may have either sign.
  const double flushed = magnitudes > 0 ? 2 * t.count() * flush_floor + denormal_products(t).magnitude : t.begin == t.end ? 0.0 : 0x1p-149;
  return {sum, (std::max(ascending, spread) + products) * f32_eps + flushed};
}

Bounded contiguous_sum(const Terms& t) {
  return bounded(t, contiguous_sums(t));
}

constexpr int none = -1000;
int exponent_of(double magnitude) {
  return magnitude > 0 ? std::ilogb(magnitude) : none;
}

// ---- Order::blocks

/// Of sums that are so large, blocks that may be flushed are below the last bit.
constexpr double least_without_flushes = 0x1p-90;

/// The products of block j in units of both operands' integers, and the largest of them.
struct BlockProducts {
  int sum = 0, largest = 0;
};
BlockProducts block_products(const Line& a, const Line& b, std::size_t j) {
  BlockProducts products;
  for (std::size_t i = j * a.block; i < (j + 1) * a.block; ++i) {
    const int product = a.integers[i] * b.integers[i];
    products.sum += product;
    products.largest = std::max(products.largest, std::abs(product));
  }
  return products;
}

double lost_by_alignment(const Terms& t, double largest_addend) {
  if (largest_addend == 0) return 0.0;
  const double grid = std::ldexp(1.0, std::ilogb(largest_addend) - t.accumulator.unit->addend_bits), both = t.a.unit * t.b.unit;
  double lost = 0;
  for (std::size_t j = 0; j < t.a.scales.size(); ++j) {
    const double units = std::fabs(t.a.scales[j] * t.b.scales[j] * both) / grid;
    if (units == std::floor(units)) continue;  // every product lies on the grid
    for (std::size_t i = j * t.a.block; i < (j + 1) * t.a.block; ++i) {
      const double product = units * std::abs(t.a.integers[i] * t.b.integers[i]);
      lost += product - std::floor(product);
    }
  }
  return lost * grid;
}

/// How far an fp32 accumulation may be off. The sum of a block is an integer times one scale, at most 12 bits wide, and the product of two
/// scales is exact in fp32. So an accumulator that adds blocks, in any order or in any tree, rounds or cuts at each addition by at most
/// one unit of its last bit of a partial sum, and no partial sum exceeds the sum of all positive blocks, or of all negative ones. A matrix
/// unit may align the single products of an instruction instead: each then loses what lies addend_bits below the largest addend, a
/// product itself or a partial sum. A product has few bits, so most lose nothing; a coarser grid takes no less than a finer one, so it is
/// taken for the largest addend that there may be.
Bounded blockwise_sum(const Terms& t) {
  double sum = 0, positive = 0, negative = 0, largest = 0;
  const double both = t.a.unit * t.b.unit;
  for (std::size_t j = 0; j < t.a.scales.size(); ++j) {
    const BlockProducts products = block_products(t.a, t.b, j);
    const double scale = t.a.scales[j] * t.b.scales[j] * both, addend = scale * products.sum;
    sum += addend;
    (addend > 0 ? positive : negative) += std::fabs(addend);
    largest = std::max(largest, std::fabs(scale) * products.largest);
  }
  if (!t.judged || !std::isfinite(sum)) return {sum};
  const double farthest = std::max(positive, negative), last_bit = std::ldexp(1.0, -t.accumulator.unit->sum_bits);
  const auto blocks = static_cast<double>(t.a.scales.size());
  // Powers of two may take blocks out of fp32's range, at either end.
  const double flushed = farthest > 0 && farthest < least_without_flushes ? blocks * flush_floor : 0.0;
  const bool beyond = farthest + largest > largest_f32;
  return {sum, blocks * last_bit * farthest + lost_by_alignment(t, farthest + largest) + flushed, beyond};
}

// ---- Order::block_steps

/// The exponent of a block's scale in the unit's alignment, of a number that is not zero.
int scale_exponent(const quant::tensor_core::Fp4Spec& unit, double scale) {
  constexpr int smallest_normal_e4m3 = -6;
  const int exponent = std::ilogb(std::fabs(scale));
  return unit.scale == DType::f8_e4m3 ? std::max(exponent, smallest_normal_e4m3) : exponent;
}

/// A step cuts the sums of its groups and the accumulator to a grid addend_bits below the largest exponent among the groups' scales and
/// the accumulator, and the new sum to sum_bits below its own. fp32 additions of the same blocks in the same order are as good: each
/// rounds by 2^-24 of a sum. What either loses goes by the sums that there are on the way, not by those that other orders might meet.
Bounded sum_by_block_steps(const Terms& t) {
  constexpr int smallest_normal = -126;
  constexpr double second_order = 1 + 0x1p-20;  // of roundings within a step
  const quant::tensor_core::Fp4Spec& unit = *t.accumulator.fp4;
  const std::size_t blocks = t.a.scales.size(), step = static_cast<std::size_t>(unit.products) / t.a.block;
  const double both = t.a.unit * t.b.unit;
  const int groups = unit.products / unit.group;
  const auto addends = static_cast<double>(groups + 1);
  const auto scale = [&](std::size_t j) { return std::fabs(t.a.scales[j]) * std::fabs(t.b.scales[j]); };  // without their signs
  double sum = 0, lost = 0;
  bool overflow = false;
  for (std::size_t first = 0; first < blocks; first += step) {
    const double before = std::fabs(sum) + lost;
    double farthest = 0;
    int window = std::max(unit.lowest_exponent, exponent_of(before));
    const std::size_t end = std::min(first + step, blocks);
    for (std::size_t j = first; j < end; ++j) {
      const BlockProducts products = block_products(t.a, t.b, j);
      if (products.largest != 0 && scale(j) > 0)
        window = std::max(window, scale_exponent(unit, t.a.scales[j]) + scale_exponent(unit, t.b.scales[j]));
      sum += scale(j) * both * products.sum;
      farthest = std::max(farthest, std::fabs(sum));
    }
    if (!t.judged || (farthest == 0 && before == 0)) continue;
    const double cut = addends * std::ldexp(1.0, window - unit.addend_bits);
    const double by_unit = cut + std::ldexp(1.0, std::max(exponent_of(std::fabs(sum) + lost + cut), smallest_normal) - unit.sum_bits);
    lost += std::max(by_unit, static_cast<double>(end - first) * f32_eps * second_order * (farthest + lost));
    overflow = overflow || farthest + lost > largest_f32;
  }
  if (!t.judged || !std::isfinite(sum)) return {sum};
  return {sum, lost, overflow};
}

// ---- promotion

/// Of orders whose lines are not taken together.
Bounded sum_alone(const Terms& t) {
  switch (t.accumulator.order) {
    case Order::exact: return exact_sum(t);
    case Order::blocks: return blockwise_sum(t);
    case Order::block_steps: return sum_by_block_steps(t);
    default: return contiguous_sum(t);
  }
}

double scale_at(const Line& line, std::size_t k) {
  return line.scales.empty() ? 1.0 : line.scales[k / line.block];
}

/// A span's sum times its scales, which are multiplied with each other first or with the sum one after the other: a rounding of each
/// product, and of the sum with the second scale. A product that is denormal may be flushed, one beyond fp32 is infinite for some.
Bounded scaled_span(const Bounded& sum, double a_scale, double b_scale) {
  Bounded part = sum * (a_scale * b_scale);
  bool flushed = may_flush(a_scale) || may_flush(b_scale);
  for (const double product : {a_scale * b_scale, sum.exact * a_scale, sum.exact * b_scale, part.exact}) {
    flushed = flushed || may_flush(product);
    part.open = part.open || (std::isfinite(product) && std::fabs(product) > largest_f32);
  }
  // Zero times infinity, or infinity of either sign.
  part.open = part.open || ((std::isinf(a_scale) || std::isinf(b_scale)) && sum.reaches_zero());
  // Of a scale that may be flushed an infinite one makes NaN.
  part.open = part.open || (std::isinf(a_scale) && may_flush(b_scale)) || (std::isinf(b_scale) && may_flush(a_scale));
  return part.widened(std::fabs(part.exact) * (flushed ? 1.0 : 3 * f32_eps));
}

/// Sums of spans of K times the scales of both, added in fp32 in any order: a rounding of each addition, fused or not, none of which
/// exceeds the sum of all positive spans, or of all negative ones; partial sums may be flushed. Integers that fp32 holds lose nothing.
class SpansAdded {
 public:
  void add(const Bounded& plain, const Line& a, const Line& b, std::size_t begin) {
    const bool scaled = !a.scales.empty() || !b.scales.empty();
    scaled_ = scaled_ || scaled;
    const Bounded part = scaled ? scaled_span(plain, scale_at(a, begin), scale_at(b, begin)) : plain;
    if (std::isfinite(part.exact)) (part.exact > 0 ? positive_ : negative_) += std::fabs(part.exact);
    sum_ = sum_ + part;
    spans_ += 1;
  }
  Bounded total(Order order, bool judged) const {
    const double farthest = std::max(positive_, negative_) + (std::isfinite(sum_.exact) ? sum_.slack : 0.0);
    // Finite spans that add up to an infinity meet one of the other sign.
    if (!judged || !std::isfinite(sum_.exact)) return {sum_.exact, 0.0, sum_.open || (std::isinf(sum_.exact) && farthest > largest_f32)};
    if (order == Order::exact && !scaled_ && farthest <= static_cast<double>(fp32_holds)) return sum_;
    if (farthest > largest_f32) return {sum_.exact, 0.0, true};
    return sum_.widened(spans_ * (f32_eps * farthest + (farthest > 0 ? flush_floor : 0.0)));
  }

 private:
  Bounded sum_;
  double positive_ = 0, negative_ = 0, spans_ = 0;
  bool scaled_ = false;
};

std::size_t length(const Line& line) {
  return std::max(line.values.size(), line.integers.size());
}

/// Products of a span, 0 for all of K in one. Steps are followed in each part from zero, and the parts added as spans without scales.
std::size_t span_length(const Accumulator& accumulator, std::size_t k) {
  if (accumulator.promote_every > 0) return static_cast<std::size_t>(accumulator.promote_every);
  if (accumulator.order != Order::steps || accumulator.parts <= 1) return 0;
  return static_cast<std::size_t>(std::max<std::int64_t>(accumulator.part_length(static_cast<std::int64_t>(k)), 1));
}

/// [line / 8][k][8] of something that lines have for every k.
template <class T, class Of>
std::vector<T> by_eights(std::span<const Line> lines, const Of& of) {
  const std::size_t k = length(lines.front()), together = lines_together;
  std::vector<T> eights((lines.size() + together - 1) / together * k * together);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    T* const to = eights.data() + i / together * k * together + i % together;
    for (std::size_t e = 0; e < k; ++e) to[e * together] = of(lines[i])[e];
  }
  return eights;
}

}  // namespace

Bounded sum_of(const Accumulator& accumulator, const Line& a, const Line& b, bool judged) {
  Bounded sum;
  LinesTogether(accumulator, {&a, 1}, judged, default_isa()).sums_with(b, {&sum, 1});
  return sum;
}

LinesTogether::LinesTogether(const Accumulator& accumulator, std::span<const Line> lines, bool judged, Isa isa)
    : accumulator_(accumulator), lines_(lines), judged_(judged), isa_(isa) {
  const Order order = accumulator.order;
  if (lines.empty() || (order != Order::any && order != Order::steps && order != Order::contiguous)) return;
  contiguous_ = order == Order::contiguous && judged;
  if (contiguous_ && lines.size() == 1) return;
  together_ = true;
  eights_ = by_eights<double>(lines, [](const Line& line) { return line.values.data(); });
  if (judged && order == Order::steps) exponents_ = by_eights<std::int16_t>(lines, [](const Line& line) { return line.exponents.data(); });
}

void LinesTogether::contiguous_sums(const Line& b, std::size_t begin, std::size_t end, std::size_t first, std::span<Bounded> eight) const {
  const std::size_t k = b.values.size();
  std::array<ContiguousSums, lines_together> sums;
  dispatch<ContiguousLinesKernel>(isa_, ContiguousLines{.lines = eights_.data() + first * k + begin * lines_together,
                                                        .column = b.values.data() + begin,
                                                        .k = static_cast<std::int64_t>(end - begin),
                                                        .line_normal = smallest_normal(lines_[first].type),
                                                        .column_normal = smallest_normal(b.type),
                                                        .sums = sums.data()});
  for (std::size_t i = 0; i < eight.size(); ++i) eight[i] = bounded({accumulator_, lines_[first + i], b, begin, end, true}, sums[i]);
}

void LinesTogether::step_sums(const Line& b, std::size_t begin, std::size_t end, std::size_t first, std::span<Bounded> eight) const {
  const std::size_t at = first * b.values.size() + begin * lines_together;
  std::array<StepSums, lines_together> sums;
  StepLines steps{.lines = eights_.data() + at,
                  .column = b.values.data() + begin,
                  .exponents = nullptr,
                  .column_exponents = nullptr,
                  .k = static_cast<std::int64_t>(end - begin),
                  .products = 0,
                  .addend_bits = 0,
                  .sum_bits = 0,
                  .question = judged_ ? StepQuestion::magnitudes : StepQuestion::sum,
                  .sums = sums.data()};
  if (!exponents_.empty()) {
    const quant::tensor_core::MmaSpec& unit = *accumulator_.unit;
    steps.exponents = exponents_.data() + at, steps.column_exponents = b.exponents.data() + begin;
    steps.products = unit.products, steps.addend_bits = unit.addend_bits, steps.sum_bits = unit.sum_bits;
    steps.question = StepQuestion::lost;
  }
  dispatch<StepLinesKernel>(isa_, steps);
  for (std::size_t i = 0; i < eight.size(); ++i) eight[i] = bounded(accumulator_, static_cast<double>(end - begin), sums[i], judged_);
}

void LinesTogether::span_sums(const Line& b, std::size_t begin, std::size_t end, std::span<Bounded> results) const {
  if (!together_) {
    for (std::size_t i = 0; i < lines_.size(); ++i) results[i] = sum_alone({accumulator_, lines_[i], b, begin, end, judged_});
    return;
  }
  for (std::size_t first = 0; first < lines_.size(); first += lines_together) {
    const auto eight = results.subspan(first, std::min<std::size_t>(lines_together, lines_.size() - first));
    contiguous_ ? contiguous_sums(b, begin, end, first, eight) : step_sums(b, begin, end, first, eight);
  }
}

void LinesTogether::sums_with(const Line& b, std::span<Bounded> results) const {
  const std::size_t k = length(b), span = span_length(accumulator_, k);
  if (span == 0) return span_sums(b, 0, k, results);
  std::vector<SpansAdded> totals(lines_.size());
  std::vector<Bounded> plain(lines_.size());
  for (std::size_t begin = 0; begin < k; begin += span) {
    span_sums(b, begin, std::min(begin + span, k), plain);
    for (std::size_t i = 0; i < totals.size(); ++i) totals[i].add(plain[i], lines_[i], b, begin);
  }
  for (std::size_t i = 0; i < totals.size(); ++i) results[i] = totals[i].total(accumulator_.order, judged_);
}

}  // namespace dodona::ops
