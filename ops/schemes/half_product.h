// What linear and bmm share: products of matrices that no scales belong to, in all modes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/define.h"
#include "ops/sums/products.h"
#include "ops/sums/split_k.h"
#include "ops/tiles/dot/dot.h"

namespace dodona::ops {

/// a [L, M, K] times b [L, K, N], as views of arguments of these names.
struct HalfProduct {
  DotProduct operands;
  std::string_view a_name, b_name;
  const Tensor& out;  ///< as the op has it
  std::string_view out_name;
  DType out_dtype;
  SplitK split;
};

/// Throws Error where out_dtype is neither f32 nor that of a, or K cannot be split so.
void check_half_product(const HalfProduct& product);
void golden_half_product(const HalfProduct& product, const Exec& exec, Reference* reference);
void half_product_on_gpu(const HalfProduct& product, const Exec& exec);
std::optional<Refusal> unsupported_half_product(const HalfProduct& product, Mode mode);

/// Of an op, given what its calls multiply.
template <class Op, HalfProduct (*of)(const Op&)>
Implementation<Op> half_product_functions() {
  Implementation<Op> all;
  all.contract = std::string(half_sum_contract) + std::string(split_k_contract);
  all.golden = [](const Op& op, const Exec& exec, Reference* reference) { golden_half_product(of(op), exec, reference); };
  all.fast = [](const Op& op, const Exec& exec) { dot_multiply(of(op).operands, exec); };
  all.hopper = all.blackwell = all.ada = all.ampere = [](const Op& op, const Exec& exec) { half_product_on_gpu(of(op), exec); };
  all.unsupported = [](const Op& op, Mode mode) { return unsupported_half_product(of(op), mode); };
  all.check = [](const Op& op) { check_half_product(of(op)); };
  all.flops = [](const Op& op) { return dot_flops(of(op).operands); };
  return all;
}

}  // namespace dodona::ops
