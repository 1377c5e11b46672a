#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Product of FP4 matrices: out = alpha * a b, both with a scale for every 16 elements along K in e4m3 (NVFP4), or for every 32 in ue8m0
/// (MXFP4).
/// Source: FlashInfer `mm_fp4`.
struct MmFp4 {
  Tensor a, b, a_descale, b_descale, alpha, out;
  DType out_dtype = bf16;
  std::int64_t block_size = 16;
  bool use_8x4_sf_layout = false, use_nvfp4 = true;

  static constexpr OpInfo info{"mm_fp4", Category::gemm, Source::flashinfer};
  void describe(auto& op) {
    op.signature("a, b, a_descale, b_descale, alpha, out_dtype, out, block_size, use_8x4_sf_layout, use_nvfp4");
    op.in("a", a, {u8}, "M K/2").codes(f4_e2m1).layout(Layout::contiguous).doc("left matrix");
    op.in("b", b, {u8}, "K/2 N").codes(f4_e2m1).layout(Layout::column_major).doc("right matrix, one row for each output column in memory");
    op.in("a_descale", a_descale, {f8_e4m3, f8_e8m0, u8},
          "use_8x4_sf_layout*align(M,8)+(1-use_8x4_sf_layout)*align(M,128) align(K/block_size,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("block scales in tiles of 128 x 4, or of 8 x 4; bytes are what use_nvfp4 says; the padding may hold anything");
    op.in("b_descale", b_descale, same_as("a_descale"), "align(K/block_size,4) align(N,128)")
        .layout(Layout::column_major)
        .role(Role::scale)
        .doc("block scales of b's rows in memory, in tiles of 128 x 4, transposed as b is");
    op.in("alpha", alpha, {f32}, "1 | ").role(Role::scale).scales("out", 0, 0).optional().doc("factor of the whole product; 1 by default");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16}).doc("element type of out");
    op.attr("block_size", block_size, between(16, 32)).doc("elements that share a scale: 16 of NVFP4, 32 of MXFP4");
    op.attr("use_8x4_sf_layout", use_8x4_sf_layout).doc("a_descale lies in tiles of 8 x 4");
    op.attr("use_nvfp4", use_nvfp4).doc("scales are e4m3, else ue8m0");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("K", {.multiple_of = 32});
    op.symbol("N", {.multiple_of = 32});
  }
};

}  // namespace dodona::ops
