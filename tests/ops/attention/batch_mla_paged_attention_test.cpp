// FlashInfer's MLA over pages: what its known defects excuse, and what they do not.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dodona
