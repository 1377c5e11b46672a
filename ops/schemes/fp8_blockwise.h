// fp8 products with a scale for each 1 x 128 of A and each 128 x 128 of B: what the single and the grouped kernels share.
#pragma once

#include <string>

#include "core/define.h"
#include "ops/sums/products.h"
#include "ops/tiles/panel/panel.h"

namespace dodona::ops {

inline constexpr std::int64_t fp8_scale_block = 128;

/// One product: a [M, K] with its rows dense, b [K, N] with its columns dense, a_scales [M, K/128] and b_scales [K/128, N/128], of any
/// strides.
struct BlockScaledFp8 {
  Tensor a, b, a_scales, b_scales;
};

/// The contract's words on the sum acc of one output and its budget.
inline const std::string block_scaled_sum_contract = R"(
For each 128 of K, ascending: t = sum of the products (exact in fp32), s = fl32(scale_a * scale_b), acc = fma(t, s, acc) in fp32 from
+0; out = rn(acc), to nearest even. NaN and infinities follow IEEE. Budget of t: four steps of the H200's fp8 tensor core, as in
bmm_fp8, and at least 128 units of 2^-24 of the larger of two sums, of its positive products and of its negative ones; times |s|, and
3 units of |t s| for s and for those who multiply with one scale after the other (all of t s where one of these products is denormal).
Then K/128 units of the larger of two sums, of all positive t s and of all negative ones, with their budgets: one rounding each, in any
order, for kernels that split K. Where these sums or products are beyond fp32, nothing is compared.)";

/// Its first output is element `first` of the op's output.
inline Product block_scaled_product(const BlockScaledFp8& p, std::int64_t first = 0) {
  Product product = batched_products(batch_of_one(p.a), batch_of_one(p.b)).front();
  product.a.scales = linear_scales(p.a_scales, 1, fp8_scale_block);
  product.b.scales = linear_scales(p.b_scales.transpose(0, 1), fp8_scale_block, fp8_scale_block);
  product.first = first;
  return product;
}

/// In fast mode; `out` [M, N] is contiguous.
inline PanelProduct block_scaled_panel(const BlockScaledFp8& p, const Tensor& out) {
  const std::int64_t n = p.b.size(1), k = p.a.size(1);
  PanelProduct product{.m = p.a.size(0), .n = n, .k = k};
  product.a = {p.a.as<std::byte>(), k, 0, p.a.dtype()};
  product.b = {p.b.as<std::byte>(), k, 0, p.b.dtype()};
  product.block = fp8_scale_block;
  product.a_scales = {p.a_scales.as<float>(), 1, p.a_scales.stride(0), p.a_scales.stride(1)};
  product.b_scales = {p.b_scales.as<float>(), fp8_scale_block, p.b_scales.stride(1), p.b_scales.stride(0)};
  product.epilogue.out_type = out.dtype();
  product.epilogue.out = out.as<std::byte>();
  product.epilogue.out_stride = n;
  return product;
}

}  // namespace dodona::ops
