// Kernels that look along one dimension of an operand at another index: no mistake has a name for them, where and how do together.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "quant/element.h"
#include "replayed.h"

namespace dodona::oracle {
namespace {

/// `t` with what index map(i) of a dimension has in the place of index i; -1 is zero.
Tensor looked_up(const Tensor& t, int dim, const std::function<std::int64_t(std::int64_t)>& map) {
  const Tensor changed = t.clone();
  std::int64_t below = 1;
  for (int d = dim + 1; d < t.rank(); ++d) below *= t.size(d);
  for (std::int64_t at = 0; at < t.elements(); ++at) {
    const std::int64_t index = at / below % t.size(dim), from = map(index);
    quant::set_bits(changed, at, from < 0 ? 0 : quant::get_bits(t, at + (from - index) * below));
  }
  return changed;
}

struct Looked {
  std::string line, operand;
  int dim;
  std::function<std::int64_t(std::int64_t)> map;
  std::string text;
};

Replayed kernel_that_looks(const Looked& l) {
  Replayed r{make_case(parse_case_line(l.line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  arguments.set(l.operand, looked_up(*r.c.inputs.find(l.operand), l.dim, l.map));
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  judge_and_explain(r);
  return r;
}

TEST(ComposedFaults, AnIndexOfOneDimensionThatIsLookedForElsewhereIsNamed) {
  const auto first_of_8 = [](std::int64_t i) { return i / 8 * 8; };
  const auto first_of_4 = [](std::int64_t i) { return i / 4 * 4; };
  const auto half = [](std::int64_t i) { return i / 2; };
  const auto next_64 = [](std::int64_t i) { return i + 64 < 256 ? i + 64 : i; };
  for (const Looked& l :
       {Looked{"rmsnorm T=4 H=512", "weight", 0, first_of_8, "weight: along H the first of each 8 is used for all of them"},
        {"linear T=8 N=64 K=256", "weight", 0, half, "weight: along N index i is looked for at i / 2: as if groups were 2 times as large"},
        {"linear T=8 N=64 K=256", "weight", 1, next_64, "weight: along K each tile of 64 is the next one"},
        {"bmm L=8 M=4 N=64 K=128", "mat1", 0, first_of_4, "mat1: along L the first of each 4 is used for all of them"},
        {"int8_scaled_mm M=8 N=64 K=128", "scales_b", 0, half, "scales_b: along N index i is looked for at i / 2"}}) {
    const Replayed r = kernel_that_looks(l);
    ASSERT_EQ(r.verdict.outcome, Outcome::fail) << l.text;
    ASSERT_FALSE(r.explained.found.empty()) << l.text;
    EXPECT_TRUE(r.explained.found.front().complete) << r.all();
    EXPECT_EQ(r.explained.found.front().text.rfind(l.text, 0), 0U) << r.all();
  }
}

TEST(ComposedFaults, AMistakeThatHasANameKeepsIt) {
  const Replayed r = kernel_that_looks({"linear T=8 N=64 K=256", "weight", 1, [](std::int64_t i) { return i < 128 ? i : -1; }, ""});
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_EQ(r.explained.found.front().text, "input: the last 128 of the summed columns are not added") << r.all();
}

}  // namespace
}  // namespace dodona::oracle
