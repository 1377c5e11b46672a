#include "model/layer/shape_book.h"

#include "helpers.h"

namespace dodona::model {
namespace {

using testing::expect_error;

std::string shapes(const std::vector<BookShape>& list) {
  std::string text;
  for (const BookShape& shape : list)
    text += (text.empty() ? "" : ", ") + (shape.label.empty() ? "" : shape.label + ":") + shape.with_numbers;
  return text;
}
std::string line(const ShapeBook& book, Part part, const char* op, const char* note = "") {
  const BookEntry& entry = book.at(part, op, note);
  return shapes(entry.inputs) + " -> " + shapes(entry.outputs);
}

const ModelConfig& tables() {
  static const ModelConfig config = preset("r1-nvfp4-tables");
  return config;
}

TEST(ShapeBook, DecodeHoldsTheNumbersOfTheExecutionDocument) {
  const ShapeBook book(tables(), Phase::decode);
  const Part a = Part::attention;
  EXPECT_EQ(line(book, a, "self.fused_qkv_a_proj_with_mqa()"), "[B, 7168] -> [B, 2112]");
  EXPECT_EQ(line(book, a, "self.q_a_layernorm()"), "[B, 1536] -> [B, 1536]");
  EXPECT_EQ(line(book, a, "self.kv_a_layernorm()"), "[B, 512] -> [B, 512]");
  EXPECT_EQ(line(book, a, "self.q_b_proj()"), "[B, 1536] -> [B, 24576]");
  EXPECT_EQ(line(book, a, "bmm_fp8()", "q_nope * w_kc"), "q_nope:[128, B, 128], w_kc:[128, 128, 512] -> [128, B, 512]");
  EXPECT_EQ(line(book, a, "self.rotary_emb()"), "q_pe:[B, 128, 64], k_pe:[B, 1, 64] -> q_pe:[B, 128, 64], k_pe:[B, 1, 64]");
  EXPECT_EQ(line(book, a, "self.attn_mqa()"), "q:[B, 128, 576], k_nope:[B, 1, 512], k_pe:[B, 1, 64] -> [B, 128, 512]");
  EXPECT_EQ(line(book, a, "bmm_fp8()", "attn_output * w_vc"), "attn:[128, B, 512], w_vc:[128, 512, 128] -> [128, B, 128]");
  EXPECT_EQ(line(book, a, "self.o_proj()"), "[B, 16384] -> [B, 7168]");
  EXPECT_EQ(line(book, Part::mlp_moe, "self.gate()"), "[B, 7168] -> [B, 256]");
  EXPECT_EQ(line(book, Part::mlp_moe, "self.topk()"), "[B, 256] -> topk_weights:[B, 8], topk_ids:[B, 8]");
  EXPECT_EQ(line(book, Part::mlp_dense, "self.gate_up_proj()"), "[B, 7168] -> [B, 4096]");
  EXPECT_EQ(line(book, Part::mlp_dense, "self.down_proj()"), "[B, 2048] -> [B, 7168]");
  EXPECT_EQ(line(book, Part::experts_cutlass, "prepare_moe_input"), "[B, 7168], topk_ids:[B, 8] -> permuted:[B*8, 7168]");
  EXPECT_EQ(line(book, Part::experts_cutlass, "cutlass_fp4_group_mm", "gate_up"), "[B*8, 7168] -> [B*8, 4096]");
  EXPECT_EQ(line(book, Part::experts_cutlass, "cutlass_fp4_group_mm", "down"), "[B*8, 2048] -> [B*8, 7168]");
  EXPECT_EQ(line(book, Part::experts_cutlass, "apply_shuffle_mul_sum"), "[B*8, 7168], topk_weights:[B, 8] -> [B, 7168]");
}

TEST(ShapeBook, PrefillHoldsTheNumbersOfTheExecutionDocument) {
  const ShapeBook book(tables(), Phase::prefill);
  const Part a = Part::attention;
  EXPECT_EQ(line(book, a, "self.fused_qkv_a_proj_with_mqa()"), "[B*S, 7168] -> [B*S, 2112]");
  EXPECT_EQ(line(book, a, "self.kv_b_proj()"), "[B*S, 512] -> [B*S, 32768]");
  EXPECT_EQ(line(book, a, "self._concat_and_cast_mha_k()"), "k_nope:[B*S, 128, 128], k_pe:[B*S, 1, 64] -> [B*S, 128, 192]");
  EXPECT_EQ(line(book, a, "self.attn_mha()"), "q:[B*S, 128, 192], k:[B*S, 128, 192], v:[B*S, 128, 128] -> [B*S, 128, 128]");
  EXPECT_EQ(line(book, a, "self.o_proj()"), "[B*S, 16384] -> [B*S, 7168]");
  EXPECT_EQ(line(book, Part::mlp_moe, "self.topk()"), "[B*S, 256] -> topk_weights:[B*S, 8], topk_ids:[B*S, 8]");
  EXPECT_EQ(line(book, Part::attention_chunks, "self.attn_mha()"),
            "q:[B*S, 128, 192], k:[n, 128, 192], v:[n, 128, 128] -> o:[B*S, 128, 128], lse:[B*S, 128]");
}

TEST(ShapeBook, NextnHoldsTheNumbersOfTheExecutionDocument) {
  const ShapeBook book(tables(), Phase::nextn);
  EXPECT_EQ(line(book, Part::nextn, "self.embed_tokens()"), "[B] -> [B, 7168]");
  EXPECT_EQ(line(book, Part::nextn, "self.eh_proj()"), "[B, 14336] -> [B, 7168]");
  EXPECT_EQ(line(book, Part::nextn, "self.shared_head.norm()"), "[B, 7168] -> [B, 7168]");
  EXPECT_EQ(line(book, Part::attention, "self.q_b_proj()"), "[B, 1536] -> [B, 24576]");
}

TEST(ShapeBook, SymbolsAreThoseOfTheDocument) {
  const ShapeBook book(tables(), Phase::decode);
  EXPECT_EQ(book.at(Part::attention, "self.fused_qkv_a_proj_with_mqa()").outputs[0].symbolic, "[B, Lq + Lkv + Dr]");
  EXPECT_EQ(book.at(Part::attention, "self.q_b_proj()").outputs[0].symbolic, "[B, Nh * Dq]");
  EXPECT_EQ(ShapeBook(tables(), Phase::prefill).at(Part::mlp_dense, "self.act_fn()").inputs[0].symbolic, "[B*S, 2 * I]");
}

TEST(ShapeBook, KernelsOfTheTablesAreTheDocumentsOwn) {
  const ShapeBook book(tables(), Phase::decode);
  EXPECT_EQ(book.at(Part::attention, "self.fused_qkv_a_proj_with_mqa()").kernels, "dsv3_fused_a_gemm (B<=16) / cutlass_scaled_fp4_mm");
  EXPECT_EQ(book.at(Part::attention, "self.q_b_proj()").kernels, "cutlass_scaled_fp4_mm");
  EXPECT_EQ(book.at(Part::attention, "bmm_fp8()").kernels, "bmm_fp8");
  EXPECT_EQ(book.at(Part::mlp_moe, "self.gate()").kernels, "dsv3_router_gemm (B<=16) / cutlass_scaled_fp4_mm");
  EXPECT_EQ(book.at(Part::mlp_moe, "self.shared_experts()").kernels, "cutlass_scaled_fp4_mm + silu_and_mul");
}

TEST(ShapeBook, TheKernelFollowsTheWeightsAndTheBatch) {
  const ModelConfig config = preset("r1-nvfp4");
  const ShapeBook few(config, Phase::decode, {.batch = 16}), many(config, Phase::decode, {.batch = 17});
  EXPECT_EQ(few.at(Part::attention, "self.fused_qkv_a_proj_with_mqa()").kernel, "dsv3_fused_a_gemm");
  EXPECT_EQ(many.at(Part::attention, "self.fused_qkv_a_proj_with_mqa()").kernel, "linear");
  EXPECT_EQ(few.at(Part::mlp_moe, "self.gate()").kernel, "dsv3_router_gemm");
  EXPECT_EQ(many.at(Part::mlp_moe, "self.gate()").kernel, "linear");
  EXPECT_EQ(few.at(Part::attention, "self.q_b_proj()").kernel, "linear");
  EXPECT_EQ(few.at(Part::attention, "self.o_proj()").kernel, "cutlass_scaled_fp4_mm");
  EXPECT_EQ(few.at(Part::attention, "bmm_fp8()").kernel, "bmm");
  // Those kernels read bf16 of R1's sizes only.
  EXPECT_EQ(ShapeBook(tables(), Phase::decode, {.batch = 4}).at(Part::mlp_moe, "self.gate()").kernel, "cutlass_scaled_fp4_mm");
  EXPECT_EQ(ShapeBook(preset("tiny"), Phase::decode, {.batch = 4}).at(Part::mlp_moe, "self.gate()").kernel, "linear");
}

TEST(ShapeBook, AFusedSharedExpertIsOneMoreColumn) {
  const ShapeBook book(tables(), Phase::decode, {.batch = 2, .fused_shared = true});
  EXPECT_EQ(line(book, Part::mlp_moe, "self.topk()"), "[2, 256] -> topk_weights:[2, 9], topk_ids:[2, 9]");
  EXPECT_EQ(line(book, Part::experts_cutlass, "cutlass_fp4_group_mm", "gate_up"), "[18, 7168] -> [18, 4096]");
}

TEST(ShapeBook, ALayersOwnPartIsChosen) {
  const ModelConfig config = preset("r1-nvfp4");
  EXPECT_EQ(line(ShapeBook(config, Phase::decode, {.batch = 1, .layer = 0}), Part::mlp_dense, "self.gate_up_proj()"),
            "[1, 7168] -> [1, 36864]");
  expect_error([&] { ShapeBook(config, Phase::decode, {.layer = 0}).at(Part::mlp_moe, "self.gate()"); }, ErrorCode::bad_value,
               {"self.gate()"});
  expect_error([&] { ShapeBook(config, Phase::decode, {.layer = 62}); }, ErrorCode::bad_value, {"layer 62"});
}

TEST(ShapeBook, CheckAcceptsTheBooksShapesAndNamesAWrongOne) {
  const ShapeBook book(tables(), Phase::decode, {.batch = 4});
  book.check(Part::attention, "self.q_b_proj()", {{"input", {4, 1536}}, {"output", {4, 24576}}, {"q_pe", {4, 128, 64}}});
  book.check(Part::attention, "bmm_fp8()", "attn_output * w_vc", {{"w_vc", {128, 512, 128}}});
  book.check(Part::kv_cache, "set_mla_kv_buffer()", {{"kv_buffer", {12345, 1, 576}}});
  expect_error(
      [&] {
        book.check(Part::attention, "self.q_b_proj()", {{"output", {4, 24575}}});
      },
      ErrorCode::bad_shape, {"self.q_b_proj(): output has shape [4, 24575], expected [B, Nh * Dq] = [4, 24576]"});
  expect_error([&] { book.check(Part::attention, "self.q_b_proj()", {{"input", {4, 1, 1536}}}); }, ErrorCode::bad_shape, {"[4, 1, 1536]"});
  expect_error(
      [&] {
        book.check(Part::kv_cache, "set_mla_kv_buffer()", {{"kv_buffer", {9, 1, 575}}});
      },
      ErrorCode::bad_shape, {"[slots, 1, 576]"});
  expect_error([&] { book.check(Part::attention, "self.q_b_proj()", {{"weight", {4}}}); }, ErrorCode::bad_value, {"'weight'"});
}

}  // namespace
}  // namespace dodona::model
