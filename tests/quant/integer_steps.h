// Steps of tensor cores in integers alone, written from the rules and from nothing else of this library; with switches for wrong rules, so
// that recorded steps can be shown to catch each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dodona::integer_steps {

enum class Code { bf16, f16, e4m3, e5m2, e3m2, e2m3, e2m1, f32 };
enum class Scale { none, ue8m0, ue4m3 };

/// An instruction: chains of links of `link` products; fp4 with block scales in groups of 16 if `grouped`.
struct Instruction {
  Code a, b;
  int k, link;
  int addend_bits, sum_bits, floor;
  bool grouped = false;
  Scale scale = Scale::none;
  int scale_block = 0;
};

/// What may be got wrong; as it stands, nothing is.
struct Rules {
  int addend_bits = 0;  ///< more than there are
  int floor = 0;        ///< above the right one
  bool no_floor = false;
  bool e5m2_all_finite = false, e4m3_all_finite = false;
  bool normalized_factors = false, normalized_accumulator = false;
  bool flushed_factors = false, flushed_accumulator = false, flushed_results = false;
  bool floor_addends = false, rounded_addends = false;
  bool minus_zero = false, minus_zero_from_underflow = false;
  bool floor_sum = false, nearest_sum = false;
  bool saturates = false;
  bool infinities_of_both_signs_are_one = false, infinity_times_zero_is_zero = false;
  std::uint32_t nan = 0x7FFFFFFFu;
  bool zero_factors_in_e = false, value_of_product_in_e = false;
  bool scale_nan_ignored = false;
  bool far_accumulator_only = false;
  bool scale_sign = false, scale_significand_in_e = false;
  bool cancelled_group_out = false, zero_group_in_e = false, zero_scale_in_e = false, value_of_group_in_e = false;
  int group = 16;
  int link = 0;  ///< 0: the instruction's
};

struct Number {
  enum Kind { finite, infinite, nan } kind = finite;
  bool negative = false;
  std::int64_t significand = 0;
  int exponent = 0;  ///< of the representation
  int fraction = 0;  ///< value = significand * 2^(exponent - fraction)

  bool zero() const { return kind == finite && significand == 0; }
};

inline int log2_floor(std::uint64_t x) {
  return 63 - std::countl_zero(x);
}

struct Shape {
  int exponent_bits, fraction_bits;
  bool ieee, has_nan;
};
inline Shape shape_of(Code code) {
  switch (code) {
    case Code::bf16: return {8, 7, true, true};
    case Code::f16: return {5, 10, true, true};
    case Code::e4m3: return {4, 3, false, true};
    case Code::e5m2: return {5, 2, true, true};
    case Code::e3m2: return {3, 2, false, false};
    case Code::e2m3: return {2, 3, false, false};
    case Code::e2m1: return {2, 1, false, false};
    case Code::f32: break;
  }
  return {8, 23, true, true};
}

inline Number decoded(Code code, std::uint32_t bits, const Rules& rules) {
  const Shape shape = shape_of(code);
  const std::uint32_t all_ones = (1u << shape.exponent_bits) - 1, fraction = bits & ((1u << shape.fraction_bits) - 1);
  const std::uint32_t field = bits >> shape.fraction_bits & all_ones;
  Number number;
  number.negative = (bits >> (shape.exponent_bits + shape.fraction_bits) & 1) != 0;
  number.fraction = shape.fraction_bits;
  const bool finite_top = (code == Code::e5m2 && rules.e5m2_all_finite) || (code == Code::e4m3 && rules.e4m3_all_finite);
  if (field == all_ones && !finite_top) {
    if (shape.ieee) {
      number.kind = fraction != 0 ? Number::nan : Number::infinite;
      return number;
    }
    if (shape.has_nan && fraction == (1u << shape.fraction_bits) - 1) {
      number.kind = Number::nan;
      return number;
    }
  }
  const int bias = (1 << (shape.exponent_bits - 1)) - 1;
  number.exponent = static_cast<int>(std::max(field, 1u)) - bias;
  number.significand = field == 0 ? fraction : fraction | 1u << shape.fraction_bits;
  const bool accumulator = code == Code::f32;
  if (field == 0 && (accumulator ? rules.flushed_accumulator : rules.flushed_factors)) number.significand = 0;
  if (number.significand != 0 && (accumulator ? rules.normalized_accumulator : rules.normalized_factors)) {
    while (number.significand >> shape.fraction_bits == 0) {
      number.significand <<= 1;
      --number.exponent;
    }
  }
  return number;
}

/// A scale: a significand of 3 fraction bits for ue4m3.
inline Number decoded(Scale scale, std::uint32_t bits, const Rules& rules) {
  Number number;
  if (scale == Scale::ue8m0) {
    number.significand = 1;
    number.exponent = static_cast<int>(bits) - 127;
    if (bits == 0xFF && !rules.scale_nan_ignored) number.kind = Number::nan;
    return number;
  }
  Rules own;
  own.e4m3_all_finite = rules.e4m3_all_finite || rules.scale_nan_ignored;
  number = decoded(Code::e4m3, rules.scale_sign ? bits : bits & 0x7F, own);
  return number;
}

/// significand * 2^(exponent - fraction), taken into the alignment at `exponent`.
struct Addend {
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0, fraction = 0;
};

struct Addends {
  std::array<Addend, 64> all;
  std::size_t count = 0;

  void add(const Addend& addend) { all[count++] = addend; }
  const Addend* begin() const { return all.data(); }
  const Addend* end() const { return all.data() + count; }
};

/// An addend in units of 2^unit.
inline std::int64_t cut(const Addend& addend, int unit, const Rules& rules) {
  const int shift = addend.exponent - addend.fraction - unit;
  if (addend.significand == 0) return 0;
  std::int64_t whole = 0;
  bool rest = false, half = false;
  if (shift >= 0) {
    whole = static_cast<std::int64_t>(addend.significand << std::min(shift, 62));
  } else if (shift > -64) {
    whole = static_cast<std::int64_t>(addend.significand >> -shift);
    rest = (addend.significand & ((std::uint64_t{1} << -shift) - 1)) != 0;
    half = (addend.significand >> (-shift - 1) & 1) != 0;
  } else {
    rest = true;
  }
  if (rules.rounded_addends && half) ++whole;
  if (rules.floor_addends && addend.negative && rest) ++whole;
  return addend.negative ? -whole : whole;
}

/// fp32 bits of sum * 2^unit.
inline std::uint32_t rounded(std::int64_t sum, int unit, bool all_negative, int sum_bits, const Rules& rules) {
  if (sum == 0) return rules.minus_zero && all_negative ? 0x80000000u : 0;
  const bool negative = sum < 0;
  const std::uint32_t sign = negative ? 0x80000000u : 0;
  const std::uint64_t magnitude = negative ? std::uint64_t{0} - static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  const int top = log2_floor(magnitude) + unit, last = std::max(std::max(top, -126) - sum_bits, -149), drop = last - unit;
  std::uint64_t kept = magnitude, lost = 0;  // in units of 2^last; `lost` in halves of it, 1 for less
  if (drop > 0) {
    kept = drop < 64 ? magnitude >> drop : 0;
    const bool half = drop <= 64 && (magnitude >> (drop - 1) & 1) != 0;
    const bool more = drop > 64 || (magnitude & ((std::uint64_t{1} << (drop - 1)) - 1)) != 0;
    lost = half ? (more ? 3 : 2) : more ? 1 : 0;
    if (rules.nearest_sum && (lost == 3 || (lost == 2 && (kept & 1) != 0))) ++kept;
    if (rules.floor_sum && negative && lost != 0) ++kept;
  } else {
    kept <<= -drop;
  }
  if (kept == 0) return negative && rules.minus_zero_from_underflow ? 0x80000000u : 0;
  // To fp32's own grid: kept * 2^last with at most 24 bits.
  const int exponent = log2_floor(kept) + last;
  if (exponent > 127) return sign | (rules.saturates ? 0x7F7FFFFFu : 0x7F800000u);
  if (exponent < -126) return rules.flushed_results ? 0 : sign | static_cast<std::uint32_t>(kept << (last + 149));
  const int shift = log2_floor(kept) - 23;
  const std::uint64_t mantissa = shift >= 0 ? kept >> shift : kept << -shift;
  return sign | static_cast<std::uint32_t>(exponent + 127) << 23 | (static_cast<std::uint32_t>(mantissa) & 0x7FFFFFu);
}

/// What is not finite among products and accumulator.
struct Specials {
  bool nan = false, positive = false, negative = false;

  void add(const Number& number) {
    if (number.kind == Number::nan) nan = true;
    if (number.kind == Number::infinite) (number.negative ? negative : positive) = true;
  }
  /// True, and the bits, where they decide.
  bool decide(const Rules& rules, std::uint32_t& bits) const {
    if (nan || (positive && negative && !rules.infinities_of_both_signs_are_one)) return bits = rules.nan, true;
    if (positive) return bits = 0x7F800000u, true;
    if (negative) return bits = 0xFF800000u, true;
    return false;
  }
};

/// The largest exponent, and the sum.
struct Window {
  const Instruction& instruction;
  const Rules& rules;
  int top;

  Window(const Instruction& i, const Rules& r) : instruction(i), rules(r), top(r.no_floor ? -100000 : i.floor + r.floor) {}
  void joins(int exponent) { top = std::max(top, exponent); }
  void accumulator_joins(const Number& c) {
    if (c.zero()) return;
    if (!rules.far_accumulator_only || c.exponent >= top + 20) joins(c.exponent);
  }
  std::uint32_t sum(const Addends& addends, const Number& c) const {
    const int unit = top - instruction.addend_bits - rules.addend_bits;
    const Addend own{c.negative, static_cast<std::uint64_t>(c.significand), c.exponent, c.fraction};
    std::int64_t total = cut(own, unit, rules);
    bool all_negative = c.negative;
    for (const Addend& addend : addends) {
      total += cut(addend, unit, rules);
      all_negative = all_negative && (addend.negative || addend.significand == 0);
    }
    return rounded(total, unit, all_negative, instruction.sum_bits, rules);
  }
};

/// Products of two runs of codes; the operands decoded by `decoded`.
inline std::uint32_t link(const Instruction& instruction, const Number* a, const Number* b, int n, const Number& scale_a,
                          const Number& scale_b, std::uint32_t accumulator, const Rules& rules) {
  const Number c = decoded(Code::f32, accumulator, rules);
  Specials specials;
  specials.add(c);
  specials.nan = specials.nan || scale_a.kind == Number::nan || scale_b.kind == Number::nan;
  Window window(instruction, rules);
  const int scale = instruction.scale == Scale::none ? 0 : scale_a.exponent + scale_b.exponent;
  Addends addends;
  for (int i = 0; i < n; ++i) {
    const Number &x = a[i], &y = b[i];
    const bool negative = x.negative != y.negative;
    if (x.kind == Number::nan || y.kind == Number::nan) {
      specials.nan = true;
    } else if (x.kind == Number::infinite || y.kind == Number::infinite) {
      if (x.zero() || y.zero()) {
        specials.nan = specials.nan || !rules.infinity_times_zero_is_zero;
      } else {
        (negative ? specials.negative : specials.positive) = true;
      }
    } else {
      const auto significand = static_cast<std::uint64_t>(x.significand * y.significand);
      const int exponent = x.exponent + y.exponent + scale, fraction = x.fraction + y.fraction;
      if (significand != 0 || rules.zero_factors_in_e)
        window.joins(rules.value_of_product_in_e && significand != 0 ? log2_floor(significand) + exponent - fraction : exponent);
      addends.add({negative, significand, exponent, fraction});
    }
  }
  std::uint32_t bits = 0;
  if (specials.decide(rules, bits)) return bits;
  window.accumulator_joins(c);
  return window.sum(addends, c);
}

/// fp4 in groups.
inline std::uint32_t grouped(const Instruction& instruction, const Number* a, const Number* b, const Number* scale_a, const Number* scale_b,
                             std::uint32_t accumulator, const Rules& rules) {
  const Number c = decoded(Code::f32, accumulator, rules);
  Specials specials;
  specials.add(c);
  Window window(instruction, rules);
  Addends addends;
  for (int begin = 0; begin < instruction.k; begin += rules.group) {
    const Number &x = scale_a[begin / instruction.scale_block], &y = scale_b[begin / instruction.scale_block];
    if (x.kind == Number::nan || y.kind == Number::nan) specials.nan = true;
    std::int64_t sum = 0;
    bool some = false;
    for (int k = begin; k < begin + rules.group; ++k) {
      const std::int64_t product = a[k].significand * b[k].significand * (1 << (a[k].exponent + b[k].exponent));
      sum += a[k].negative != b[k].negative ? -product : product;
      some = some || product != 0;
    }
    const auto significand = static_cast<std::uint64_t>(x.significand * y.significand);
    const int exponent = x.exponent + y.exponent, fraction = x.fraction + y.fraction;
    const std::uint64_t value = significand * static_cast<std::uint64_t>(sum < 0 ? -sum : sum);  // in 2^(exponent - fraction - 2)
    const bool counts =
        (some || rules.zero_group_in_e) && (significand != 0 || rules.zero_scale_in_e) && (sum != 0 || !rules.cancelled_group_out || !some);
    if (counts) {
      int at = exponent;
      if (rules.scale_significand_in_e && significand != 0) at += log2_floor(significand) - fraction;
      if (rules.value_of_group_in_e && value != 0) at = log2_floor(value) + exponent - fraction - 2;
      window.joins(at);
    }
    addends.add({(sum < 0) != (x.negative != y.negative), value, exponent, fraction + 2});
  }
  std::uint32_t bits = 0;
  if (specials.decide(rules, bits)) return bits;
  window.accumulator_joins(c);
  return window.sum(addends, c);
}

/// Decoded operands of one instruction: k numbers, and the scales of their blocks (one of 1 where there are none).
struct Operand {
  std::vector<Number> numbers, scales;
};

inline std::uint32_t step(const Instruction& instruction, const Operand& a, const Operand& b, std::uint32_t accumulator,
                          const Rules& rules = {}) {
  if (instruction.grouped)
    return grouped(instruction, a.numbers.data(), b.numbers.data(), a.scales.data(), b.scales.data(), accumulator, rules);
  const int length = rules.link != 0 ? rules.link : instruction.link;
  for (int begin = 0; begin < instruction.k; begin += length)
    accumulator = link(instruction, a.numbers.data() + begin, b.numbers.data() + begin, std::min(length, instruction.k - begin),
                       a.scales[0], b.scales[0], accumulator, rules);
  return accumulator;
}

}  // namespace dodona::integer_steps
