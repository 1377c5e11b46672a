// Generated cases: the same line gives the same bytes, inputs are valid by role, files hold what a judge needs.
#include "oracle/cases/make_case.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/random.h"
#include "dodona/error.h"
#include "io/safetensors.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::oracle {
namespace {

namespace fs = std::filesystem;

Exec exec_with(int threads, Isa isa = available_isas().back()) {
  Exec exec;
  exec.threads = threads;
  exec.isa = isa;
  return exec;
}

class MakeCase : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string saved(const std::string& name, const Case& c) const {
    save_case(c, path(name));
    return helpers::read_raw(path(name));
  }
  const helpers::TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(MakeCase, TheSameLineGivesTheSameFileForEveryThreadCountAndTier) {
  for (const auto& op : registry().all()) {
    CaseLine line = parse_case_line(std::string(op->name()) + " " + op->cases().front());
    line.seed = 11;
    for (const bool compact : {false, true}) {
      const std::string one = saved("one", make_case(line, exec_with(1, available_isas().front()), compact));
      EXPECT_EQ(one, saved("three", make_case(line, exec_with(3), compact))) << to_string(line);
    }
  }
}

TEST_F(MakeCase, AFileReadBackHoldsInputsGoldenOutputsAndBudgets) {
  const Case made = make_case(parse_case_line("rmsnorm T=4 H=64 --seed 5"), {});
  save_case(made, path("case"));
  const Case read = load_case(path("case"));
  EXPECT_EQ(read.line, "rmsnorm H=64 T=4 --seed 5");
  EXPECT_EQ(read.contract_version, made.op->contract_version());
  EXPECT_EQ(read.digests, digests_of(read.inputs, read.outputs));
  EXPECT_TRUE(read.ignored.empty());
  ASSERT_EQ(read.budgets.size(), 2U);
  for (const auto& [name, tensor] : read.budgets) EXPECT_EQ(tensor.shape(), Dims({4, 64})) << name;
}

TEST_F(MakeCase, TheStoredBudgetSaysWhatPasses) {
  // Whoever reads the file can judge without us: golden is the rounding of exact, and so are the ends of the slack.
  const Case c = make_case(parse_case_line("silu_and_mul T=2 D=32 --dtype input=f32"), {});
  const Tensor *exact = nullptr, *slack = nullptr;
  for (const auto& [name, tensor] : c.budgets) {
    if (name == "exact.out") exact = &tensor;
    if (name == "slack.out") slack = &tensor;
  }
  ASSERT_TRUE(exact != nullptr && slack != nullptr);
  for (std::int64_t i = 0; i < exact->elements(); ++i) {
    EXPECT_EQ(quant::get(c.outputs[0].second, i), quant::round_to(DType::f32, quant::get(*exact, i)));
    EXPECT_GT(quant::get(*slack, i), 0);
  }
}

TEST_F(MakeCase, OpenElementsAndCodesHaveBudgetsOfTheirOwn) {
  const Case c = make_case(parse_case_line("scaled_fp4_quant M=3 K=32"), {});
  std::set<std::string> names;
  for (const auto& [name, tensor] : c.budgets) names.insert(name);
  EXPECT_TRUE(names.contains("open.output_scale"));
  EXPECT_EQ(c.outputs[0].second.dtype(), DType::u8);
}

TEST_F(MakeCase, OutputsThatLeaveNothingOpenHaveNoBudgetTensors) {
  EXPECT_TRUE(make_case(parse_case_line("concat_mla_absorb_q X=2 N=1 Da=512 Db=64"), {}).budgets.empty());
}

TEST_F(MakeCase, ACompactFileIsSmallAndMakesItsTensorsAnew) {
  const CaseLine line = parse_case_line("rmsnorm T=16 H=512 --seed 9 --dialect deepseek");
  const Case full = make_case(line, {});
  const std::string bytes = saved("compact", make_case(line, {}, true));
  EXPECT_LT(bytes.size(), 2000U);
  Case read = load_case(path("compact"), 2);
  EXPECT_TRUE(read.outputs.empty());
  complete(read, {});
  EXPECT_EQ(digests_of(read.inputs, read.outputs), full.digests);
}

TEST_F(MakeCase, ACompactFileOfOtherInputsIsRefused) {
  std::string bytes = saved("compact", make_case(parse_case_line("rmsnorm T=4 H=64 --seed 5"), {}, true));
  for (std::size_t at = 0; (at = bytes.find("--seed 5", at)) != std::string::npos;) bytes[at + 7] = '6';
  std::ofstream(path("other"), std::ios::binary) << bytes;
  const Error error = helpers::error_from([&] { load_case(path("other")); });
  EXPECT_NE(std::string(error.what()).find("was made of another in.input"), std::string::npos) << error.what();
}

TEST_F(MakeCase, AnotherContractVersionIsToldFromAChangedFile) {
  const Case made = make_case(parse_case_line("rmsnorm T=4 H=64"), {}, true);
  const auto refusal = [&](int version) {
    Case c = made;
    c.digests["out.output"][0] = c.digests["out.output"][0] == '0' ? '1' : '0';
    c.contract_version = version;
    save_case(c, path("changed"));
    return helpers::message_in([&] {
      Case read = load_case(path("changed"));
      complete(read, {});
    });
  };
  EXPECT_NE(refusal(made.contract_version).find("golden mode does not give"), std::string::npos);
  EXPECT_NE(refusal(made.contract_version + 1).find("of the contract"), std::string::npos);
}

TEST_F(MakeCase, BrokenGenerationMetadataIsRefused) {
  const Case c = make_case(parse_case_line("rmsnorm T=2 H=64"), {}, true);
  for (const auto& [key, value] : {std::pair<std::string, std::string>("digests", "[]"),
                                   {"digests", "{\"in.input\":1}"},
                                   {"contract_version", "two"},
                                   {"line", "rmsnorm T="},
                                   {"line", "silu_and_mul T=2 D=4"}}) {
    save_case(c, path("case"));
    const auto file = io::SafetensorsFile::open(path("case"));
    io::Metadata metadata = file.metadata();
    metadata[key] = value;
    io::write_safetensors(path("broken"), {}, metadata);
    EXPECT_THROW(load_case(path("broken")), Error) << key << " " << value;
  }
}

// ---- inputs, by role ----

constexpr std::array<const char*, 6> dists{"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};

Tensor filled(DType type, const Dims& shape, Role role, std::int64_t bound, const char* dist, int threads = 1) {
  Tensor tensor(type, shape);
  fill(tensor, role, bound, dist, 3, "argument", threads);
  return tensor;
}

TEST(Inputs, EverySizeOfAnOpsOwnLinesIsRead) {
  for (const auto& op : registry().all())
    for (const auto* lines : {&op->cases(), &op->bench_cases()})
      for (const std::string& line : *lines) EXPECT_NO_THROW(plan_inputs(parse_case_line(std::string(op->name()) + " " + line))) << line;
}

TEST(Inputs, PartsMadeByThreadsAreThoseOfOne) {
  for (const DType type : {DType::bf16, DType::f4_e2m1, DType::f8_e4m3, DType::i4, DType::u8})
    for (const char* dist : dists) {
      const Tensor one = filled(type, {5, 2222}, Role::values, 0, dist), four = filled(type, {5, 2222}, Role::values, 0, dist, 4);
      for (std::int64_t i = 0; i < one.elements(); ++i) ASSERT_EQ(quant::get_bits(one, i), quant::get_bits(four, i)) << dist;
    }
}

TEST(Inputs, ScalesArePositiveInEveryTypeAndDistribution) {
  for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3, DType::f8_e8m0})
    for (const char* dist : dists) {
      const Tensor scales = filled(type, {1000}, Role::scale, 0, dist);
      for (std::int64_t i = 0; i < 1000; ++i) {
        ASSERT_GT(quant::get(scales, i), 0) << name(type) << " " << dist;
        ASSERT_TRUE(std::isfinite(quant::get(scales, i)));
      }
    }
}

TEST(Inputs, EdgeScalesReachTheMagnitudesAtWhichKernelsLoseAccuracy) {
  const Tensor scales = filled(DType::f32, {1000}, Role::scale, 0, "edge");
  int tiny = 0;
  for (std::int64_t i = 0; i < 1000; ++i) tiny += quant::get(scales, i) < 1e-6 ? 1 : 0;
  EXPECT_GT(tiny, 50);
}

TEST(Inputs, PageTablesPointAtPagesEachOnceWhereThereAreEnough) {
  const Tensor table = filled(DType::i32, {4, 16}, Role::page_table, 100, "normal");
  std::set<double> pages;
  for (std::int64_t i = 0; i < 64; ++i) pages.insert(quant::get(table, i));
  EXPECT_EQ(pages.size(), 64U);
  EXPECT_LT(*pages.rbegin(), 100);
}

TEST(Inputs, IndptrsRiseFromZeroToTheirBound) {
  const Tensor none = filled(DType::i32, {9}, Role::indptr, 0, "normal");
  for (std::int64_t i = 0; i < 9; ++i) EXPECT_EQ(quant::get(none, i), 0) << "offsets of nothing";
  const Tensor offsets = filled(DType::i32, {9}, Role::indptr, 40, "normal");
  EXPECT_EQ(quant::get(offsets, 0), 0);
  EXPECT_EQ(quant::get(offsets, 8), 40);
  for (std::int64_t i = 1; i < 9; ++i) EXPECT_LE(quant::get(offsets, i - 1), quant::get(offsets, i));
}

TEST(Inputs, ExpertsOfARowAreDistinct) {
  const Tensor ids = filled(DType::i32, {50, 8}, Role::expert_ids, 9, "normal");
  for (std::int64_t row = 0; row < 50; ++row) {
    std::set<double> experts;
    for (std::int64_t k = 0; k < 8; ++k) experts.insert(quant::get(ids, row * 8 + k));
    EXPECT_EQ(experts.size(), 8U);
    EXPECT_LT(*experts.rbegin(), 9);
  }
}

TEST(Inputs, EdgesHoldEmptyLogSumExpsZeroCoinsAndZeroProbabilities) {
  const Tensor lse = filled(DType::f32, {200}, Role::lse_base_e, 0, "edge"), coins = filled(DType::f32, {200}, Role::coins, 0, "edge"),
               probs = filled(DType::f32, {4, 50}, Role::probs, 0, "edge");
  int empty = 0, zero_coins = 0, zero_probs = 0;
  double sum = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    empty += std::isinf(quant::get(lse, i)) ? 1 : 0;
    zero_coins += quant::get(coins, i) == 0 ? 1 : 0;
    zero_probs += quant::get(probs, i) == 0 ? 1 : 0;
    sum += quant::get(probs, i);
  }
  EXPECT_GT(empty, 5);
  EXPECT_GT(zero_coins, 20);
  EXPECT_GT(zero_probs, 20);
  EXPECT_NEAR(sum, 4, 1e-5);
}

TEST(Inputs, TiedProbabilitiesAreEqualToTheBit) {
  const Tensor probs = filled(DType::f32, {1, 200}, Role::probs, 0, "ties");
  std::set<double> values;
  for (std::int64_t i = 0; i < 200; ++i) values.insert(quant::get(probs, i));
  EXPECT_LT(values.size(), 20U);
}

TEST(Inputs, FloatsStayFiniteInEveryDistribution) {
  for (const DType type : {DType::f16, DType::f8_e4m3, DType::f8_e5m2})
    for (const char* dist : dists) {
      const Tensor values = filled(type, {3000}, Role::values, 0, dist);
      for (std::int64_t i = 0; i < 3000; ++i) ASSERT_TRUE(std::isfinite(quant::get(values, i))) << name(type) << " " << dist;
    }
}

TEST(Inputs, TheDocumentedKnownAnswersAreTrue) {
  std::ifstream file(DODONA_SOURCE_DIR "/docs/inputs.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::string words;
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::array<char, 16> text;
    std::snprintf(text.data(), text.size(), "%s0x%08x", i > 0 ? " " : "", word(Stream(7, "input"), i));
    words += text.data();
  }
  EXPECT_NE(page.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace dodona::oracle
