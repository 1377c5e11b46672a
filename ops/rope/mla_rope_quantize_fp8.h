#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Rope on the rope parts of query and key, and all four MLA parts in fp8:
/// q_rope_out = fp8(rope(q_rope) * quant_scale_q), q_nope_out = fp8(q_nope * quant_scale_q), and k_* likewise with quant_scale_kv.
/// The scales multiply; see ops/rows/rotation/rotate.h for the rotation.
/// Source: FlashInfer `mla_rope_quantize_fp8` (`RopeQuantizeKernel`).
struct MlaRopeQuantizeFp8 {
  Tensor q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids;
  Tensor q_rope_out, k_rope_out, q_nope_out, k_nope_out;
  bool is_neox = true;
  DType quantize_dtype = f8_e4m3;
  double quant_scale_q = 1, quant_scale_kv = 1;
  bool enable_pdl = false;

  static constexpr OpInfo info{"mla_rope_quantize_fp8", Category::rope, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, is_neox, quantize_dtype, quant_scale_q, quant_scale_kv, q_rope_out, "
        "k_rope_out, q_nope_out, k_nope_out, enable_pdl");
    op.in("q_rope", q_rope, {bf16, f16}, "T N Dr").doc("unrotated; tokens and heads may be strided");
    op.in("k_rope", k_rope, same_as("q_rope"), "T Dr").doc("unrotated; one key head, as MLA has it");
    op.in("q_nope", q_nope, same_as("q_rope"), "T N Dn").doc("not rotated; may be 0 wide");
    op.in("k_nope", k_nope, same_as("q_rope"), "T Dn").doc("not rotated; may be 0 wide");
    op.in("cos_sin_cache", cos_sin_cache, {f32}, "P Dr")
        .role(Role::cos_sin)
        .layout(Layout::contiguous)
        .doc("Dr/2 cosines, then Dr/2 sines a row");
    op.in("pos_ids", pos_ids, {i32, i64}, "T").role(Role::positions, "P").layout(Layout::contiguous).doc("row of the table for each token");
    op.attr("is_neox", is_neox).doc("pairs (i, i + Dr/2); false: pairs (2i, 2i + 1), as DeepSeek has them");
    op.dtype_attr("quantize_dtype", quantize_dtype, {f8_e4m3, f8_e5m2}).doc("element type of all outputs");
    op.attr("quant_scale_q", quant_scale_q).doc("multiplies the query before fp8; narrowed to fp32");
    op.attr("quant_scale_kv", quant_scale_kv).doc("multiplies the key before fp8; narrowed to fp32");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.out("q_rope_out", q_rope_out, dtype_of_attr("quantize_dtype"), "T N Dr")
        .judged(Judge::code)
        .doc("often columns 512 to 575 of wider rows");
    op.out("k_rope_out", k_rope_out, dtype_of_attr("quantize_dtype"), "T Dr").judged(Judge::code).doc("rows may be slices of wider ones");
    op.out("q_nope_out", q_nope_out, dtype_of_attr("quantize_dtype"), "T N Dn")
        .judged(Judge::code)
        .doc("often columns 0 to 511 of wider rows");
    op.out("k_nope_out", k_nope_out, dtype_of_attr("quantize_dtype"), "T Dn").judged(Judge::code).doc("rows may be slices of wider ones");
    op.symbol("Dr", {.multiple_of = 2, .minimum = 2});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
