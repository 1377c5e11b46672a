// What alternative implementations share: arguments by name, elements as floats, sums and a few functions in plain fp32.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dodona/op.h"
#include "oracle/alternatives/alternative.h"

namespace dodona::oracle::alternatives {

struct Call {
  const Op& op;
  const Arguments& arguments;
  Way way;

  const Tensor* find(std::string_view name) const { return arguments.find(name); }
  const Tensor& tensor(std::string_view name) const { return *arguments.find(name); }
  /// The attribute, or its default.
  const AttrValue& attr(std::string_view name) const;
  double number(std::string_view name) const;
  std::int64_t integer(std::string_view name) const { return static_cast<std::int64_t>(number(name)); }
  bool flag(std::string_view name) const { return std::get<bool>(attr(name)); }
  bool is(std::string_view name, std::string_view word) const { return std::get<std::string>(attr(name)) == word; }
};

/// All elements, row-major.
std::vector<float> floats(const Tensor& tensor);
/// Of a type of 8, 32 or 64 bits.
std::vector<std::int64_t> integers(const Tensor& tensor);
/// Rounded to nearest even, overflow to infinity.
void store(const Tensor& tensor, std::int64_t linear, float value);
/// Saturating, as device conversions to fp8 are.
void store_fp8(const Tensor& tensor, std::int64_t linear, float value);
float rounded(DType type, float value);

/// In interleaved chains, then a tree. `chains` is a power of two.
float strided_sum(std::span<const float> terms, std::size_t chains);
/// From the end, in one chain.
float reversed_sum(std::span<const float> terms);

/// 2^x, within 2^-22 relative.
float exp2(float x);
/// 2^(x * log2 e).
float exp(float x);
/// fl32 of the logarithm.
float log2(float x);
float log(float x);

}  // namespace dodona::oracle::alternatives
