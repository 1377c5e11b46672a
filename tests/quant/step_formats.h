// The instructions whose steps are recorded, as this library has them and as the integers of integer_steps.h have them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "quant/e2m1.h"
#include "quant/tensor_core/step.h"
#include "tests/quant/integer_steps.h"

namespace dodona::steps {

namespace tc = quant::tensor_core;
using integer_steps::Code, integer_steps::Instruction, integer_steps::Rules, integer_steps::Scale;

/// One instruction: `unit`, or `fp4`.
struct Format {
  std::string_view name;
  const tc::MmaSpec* unit;
  const tc::Fp4Spec* fp4;
  Instruction integers;

  int k() const { return integers.k; }
  bool scaled() const { return integers.scale != Scale::none; }
  int scales() const { return scaled() ? k() / integers.scale_block : 0; }
};

inline constexpr Format formats[] = {
    {"sm80_bf16", &tc::sm80_half, nullptr, {Code::bf16, Code::bf16, 16, 8, 24, 23, -132}},
    {"sm89_e4m3", &tc::sm89_fp8, nullptr, {Code::e4m3, Code::e4m3, 32, 16, 13, 13, -132}},
    {"sm89_e5m2", &tc::sm89_fp8, nullptr, {Code::e5m2, Code::e5m2, 32, 16, 13, 13, -132}},
    {"sm90_bf16", &tc::half_mma, nullptr, {Code::bf16, Code::bf16, 16, 16, 25, 23, -133}},
    {"sm90_f16", &tc::half_mma, nullptr, {Code::f16, Code::f16, 16, 16, 25, 23, -133}},
    {"sm90_e4m3", &tc::fp8_wgmma, nullptr, {Code::e4m3, Code::e4m3, 32, 32, 13, 13, -133}},
    {"sm90_e5m2", &tc::fp8_wgmma, nullptr, {Code::e5m2, Code::e5m2, 32, 32, 13, 13, -133}},
    {"sm90_e4m3_e5m2", &tc::fp8_wgmma, nullptr, {Code::e4m3, Code::e5m2, 32, 32, 13, 13, -133}},
    {"sm100_bf16", &tc::half_mma, nullptr, {Code::bf16, Code::bf16, 16, 16, 25, 23, -133}},
    {"sm100_f16", &tc::half_mma, nullptr, {Code::f16, Code::f16, 16, 16, 25, 23, -133}},
    {"sm100_e4m3", &tc::sm100_fp8, nullptr, {Code::e4m3, Code::e4m3, 32, 32, 25, 23, -133}},
    {"sm100_e5m2", &tc::sm100_fp8, nullptr, {Code::e5m2, Code::e5m2, 32, 32, 25, 23, -133}},
    {"sm100_mxf8_e4m3", &tc::sm100_fp8, nullptr, {Code::e4m3, Code::e4m3, 32, 32, 25, 23, -133, false, Scale::ue8m0, 32}},
    {"sm100_mxf8_e5m2", &tc::sm100_fp8, nullptr, {Code::e5m2, Code::e5m2, 32, 32, 25, 23, -133, false, Scale::ue8m0, 32}},
    {"sm100_mxf8_e4m3_e2m1", &tc::sm100_fp8, nullptr, {Code::e4m3, Code::e2m1, 32, 32, 25, 23, -133, false, Scale::ue8m0, 32}},
    {"sm100_mxf4", nullptr, &tc::sm100_mxf4, {Code::e2m1, Code::e2m1, 64, 64, 35, 23, -139, true, Scale::ue8m0, 32}},
    {"sm100_nvf4", nullptr, &tc::sm100_nvf4, {Code::e2m1, Code::e2m1, 64, 64, 35, 23, -139, true, Scale::ue4m3, 16}},
};

inline void PrintTo(const Format& format, std::ostream* stream) {
  *stream << format.name;
}

inline const Format* find(std::string_view name) {
  const auto at = std::find_if(std::begin(formats), std::end(formats), [&](const Format& format) { return format.name == name; });
  return at == std::end(formats) ? nullptr : at;
}

/// One operand of one step, a code each.
struct Codes {
  std::vector<std::uint32_t> numbers;
  std::vector<std::uint8_t> scales;
};

inline integer_steps::Operand operand_of(const Format& format, Code code, const Codes& codes, const Rules& rules = {}) {
  integer_steps::Operand operand;
  for (const std::uint32_t bits : codes.numbers) operand.numbers.push_back(integer_steps::decoded(code, bits, rules));
  for (const std::uint8_t bits : codes.scales) operand.scales.push_back(integer_steps::decoded(format.integers.scale, bits, rules));
  if (!format.scaled()) operand.scales.emplace_back();
  return operand;
}

inline std::uint32_t by_integers(const Format& format, const Codes& a, const Codes& b, std::uint32_t c, const Rules& rules = {}) {
  return integer_steps::step(format.integers, operand_of(format, format.integers.a, a, rules),
                             operand_of(format, format.integers.b, b, rules), c, rules);
}

inline tc::Factor factor_of(const Format& format, Code code, std::uint32_t bits) {
  switch (code) {
    case Code::bf16: return tc::decode_factor(*format.unit, DType::bf16, bits);
    case Code::f16: return tc::decode_factor(*format.unit, DType::f16, bits);
    case Code::e4m3:
      return format.scaled() ? tc::decode_factor(tc::SmallFloat::e4m3, bits) : tc::decode_factor(*format.unit, DType::f8_e4m3, bits);
    case Code::e5m2:
      return format.scaled() ? tc::decode_factor(tc::SmallFloat::e5m2, bits) : tc::decode_factor(*format.unit, DType::f8_e5m2, bits);
    case Code::e3m2: return tc::decode_factor(tc::SmallFloat::e3m2, bits);
    case Code::e2m3: return tc::decode_factor(tc::SmallFloat::e2m3, bits);
    default: return tc::decode_factor(tc::SmallFloat::e2m1, bits);
  }
}

/// mma_step or fp4_step, as often as the instruction is a chain of them.
inline std::uint32_t by_definition(const Format& format, const Codes& a, const Codes& b, std::uint32_t c) {
  float accumulator = std::bit_cast<float>(c);
  if (format.fp4 != nullptr) {
    std::array<std::int8_t, 64> x{}, y{};
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = quant::e2m1_doubled[a.numbers[k]];
      y[k] = quant::e2m1_doubled[b.numbers[k]];
    }
    return std::bit_cast<std::uint32_t>(tc::fp4_step(*format.fp4, {x, a.scales}, {y, b.scales}, accumulator));
  }
  std::array<tc::Factor, 32> x{}, y{};
  const auto products = static_cast<std::size_t>(format.unit->products);
  for (std::size_t begin = 0; begin < a.numbers.size(); begin += products) {
    for (std::size_t i = 0; i < products; ++i) {
      x[i] = factor_of(format, format.integers.a, a.numbers[begin + i]);
      y[i] = factor_of(format, format.integers.b, b.numbers[begin + i]);
    }
    accumulator = tc::mma_step(*format.unit, {x.data(), products}, {y.data(), products}, accumulator,
                               format.scaled() ? a.scales[0] : tc::ue8m0_one, format.scaled() ? b.scales[0] : tc::ue8m0_one);
  }
  return std::bit_cast<std::uint32_t>(accumulator);
}

}  // namespace dodona::steps
