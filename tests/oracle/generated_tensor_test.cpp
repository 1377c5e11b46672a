// Inputs that case files describe by a rule.
#include "oracle/cases/generated_tensor.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

io::Json rule() {
  return io::parse_json(
      R"({"rule":"hash32","rows":3,"cols":5,"seed":11,"offset":128,"divisor":2048,"dtype":"BF16","logical_shape":[5,3],"strides":[1,5]})");
}

double element(std::uint32_t i, std::uint32_t seed) {
  std::uint32_t x = i * 2654435761u + seed;
  x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
  return (static_cast<double>(x >> 24) - 128) / 2048;
}

TEST(GeneratedTensor, FollowsTheRuleInTheViewThatTheCallHad) {
  const Tensor t = generated_tensor(rule(), "case", "w");
  EXPECT_EQ(t.shape(), (Dims{5, 3}));
  EXPECT_EQ(t.strides(), (Dims{1, 5}));
  for (std::uint32_t r = 0; r < 3; ++r)
    for (std::uint32_t c = 0; c < 5; ++c) EXPECT_EQ(quant::get(t, c * 3 + r), element(r * 5 + c, 11));
}

TEST(GeneratedTensor, ASampleMustBeItsBeginning) {
  const Tensor t = generated_tensor(rule(), "case", "w"), sample(DType::bf16, {2, 5});
  for (std::uint32_t i = 0; i < 10; ++i) quant::set(sample, i, element(i, 11));
  EXPECT_NO_THROW(check_sample(t, sample, "case", "w"));
  quant::set(sample, 9, 1.0);
  EXPECT_THROW(check_sample(t, sample, "case", "w"), Error);
  EXPECT_THROW(check_sample(t, Tensor(DType::bf16, {4, 5}), "case", "w"), Error);
}

TEST(GeneratedTensor, ImpossibleRulesAreRefused) {
  const auto refused = [](const char* key, const io::Json& value) {
    io::Json changed = rule();
    changed[key] = value;
    EXPECT_THROW(generated_tensor(changed, "case", "w"), Error) << key;
  };
  refused("rule", "md5");
  refused("dtype", "BF17");
  refused("rows", -1);
  refused("rows", std::int64_t{1} << 40);
  refused("rows", 2);  // the view then leaves the matrix
  refused("divisor", 0);
  refused("strides", io::Json::array({1, 6}));
  refused("strides", io::Json::array({-1, 5}));
  refused("strides", io::Json::array({1}));
  refused("logical_shape", io::Json::array({5, std::int64_t{1} << 60}));
  refused("logical_shape", "[5,3]");
  io::Json missing = rule();
  missing.erase("seed");
  EXPECT_THROW(generated_tensor(missing, "case", "w"), Error);
}

}  // namespace
}  // namespace dodona::oracle
