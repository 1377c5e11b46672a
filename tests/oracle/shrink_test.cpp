// Shrinking: the smallest line that still fails.
#include "oracle/faults/shrink.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "oracle/cases/generate.h"

namespace dodona::oracle {
namespace {

/// Shrinks under a rule about lines that the op can have.
std::string shrunk(const std::string& line, const std::function<bool(const CaseLine&)>& fails, int max_runs = 500) {
  const auto attempt = [&](const CaseLine& candidate) {
    try {
      generate(candidate);
    } catch (const Error&) {
      return Trial::unusable;
    }
    return fails(candidate) ? Trial::fails : Trial::passes;
  };
  return to_string(shrink(parse_case_line(line), attempt, max_runs).line);
}

TEST(Shrink, WhatAlwaysFailsShrinksToTheLeastCase) {
  EXPECT_EQ(shrunk("rmsnorm T=64 H=7168 --seed 9 --dist outliers --dialect deepseek --dtype input=f16 --attr eps=1e-5",
                   [](const CaseLine&) { return true; }),
            "rmsnorm H=1 T=1 --dist ties");
}

TEST(Shrink, SizesStopAtTheLeastOnesThatFail) {
  const auto fails = [](const CaseLine& line) { return line.symbols.at("H") > 1000 && line.symbols.at("T") >= 17; };
  EXPECT_EQ(shrunk("rmsnorm T=64 H=7168", fails), "rmsnorm H=1001 T=17 --dist ties");
}

TEST(Shrink, SizesKeepToTheirMultiples) {
  EXPECT_EQ(shrunk("bmm_fp8 L=4 M=64 N=512 K=1024", [](const CaseLine& line) { return line.symbols.at("K") >= 100; }),
            "bmm_fp8 K=112 L=1 M=1 N=16 --dist ties");
}

TEST(Shrink, InputsThatMatterAreKept) {
  const auto fails = [](const CaseLine& line) { return line.dist == "outliers" && line.dtypes.contains("input") && line.seed == 5; };
  EXPECT_EQ(shrunk("rmsnorm T=4 H=64 --dist outliers --dtype input=f16 --seed 5", fails),
            "rmsnorm H=1 T=1 --dtype input=f16 --dist outliers --seed 5");
}

TEST(Shrink, CountsShrinkToo) {
  const auto fails = [](const CaseLine& line) {
    const AttrValue* topk = line.attrs.find_attr("topk");
    return topk != nullptr && std::get<std::int64_t>(*topk) >= 3;
  };
  const std::string line = shrunk("moe_fused_gate T=32 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8", fails);
  EXPECT_NE(line.find("--attr topk=3"), std::string::npos) << line;
}

TEST(Shrink, TheRunsAreCountedAndLimited) {
  int runs = 0;
  const auto fails = [&](const CaseLine&) { return ++runs, true; };
  const CaseLine line = parse_case_line("rmsnorm T=64 H=7168 --seed 9");
  const Shrunk result = shrink(
      line, [&](const CaseLine& l) { return fails(l) ? Trial::fails : Trial::passes; }, 2);
  EXPECT_EQ(result.runs, 2);
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(result.stopped);
}

}  // namespace
}  // namespace dodona::oracle
