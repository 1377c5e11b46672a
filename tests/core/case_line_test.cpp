#include "core/case_line.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/errors.h"

namespace dodona {
namespace {

std::string error_of(const char* text) {
  const auto error = helpers::error_in([&] { parse_case_line(text); });
  if (!error) return {};
  EXPECT_EQ(error->code(), ErrorCode::bad_option);
  return error->what();
}

TEST(CaseLine, ReadsSizesAttributesTypesSeedAndDialect) {
  const CaseLine line =
      parse_case_line("fused_add_rmsnorm T=64 H=7168 --attr eps=1e-5 --dtype input=f16 --dist outliers --seed 7 --dialect flashinfer");
  EXPECT_EQ(line.op, "fused_add_rmsnorm");
  EXPECT_EQ(line.symbols.at("T"), 64);
  EXPECT_EQ(std::get<double>(*line.attrs.find_attr("eps")), 1e-5);
  EXPECT_EQ(line.dtypes.at("input"), DType::f16);
  EXPECT_EQ(line.dist, "outliers");
  EXPECT_EQ(line.seed, 7u);
  EXPECT_EQ(line.dialect, "flashinfer");
}

TEST(CaseLine, WritesWhatReadsBackTheSame) {
  for (const char* text : {"bmm_fp8 B=2 K=64 --dtype A=f8_e5m2 --attr dtype=f16 --dist ties --seed 12 --dialect trtllm",
                           "cutlass_fp4_group_mm M=4 --with c_strides --with problem_sizes --without a --dist ties"})
    EXPECT_EQ(to_string(parse_case_line(text)), text);
}

TEST(CaseLine, AttributeValuesAreTyped) {
  EXPECT_EQ(std::get<std::int64_t>(parse_attr_value("8")), 8);
  EXPECT_EQ(std::get<double>(parse_attr_value("2.5")), 2.5);
  EXPECT_EQ(std::get<bool>(parse_attr_value("true")), true);
  EXPECT_EQ(std::get<std::string>(parse_attr_value("bf16")), "bf16");
}

TEST(CaseLine, WhatTheOpTakesAsAWordIsOne) {
  const CaseLine line = parse_case_line("merge_state_v2 --attr both_empty=nan");
  EXPECT_EQ(std::get<std::string>(*line.attrs.find_attr("both_empty")), "nan");
  EXPECT_EQ(to_string(line), "merge_state_v2 --attr both_empty=nan");
  for (const auto& op : registry().all())
    for (const AttrSpec& spec : op->schema().attrs)
      for (const std::string& choice : spec.choices) {
        const CaseLine one = parse_case_line(std::string(op->name()) + " --attr " + spec.name + "=" + choice);
        EXPECT_EQ(*one.attrs.find_attr(spec.name), AttrValue(choice)) << op->name() << " " << spec.name;
      }
  // Numbers of other attributes stay numbers.
  EXPECT_EQ(std::get<double>(*parse_case_line("rmsnorm --attr eps=0.5").attrs.find_attr("eps")), 0.5);
}

TEST(CaseLine, OptionalArgumentsAreAskedForAndLeftOut) {
  const CaseLine line = parse_case_line("scaled_fp4_experts_quant --with expert_map --without b --with a");
  EXPECT_EQ(line.with, (std::set<std::string>{"a", "expert_map"}));
  EXPECT_EQ(line.without, std::set<std::string>{"b"});
  EXPECT_NE(error_of("rmsnorm --with a --without a").find("a is asked for or left out twice"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm --with").find("--with needs a value"), std::string::npos);
}

TEST(CaseLine, MistakesAreNamed) {
  EXPECT_NE(error_of("").find("empty"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T").find("NAME=VALUE"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=-1").find("size"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1e3").find("size"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=99999999999999999999").find("size"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 T=2").find("twice"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 --sead 4").find("--sead"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 --seed").find("needs a value"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 --seed x").find("whole number"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 --dist gamma").find("normal, uniform"), std::string::npos);
  EXPECT_NE(error_of("rmsnorm T=1 --dtype input=f12").find("f12"), std::string::npos);
}

}  // namespace
}  // namespace dodona
