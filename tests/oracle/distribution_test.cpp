// The judge of draws: right ones pass, wrong ones are caught, and the ops' distributions are those that their tokens have.
#include "oracle/judge/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/case_line.h"
#include "core/philox.h"
#include "dodona/error.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using Draws = std::vector<std::int64_t>;

/// Of a row with large and small shares, some of them zero.
std::vector<double> shares(std::size_t count) {
  std::vector<double> p(count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += p[i] = i % 7 == 3 ? 0 : 1.0 / static_cast<double>((i * 37 % count) + 3);
  for (double& share : p) share /= sum;
  return p;
}

std::int64_t token_of(const std::vector<double>& p, double u) {
  double sum = 0;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] <= 0) continue;
    sum += p[i];
    last = static_cast<std::int64_t>(i);
    if (sum > u) break;
  }
  return last;
}

Draws draw(const std::vector<double>& p, std::size_t count, std::uint64_t seed) {
  Draws draws;
  PhiloxStream stream(seed, 0, 0);
  for (std::size_t i = 0; i < count; ++i) draws.push_back(token_of(p, static_cast<double>(stream.next_uniform())));
  return draws;
}

TEST(DrawsJudge, RightDrawsPassHoweverManyAndWhateverTheDistribution) {
  for (const std::size_t vocabulary : {1u, 2u, 50u, 1000u, 20000u})
    for (const std::size_t count : {0u, 1u, 10u, 1000u, 20000u})
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const auto p = shares(vocabulary);
        const DrawsVerdict verdict = judge_draws(p, draw(p, count, seed));
        EXPECT_TRUE(verdict.passes()) << vocabulary << " tokens, " << to_string(verdict);
      }
}

/// At a rate that a test can see, the alarms stay below it.
TEST(DrawsJudge, FalseAlarmsStayBelowTheStatedRate) {
  const auto p = shares(12);
  int alarms = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) alarms += judge_draws(p, draw(p, 300, seed), 0.05).passes() ? 0 : 1;
  EXPECT_LT(alarms, 100);
}

TEST(DrawsJudge, OneImpossibleTokenIsEnough) {
  const auto p = shares(100);
  Draws draws = draw(p, 10, 1);
  for (const std::int64_t token : {3, -1, 100}) {
    draws[5] = token;
    const DrawsVerdict verdict = judge_draws(p, draws);
    EXPECT_EQ(verdict.impossible, 1);
    EXPECT_FALSE(verdict.passes());
  }
}

/// What goes wrong in samplers, each with the number of draws that shows it.
struct Mistake {
  const char* name;
  std::size_t draws;
  std::function<Draws(const std::vector<double>&, std::size_t)> make;
};

TEST(DrawsJudge, MistakesOfSamplersAreCaught) {
  const auto sharpened = [](std::vector<double> p, double power) {
    double sum = 0;
    for (double& share : p) sum += share = std::pow(share, power);
    for (double& share : p) share /= sum;
    return p;
  };
  const Mistake mistakes[] = {
      {"greedy", 100, [](const auto& p, std::size_t n) { return Draws(n, std::max_element(p.begin(), p.end()) - p.begin()); }},
      {"every row draws with the same number", 100, [](const auto& p, std::size_t n) { return Draws(n, token_of(p, 0.6180339)); }},
      {"each number is used twice", 2000,
       [](const auto& p, std::size_t n) {
         Draws draws = draw(p, n, 3);
         for (std::size_t i = 0; i + 1 < n; i += 2) draws[i + 1] = draws[i];
         return draws;
       }},
      {"one token off", 2000,
       [](const auto& p, std::size_t n) {
         Draws draws = draw(p, n, 4);
         for (std::int64_t& token : draws) token = std::min<std::int64_t>(token + 1, static_cast<std::int64_t>(p.size()) - 1);
         return draws;
       }},
      {"a temperature of 0.9", 20000, [&](const auto& p, std::size_t n) { return draw(sharpened(p, 1 / 0.9), n, 5); }},
      {"flat over what is kept", 2000, [&](const auto& p, std::size_t n) { return draw(sharpened(p, 1e-9), n, 6); }},
      {"numbers of 7 bits", 20000,
       [](const auto& p, std::size_t n) {
         Draws draws;
         PhiloxStream stream(7, 0, 0);
         for (std::size_t i = 0; i < n; ++i)
           draws.push_back(token_of(p, std::floor(static_cast<double>(stream.next_uniform()) * 128) / 128));
         return draws;
       }},
      {"the last hundredth of the mass is lost to the last token", 20000,
       [](const auto& p, std::size_t n) {
         Draws draws = draw(p, n, 8);
         for (std::size_t i = 0; i < n; i += 100) draws[i] = token_of(p, 2);
         return draws;
       }},
  };
  const auto p = shares(500);
  for (const Mistake& mistake : mistakes) {
    const DrawsVerdict verdict = judge_draws(p, mistake.make(p, mistake.draws));
    EXPECT_FALSE(verdict.passes()) << mistake.name << ": " << to_string(verdict);
  }
}

TEST(DrawsJudge, TokensOfTheOpsHaveTheDistributionThatTheirArgumentsState) {
  const std::string many = "B=20000 U=1 V=60 --with indices --attr philox_seed=3 --seed 4 ";
  for (const std::string& text :
       {"min_p_sampling_from_probs " + many + "--attr min_p=0.05", "min_p_sampling_from_probs " + many + "--attr min_p=0",
        "top_p_sampling_from_probs " + many + "--attr top_p=0.6", "top_p_sampling_from_probs " + many + "--attr top_p=1 --dist ties",
        "top_k_top_p_sampling_from_probs " + many + "--attr top_k=7 --attr top_p=0.9",
        "top_k_top_p_sampling_from_probs " + many + "--attr top_k=7 --attr top_p=0.9 --dist edge",
        "top_k_top_p_sampling_from_probs " + many + "--attr top_k=7 --attr top_p=0.6 --attr filter_apply_order=joint"}) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    const auto p = distribution_of(op, inputs, 0);
    for (const Mode mode : op.modes()) {
      Arguments arguments = runnable(op, inputs);
      Exec exec;
      exec.mode = mode;
      op.run(arguments, exec);
      Draws draws;
      const Tensor& samples = *arguments.find("samples");
      for (std::int64_t b = 0; b < samples.elements(); ++b) draws.push_back(static_cast<std::int64_t>(quant::get(samples, b)));
      const DrawsVerdict verdict = judge_draws(p, draws);
      EXPECT_TRUE(verdict.passes()) << text << " in " << name(mode) << " mode: " << to_string(verdict);
    }
  }
}

TEST(DrawsJudge, TheOrderOfFiltersMakesAnotherDistribution) {
  const std::string rest = " B=5000 U=1 V=60 --with indices --seed 4 --attr top_k=7 --attr top_p=0.6";
  const CaseLine joint = parse_case_line("top_k_top_p_sampling_from_probs" + rest + " --attr filter_apply_order=joint");
  const CaseLine first = parse_case_line("top_k_top_p_sampling_from_probs" + rest);
  const Op& op = registry().at(joint.op);
  EXPECT_NE(distribution_of(op, generate(joint), 0), distribution_of(op, generate(first), 0));
  EXPECT_THROW(distribution_of(registry().at("softmax"), generate(parse_case_line("softmax B=1 V=4")), 0), Error);
}

}  // namespace
}  // namespace dodona::oracle
