// Known defects, and what contracts leave open, excuse what a kernel can have given, and no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/case_line.h"
#include "core/define.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

/// A call, and copies of golden's outputs to be spoiled.
struct Spoiled {
  const Op* op;
  Arguments inputs;
  NamedTensors outputs;

  explicit Spoiled(const std::string& text, const std::function<void(Arguments&)>& change = {}) {
    const CaseLine line = parse_case_line(text);
    op = &registry().at(line.op);
    inputs = generate(line);
    if (change) change(inputs);
    Arguments arguments = runnable(*op, inputs);
    Exec exec;
    exec.mode = Mode::golden;
    op->run(arguments, exec);
    for (const auto& [name, tensor] : outputs_of(*op, arguments)) outputs.emplace_back(name, tensor.clone());
  }
  const Tensor& output() const { return outputs[0].second; }

  /// With another number in the place of one.
  Outcome with(std::int64_t element, double number) const {
    const std::uint64_t before = quant::get_bits(output(), element);
    quant::set(output(), element, number);
    const Outcome outcome = judge(*op, inputs, outputs, {}).outcome;
    quant::set_bits(output(), element, before);
    return outcome;
  }
};

/// Of 16 neighbours in heads of 512 those from R/2 on take the wrong partners.
TEST(Excuses, PartnersOfANeighbourAreThoseFromHalfOn) {
  const Spoiled rope("apply_rope_with_cos_sin_cache_inplace T=2 P=32 R=16 Nq=2 Nk=1 --attr head_size=512");
  for (const std::int64_t element : {8, 15, 512 + 9}) EXPECT_EQ(rope.with(element, 77), Outcome::known_defect) << element;
  for (const std::int64_t element : {0, 7, 16, 511}) EXPECT_EQ(rope.with(element, 77), Outcome::fail) << element;
}

TEST(Excuses, PartnersThatCannotBeLoadedExcuseNothing) {
  const Spoiled rope("apply_rope_with_cos_sin_cache_inplace T=2 P=32 R=10 Nq=2 Nk=1 --attr head_size=64");
  for (const std::int64_t element : {0, 5, 9}) EXPECT_EQ(rope.with(element, 77), Outcome::fail) << element;
}

/// What lies behind the last row and the last columns are codes of eight bits and weights of four, whatever they are.
TEST(Excuses, ProductsBeyondKAreProductsOfCodes) {
  const Spoiled product("qserve_w4a8_per_chn_gemm M=2 N=64 K=64");
  const std::int64_t last = product.output().elements() - 1;
  for (const std::int64_t element : {std::int64_t{64}, std::int64_t{40}, last}) {
    const double right = quant::get(product.output(), element);
    EXPECT_EQ(product.with(element, quant::round_to(DType::f16, right * 1.01)), Outcome::known_defect) << element;
    EXPECT_EQ(product.with(element, nan), Outcome::fail) << element;
    if (element != last) EXPECT_EQ(product.with(element, infinity), Outcome::fail) << element;
  }
}

/// Behind a NaN too many may be kept; what is kept are the largest, over their sum.
TEST(Excuses, AHiddenMaximumKeepsTheLargestOverTheirSum) {
  const Spoiled row("top_k_renorm_prob B=1 V=64 --attr top_k=8", [](Arguments& inputs) { quant::set(*inputs.find("probs"), 5, nan); });
  const Tensor& probs = *row.inputs.find("probs");
  std::vector<std::int64_t> order(64);
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + 5);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return quant::get(probs, a) > quant::get(probs, b); });
  const auto keep = [&](std::size_t first, std::size_t last, double factor) {
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += quant::get(probs, order[i]);
    for (std::int64_t i = 0; i < 64; ++i) quant::set(row.output(), i, 0);
    for (std::size_t i = first; i < last; ++i) quant::set(row.output(), order[i], factor * quant::get(probs, order[i]) / sum);
    return judge(*row.op, row.inputs, row.outputs, {}).outcome;
  };
  EXPECT_EQ(keep(0, 8, 1), Outcome::pass);
  EXPECT_EQ(keep(0, 12, 1), Outcome::known_defect);
  EXPECT_EQ(keep(0, 12, 1.001), Outcome::fail);
  EXPECT_EQ(keep(1, 12, 1), Outcome::fail);
  keep(0, 12, 1);
  EXPECT_EQ(row.with(order[20], 0.25), Outcome::fail);
}

/// Bytes of a scale are those of a number within two units in the last place, and codes follow from it.
TEST(Excuses, BytesOfAStoredScaleAreThoseOfANeighbour) {
  const Spoiled store("fused_store_index_k_cache pages=1 n=1");
  const std::int64_t slot = static_cast<std::int64_t>(quant::get(*store.inputs.find("out_cache_loc"), 0));
  const std::int64_t scale = store.output().elements() / 132 * 128 + 4 * slot, code = 128 * slot;
  const double low = quant::get(store.output(), scale);
  EXPECT_EQ(store.with(scale, low < 128 ? low + 1 : low - 1), Outcome::pass);
  EXPECT_EQ(store.with(scale, low < 128 ? low + 9 : low - 9), Outcome::fail);
  EXPECT_EQ(store.with(scale + 2, 1 + quant::get(store.output(), scale + 2)), Outcome::fail);
  int passing = 0;
  for (std::int64_t k = 0; k < 128; ++k) {
    const double byte = quant::get(store.output(), code + k);
    passing += store.with(code + k, byte < 100 ? byte + 3 : byte - 3) == Outcome::fail ? 0 : 1;
  }
  EXPECT_EQ(passing, 0);
}

/// Scores of 0, of all keys or of some: no other log-sum-exp.
TEST(Excuses, LogSumExpsOfFlushedScalesAreThoseOfNoScores) {
  const Spoiled decode(
      "flash_mla_with_kvcache B=1 N=16 Q=1 W=2 pages=2 parts=1 --dtype q=f8_e4m3 --attr softmax_scale=0.07 --with descale_q"
      " --with descale_k",
      [](Arguments& inputs) { quant::set(*inputs.find("descale_q"), 0, 1e-39); });
  const auto with_lse = [&](double number) {
    const Tensor& lse = decode.outputs[1].second;
    const double before = quant::get(lse, 0);
    quant::set(lse, 0, number);
    const Outcome outcome = judge(*decode.op, decode.inputs, decode.outputs, {}).outcome;
    quant::set(lse, 0, before);
    return outcome;
  };
  ASSERT_EQ(decode.outputs[1].first, "softmax_lse");
  EXPECT_EQ(with_lse(infinity), Outcome::known_defect);
  EXPECT_EQ(with_lse(0), Outcome::known_defect);
  for (const double number : {nan, -infinity, -1.0, 6.0}) EXPECT_EQ(with_lse(number), Outcome::fail) << number;
}

/// Where nothing is launched, what the mask allows is there all the same.
TEST(Excuses, LogitsThatTheMaskAllowsAreThoseOfTheCall) {
  const Spoiled masked("apply_token_bitmask_inplace_cuda B=65536 V=32 W=1 --dtype logits=bf16");
  std::int64_t allowed = 0, forbidden = 0;
  while (std::isinf(quant::get(masked.output(), allowed))) ++allowed;
  while (!std::isinf(quant::get(masked.output(), forbidden))) ++forbidden;
  EXPECT_EQ(masked.with(forbidden, 3), Outcome::known_defect);
  EXPECT_EQ(masked.with(allowed, 77), Outcome::fail);
}

}  // namespace
}  // namespace dodona::oracle
