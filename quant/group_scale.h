// Scales of group quantizers (1 x 128 and alike, to e4m3 or int8): from the largest magnitude of a group to its stored scale, and from an
// element to the value that is then rounded. Upstream does this in several ways that differ in last bits; each is a recipe.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "quant/fp32_ops.h"
#include "quant/ue8m0.h"

namespace dodona::quant {

enum class ScaleRule {
  plain,      ///< any fp32 value
  ceil_log2,  ///< 2^ceil(log2(max(s, 1e-10))), correctly rounded logarithm
  ceil_bits,  ///< 2^e, e from the bits of s (`ceil_exponent_by_bits`)
};

enum class ScaleForm {
  divide,      ///< s = amax / max, value x / s
  reciprocal,  ///< s = amax / max, value x * (1/s)
  multiply,    ///< s = amax * fl32(1/max), value x * (max/amax), or x * 2^-e when the scale is a power of two
};

struct GroupRecipe {
  float amax_floor;
  ScaleForm form = ScaleForm::divide;
  ScaleRule rule = ScaleRule::plain;
  Fp32Ops ops = ieee_ops;
};

/// Source: DeepSeek inference `act_quant`; with `ceil_log2` its `scale_fmt="ue8m0"`.
inline constexpr GroupRecipe deepseek_act_quant{1e-4f};
/// Source: sgl-kernel `sgl_per_token_group_quant_8bit`, version 1 (rule plain or ceil_log2).
inline constexpr GroupRecipe sgl_group_quant_v1{1e-10f};
/// Source: sgl-kernel `sgl_per_token_group_quant_8bit`, version 2 (rule plain or ceil_bits).
inline constexpr GroupRecipe sgl_group_quant_v2{1e-10f, ScaleForm::multiply};

struct GroupScale {
  float scale;    ///< what is stored: the multiplier that dequantizes
  float operand;  ///< what elements are divided by (divide) or multiplied with (other forms)
};

/// 2^e made by shifting e + 127 into the exponent field, out of range values and all.
constexpr float power_of_two_by_bits(int e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

/// `largest` is the format's largest magnitude, 448 or 127.
inline GroupScale group_scale(float group_amax, float largest, const GroupRecipe& recipe) {
  const Fp32Ops& ops = recipe.ops;
  const float floored = group_amax > recipe.amax_floor ? group_amax : recipe.amax_floor;
  const bool by_product = recipe.form == ScaleForm::multiply;
  const float s = by_product ? ops.multiply(floored, 1.0f / largest) : ops.divide(floored, largest);
  if (recipe.rule == ScaleRule::plain) {
    if (by_product) return {s, ops.divide(largest, floored)};
    return {s, recipe.form == ScaleForm::divide ? s : ops.reciprocal(s)};
  }
  const int e = recipe.rule == ScaleRule::ceil_log2 ? ue8m0_ceil_log2(s) - 127 : ceil_exponent_by_bits(s);
  const float power = power_of_two_by_bits(e);
  return {power, recipe.form == ScaleForm::divide ? power : power_of_two_by_bits(-e)};
}

/// group_scale of many groups at once: `numbers` hold largest magnitudes and then operands. With plain scales, or powers by bits, in
/// correctly rounded operations these are loops that become vectors.
inline void group_scales(std::span<float> numbers, float largest, const GroupRecipe& recipe, std::span<float> scales) {
  const Fp32Ops& ops = recipe.ops;
  if (recipe.rule == ScaleRule::ceil_bits && recipe.form == ScaleForm::multiply && ops.multiply == multiply_ieee) {
    const float floor = recipe.amax_floor, inverse = 1.0f / largest;
    for (std::size_t g = 0; g < numbers.size(); ++g) {
      const float number = numbers[g];
      const int e = ceil_exponent_by_bits((number > floor ? number : floor) * inverse);
      scales[g] = power_of_two_by_bits(e);
      numbers[g] = power_of_two_by_bits(-e);
    }
    return;
  }
  const bool rounded = ops.reciprocal == reciprocal_ieee && ops.multiply == multiply_ieee;
  const bool by_product = recipe.form == ScaleForm::multiply, by_reciprocal = ops.divide == divide_by_reciprocal;
  const bool plain = recipe.rule == ScaleRule::plain && recipe.form != ScaleForm::divide && (by_product ? !by_reciprocal : true);
  if (!rounded || !plain || (!by_reciprocal && ops.divide != divide_ieee)) {
    for (std::size_t g = 0; g < numbers.size(); ++g) {
      const GroupScale of_group = group_scale(numbers[g], largest, recipe);
      scales[g] = of_group.scale;
      numbers[g] = of_group.operand;
    }
    return;
  }
  const float floor = recipe.amax_floor, inverse = 1.0f / largest;
  for (float& number : numbers) number = number > floor ? number : floor;
  if (by_product || by_reciprocal) {
    for (std::size_t g = 0; g < numbers.size(); ++g) scales[g] = numbers[g] * inverse;
  } else {
    for (std::size_t g = 0; g < numbers.size(); ++g) scales[g] = numbers[g] / largest;
  }
  if (by_product) {
    for (float& number : numbers) number = largest / number;
  } else {
    for (std::size_t g = 0; g < numbers.size(); ++g) numbers[g] = 1.0f / scales[g];
  }
}

/// The value that is clamped and rounded to a code.
inline float scaled_value(float x, const GroupScale& scale, const GroupRecipe& recipe) {
  return recipe.form == ScaleForm::divide ? recipe.ops.divide(x, scale.operand) : recipe.ops.multiply(x, scale.operand);
}

}  // namespace dodona::quant
