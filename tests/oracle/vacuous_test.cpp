// A verdict that compared nothing is no pass, and what is nothing but NaN or zeros does not pass, for any op, documented line and
// distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "oracle/cases/generate.h"
#include "oracle/report/check.h"
#include "oracle/report/report.h"
#include "oracle/report/report_text.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

constexpr const char* dists[] = {"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};

bool passes(Outcome outcome) {
  return outcome == Outcome::pass || outcome == Outcome::known_defect;
}

/// NaN in every element, or codes of ones where the type has none.
void fill_with_nan(const Tensor& tensor) {
  const DType type = tensor.dtype();
  const bool has_nan = is_float(type) && type != DType::f4_e2m1 && type != DType::f8_e8m0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (has_nan)
      quant::set(tensor, i, std::numeric_limits<double>::quiet_NaN());
    else
      quant::set_bits(tensor, i, ~std::uint64_t{0});
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  for (std::int64_t i = 0; i < a.elements(); ++i)
    if (quant::get_bits(a, i) != quant::get_bits(b, i)) return false;
  return true;
}

/// The golden outputs, owned.
NamedTensors copies(const NamedTensors& outputs) {
  NamedTensors result;
  for (const auto& [name, tensor] : outputs) result.emplace_back(name, tensor.clone());
  return result;
}

class VacuousVerdicts : public ::testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return registry().at(GetParam()); }

  /// Calls visit(line, inputs, golden) for every documented line in every distribution.
  template <class Visit>
  void each_case(const Visit& visit) const {
    // Fifteen million weights a case: one line says what all do.
    const bool huge = op().name() == "dsv3_fused_a_gemm";
    for (std::size_t i = 0; i < (huge ? 1 : op().cases().size()); ++i)
      for (const char* dist : dists) {
        if (huge && std::string(dist) != "edge") continue;
        CaseLine line = parse_case_line(std::string(op().name()) + " " + op().cases()[i]);
        line.dist = dist;
        const Arguments inputs = generate(line);
        visit(line, inputs, run_golden(op(), inputs, {}));
      }
  }
};

TEST_P(VacuousVerdicts, NaNAndZerosDoNotPass) {
  each_case([&](const CaseLine& line, const Arguments& inputs, const GoldenRun& golden) {
    for (const bool nan : {true, false}) {
      NamedTensors all = copies(golden.outputs);
      bool differ = false, hold_anything = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Tensor& right = golden.outputs[i].second;
        nan ? fill_with_nan(all[i].second) : void(all[i].second = Tensor(right.dtype(), right.shape()));
        differ = differ || !same_bits(all[i].second, right);
        hold_anything = hold_anything || right.elements() > 0;
      }
      if (!differ && hold_anything) continue;  // what the contract really gives
      const Verdict verdict = judge(op(), inputs, golden, all, {});
      EXPECT_FALSE(passes(verdict.outcome)) << to_string(line) << ": " << (nan ? "NaN" : "zeros") << ": " << name(verdict.outcome);
    }
  });
}

TEST_P(VacuousVerdicts, EdgeComparesAtLeastHalfOfEveryOutput) {
  std::map<std::string, std::int64_t> in_normal;
  each_case([&](const CaseLine& line, const Arguments& inputs, const GoldenRun& golden) {
    if (line.dist != "normal" && line.dist != "edge") return;
    CaseLine plain = line;
    plain.dist = "normal";
    const Verdict verdict = judge(op(), inputs, golden, copies(golden.outputs), {});
    for (const OutputVerdict& output : verdict.outputs) {
      std::int64_t& comparable = in_normal[to_string(plain) + output.name];
      if (line.dist == "normal") comparable = output.compared;
      // Of a padded output, half of what is no padding.
      const bool padded = op().schema().find_tensor(output.name)->padded;
      if (line.dist == "edge")
        EXPECT_GE(2 * output.compared, padded ? comparable : output.elements)
            << to_string(line) << " " << output.name << ": " << output.compared << " of " << output.elements;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Inventory, VacuousVerdicts, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& op : registry().all()) names.emplace_back(op->name());
                           return names;
                         }()),
                         [](const auto& param) { return param.param; });

/// A product of numbers so large that no order of additions is safe from overflow: everything is open.
struct Overflowing {
  Case c;
  NamedTensors outputs;
  Overflowing() {
    c.op = &registry().at("linear");
    c.name = "overflowing";
    c.inputs = generate(parse_case_line("linear T=2 N=3 K=64"));
    for (auto& [name, tensor] : c.inputs.tensors)
      for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, 1e38);
    outputs.emplace_back("output", Tensor(DType::bf16, {2, 3}));
    fill_with_nan(outputs[0].second);
  }
};

TEST(VacuousVerdict, WhatComparedNothingIsVacuousAndSaysSoInEveryReport) {
  const Overflowing sample;
  const CheckResult result = check(sample.c, sample.outputs, {});
  EXPECT_EQ(result.outcome, Outcome::vacuous);
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(result.outputs[0].verdict.compared, 0);
  EXPECT_EQ(result.outputs[0].verdict.outcome, Outcome::vacuous);
  const std::string why = "nothing was compared: the contract leaves every element open";
  EXPECT_NE(report_text(result, false).find(why), std::string::npos);
  EXPECT_NE(html_page(result).find(why), std::string::npos);
  EXPECT_NE(junit_xml(result, 0).find("failures=\"1\""), std::string::npos);
  EXPECT_NE(junit_xml(result, 0).find(why), std::string::npos);
  EXPECT_EQ(to_json(result)["outcome"], "vacuous");
  EXPECT_EQ(to_json(result)["outputs"][0]["outcome"], "vacuous");
}

TEST(VacuousVerdict, AnEmptyOutputIsVacuousOnlyWhereThereIsNothingElse) {
  const CaseLine line = parse_case_line("merge_state T=0 N=2 D=8");
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  const GoldenRun golden = run_golden(op, inputs, {});
  EXPECT_EQ(judge(op, inputs, golden, golden.outputs, {}).outcome, Outcome::vacuous);

  const CaseLine some = parse_case_line("prepare_moe_input M=0 topk=2 --attr num_experts=4 --attr n=8 --attr k=16");
  const Op& prepare = registry().at(some.op);
  const Arguments nothing = generate(some);
  const GoldenRun offsets = run_golden(prepare, nothing, {});
  ASSERT_TRUE(std::any_of(offsets.outputs.begin(), offsets.outputs.end(), [](const auto& o) { return o.second.elements() == 0; }));
  const Verdict verdict = judge(prepare, nothing, offsets, offsets.outputs, {});
  EXPECT_EQ(verdict.outcome, Outcome::pass);
  for (const OutputVerdict& output : verdict.outputs) EXPECT_EQ(output.outcome, Outcome::pass) << output.name;
}

TEST(VacuousVerdict, OneOutputThatIsAllOpenSpoilsTheWholeVerdict) {
  // The log-sum-exp of overflowing scores is open, and so is what it weighs.
  const CaseLine line = parse_case_line("merge_state T=2 N=2 D=8");
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  GoldenRun golden = run_golden(op, inputs, {});
  ReferenceOutput& first = golden.reference.output(golden.outputs[0].first, golden.outputs[0].second.elements());
  first.unspecified.assign(first.exact.size(), 1);
  const Verdict verdict = judge(op, inputs, golden, golden.outputs, {});
  EXPECT_EQ(verdict.outcome, Outcome::vacuous);
  EXPECT_EQ(verdict.outputs[0].outcome, Outcome::vacuous);
  EXPECT_EQ(verdict.outputs[1].outcome, Outcome::pass);
}

}  // namespace
}  // namespace dodona::oracle
