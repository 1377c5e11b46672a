// FlashInfer's MLA over pages: what its known defects excuse, and what they do not.
#include <gtest/gtest.h>

#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

const NamedOp op{"batch_mla_paged_attention"};

constexpr std::int64_t heads = 40, latent = 512, page = 16;

/// The last `queries` of `tokens` tokens of one request, all of whose scores are 0: every token that is seen weighs the same.
Arguments equal_scores(std::int64_t queries, std::int32_t tokens, bool causal) {
  Arguments a;
  a.set("q_nope", filled(DType::bf16, {queries, heads, latent}, 0)), a.set("q_pe", filled(DType::bf16, {queries, heads, 64}, 0));
  Tensor ckv = normal(DType::bf16, {5, page, latent}, "ckv");
  quant::set(ckv, 64 * latent, 256);
  a.set("ckv_cache", ckv), a.set("kpe_cache", normal(DType::bf16, {5, page, 64}, "kpe"));
  a.set("qo_indptr", ints({0, static_cast<std::int32_t>(queries)})), a.set("kv_indptr", ints({0, 5}));
  a.set("kv_indices", ints({0, 1, 2, 3, 4})), a.set("kv_len_arr", ints({tokens}));
  a.set_attr("causal", causal), a.set_attr("sm_scale", 0.1);
  return a;
}

TEST(BatchMlaPagedAttention, AQueryOfTwoBlocksMayMissItsOwnKeyAtATilesBeginningAndNothingElse) {
  const double without = quant::get(op.outputs(equal_scores(1, 64, false), in_mode(Mode::golden))[0].second, 0);
  for (const auto& [tokens, outcome] : {std::pair{65, oracle::Outcome::known_defect}, {66, oracle::Outcome::fail}}) {
    const Arguments a = equal_scores(2, tokens, true);
    auto outputs = op.outputs(a, in_mode(Mode::golden));
    const std::int64_t place = heads * latent;
    const double right = quant::get(outputs[0].second, place);
    EXPECT_GT(right - without, 3);
    quant::set(outputs[0].second, place, without);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, outcome) << tokens;
    quant::set(outputs[0].second, place, (right + without) / 2);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "a number is none of the others'";
  }
}

Arguments mla(const std::vector<std::int32_t>& queries, const std::vector<std::int32_t>& tokens, std::int64_t of_heads, bool causal) {
  std::vector<std::int32_t> ends{0}, pages{0};
  for (const std::int32_t n : queries) ends.push_back(ends.back() + n);
  for (const std::int32_t n : tokens) pages.push_back(pages.back() + (n + 15) / 16);
  std::vector<std::int32_t> order;
  for (std::int32_t i = pages.back(); i > 0; --i) order.push_back(i - 1);
  Arguments a;
  a.set("q_nope", normal(DType::bf16, {ends.back(), of_heads, latent}, "q_nope"));
  a.set("q_pe", normal(DType::bf16, {ends.back(), of_heads, 64}, "q_pe"));
  a.set("ckv_cache", normal(DType::bf16, {pages.back(), page, latent}, "ckv"));
  a.set("kpe_cache", normal(DType::bf16, {pages.back(), page, 64}, "kpe"));
  a.set("qo_indptr", ints(ends)), a.set("kv_indptr", ints(pages)), a.set("kv_indices", ints(order)), a.set("kv_len_arr", ints(tokens));
  a.set_attr("causal", causal), a.set_attr("sm_scale", 0.03), a.set_attr("return_lse", true), a.set_attr("backend", "fa2");
  return a;
}

TEST(BatchMlaPagedAttention, Fa2IsWithinTheBudgetAtTheEdgesOfItsTilesAndSplits) {
  for (const bool causal : {false, true})
    for (const std::int64_t of_heads : {2, 16, 64}) {
      const Arguments a = mla({1, 2, 0, 3, 1}, {1, 65, 3, 33, 192}, of_heads, causal);
      EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(Mode::hopper))), 0) << of_heads;
    }
}

TEST(BatchMlaPagedAttention, Fa2LosesTheOwnKeyOfATokenOfTwoBlocksInHopperMode) {
  // Two blocks of 64 rows hold three tokens and eight heads of the fourth.
  Arguments a = equal_scores(4, 65, true);
  a.set_attr("backend", "fa2");
  const auto outputs = op.outputs(a, in_mode(Mode::hopper));
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
}

TEST(BatchMlaPagedAttention, HopperModeHasTheFa2KernelAndLogarithmsOfBaseTwoAlone) {
  Arguments a = mla({1}, {5}, 2, false);
  a.set_attr("return_lse_base_on_e", true);
  EXPECT_NE(message_in([&] { op.outputs(a, in_mode(Mode::hopper)); }).find("batch_mla_paged_attention: return_lse_base_on_e is true"),
            std::string::npos);
  a.set_attr("backend", "fa3");
  EXPECT_NE(message_in([&] { op.outputs(a, in_mode(Mode::hopper)); }).find("'fa3' has no hopper mode, expected fa2"), std::string::npos);
}

}  // namespace
}  // namespace dodona
