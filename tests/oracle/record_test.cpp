// Suites and records: ranges, bits that change, contracts that change, interruption.
#include "oracle/records/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "dodona/error.h"
#include "io/safetensors.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::oracle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> texts(const std::string& line) {
  std::vector<std::string> lines;
  for (const CaseLine& l : expand_lines(line)) lines.push_back(to_string(l));
  return lines;
}

TEST(Suite, RangesStandForTheirProductTheLastOneFastest) {
  EXPECT_EQ(texts("rmsnorm T=1,7 H=64"), (std::vector<std::string>{"rmsnorm H=64 T=1", "rmsnorm H=64 T=7"}));
  EXPECT_EQ(texts("rmsnorm T=1 H=64 --seed 1..3").size(), 3U);
  EXPECT_EQ(texts("rmsnorm T=1,2 H=64 --dist normal,edge --dtype input=bf16,f16 --attr eps=1e-5,1e-6 --dialect sglang,deepseek").size(),
            32U);
  EXPECT_EQ(texts("rmsnorm T=1,4..6 H=64").back(), "rmsnorm H=64 T=6");
}

TEST(Suite, ImpossibleRangesAreErrors) {
  for (const char* line :
       {"rmsnorm T=1, H=64", "rmsnorm T= H=64", "rmsnorm T=5..1 H=64", "rmsnorm T=1..100000000 H=64", "rmsnorm T=1..1000 H=1..1000",
        "rmsnorm T=1,x H=64", "rmsnorm T=-9223372036854775808..9223372036854775807 H=64", ""})
    EXPECT_THROW(expand_lines(line), Error) << line;
}

TEST(Suite, RangesMayEndAtTheLargestNumber) {
  EXPECT_EQ(texts("rmsnorm T=9223372036854775806..9223372036854775807 H=64").back(), "rmsnorm H=64 T=9223372036854775807");
}

class Records : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, const std::string& text) const { return temporary_.write(name, text); }
  Suite suite(const std::string& cases = R"(["rmsnorm T=1,3 H=64", "silu_and_mul T=2 D=32 --seed 1,2"])", bool tensors = false) const {
    return read_suite(
        file("suite.json", R"({"name": "test", "tensors": )" + std::string(tensors ? "true" : "false") + R"(, "cases": )" + cases + "}"));
  }
  std::string suite_error(const std::string& text) const {
    return helpers::message_in([&] { read_suite(file("bad.json", text)); });
  }
  /// The record with `from` replaced by `to` everywhere.
  void edit(const std::string& record, const std::string& from, const std::string& to) const {
    std::string text = helpers::read_raw(record + "/record.json");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count) text.replace(at, from.size(), to);
    ASSERT_GT(count, 0U) << from;
    std::ofstream(record + "/record.json", std::ios::binary) << text;
  }
  const helpers::TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Records, AnImpossibleSuiteIsOneErrorThatNamesTheLineBeforeAnythingIsComputed) {
  EXPECT_THAT(suite_error(R"({"cases": ["rmsnrom T=1 H=64"]})"), HasSubstr("did you mean rmsnorm"));
  EXPECT_THAT(suite_error(R"({"cases": ["rmsnorm T=1 H=64 Q=2"]})"), HasSubstr("Q is not a size"));
  EXPECT_THAT(suite_error(R"({"cases": ["scaled_fp4_quant M=1 K=16,17"]})"), HasSubstr("K=16,17"));
  EXPECT_THAT(suite_error(R"({"cases": []})"), HasSubstr("no cases"));
  EXPECT_THAT(suite_error(R"({"cases": ["rmsnorm T=1 H=64"], "modes": ["hopper"]})"), HasSubstr("hopper"));
  EXPECT_THAT(suite_error(R"({"cases": ["rmsnorm T=1 H=64", "rmsnorm H=64 T=1"]})"), HasSubstr("twice"));
  EXPECT_THAT(suite_error(R"({"case": ["rmsnorm T=1 H=64"]})"), HasSubstr("unknown field"));
  EXPECT_THAT(suite_error(R"({"cases": [3]})"), HasSubstr("cases"));
  EXPECT_THAT(suite_error("{"), HasSubstr("bad.json"));
}

TEST_F(Records, TheSameSuiteGivesTheSameRecordForEveryThreadCountAndTier) {
  Exec one, three;
  one.threads = 1;
  one.isa = available_isas().front();
  three.threads = 3;
  make_record(suite(), path("a"), one);
  make_record(suite(), path("b"), three);
  EXPECT_EQ(helpers::read_raw(path("a/record.json")), helpers::read_raw(path("b/record.json")));
  for (const VerifiedCase& c : verify_record(read_record(path("a")), {}, three)) EXPECT_EQ(c.state, CaseState::same) << c.remark;
  std::size_t steps = 0;
  EXPECT_FALSE(first_difference(path("a"), path("b"), steps).has_value());
  EXPECT_EQ(steps, 4U);
}

TEST_F(Records, AChangedBitIsFoundByOpCaseOutputAndPart) {
  make_record(suite(), path("a"), {});
  Record record = read_record(path("a"));
  RecordedOutput& output = record.cases[1].modes.at("fast")[0];
  output.digest[0] = output.digest[0] == '0' ? '1' : '0';
  output.parts[2][0] = output.parts[2][0] == '0' ? '1' : '0';
  const auto results = verify_record(record, {}, {});
  EXPECT_EQ(results[0].state, CaseState::same);
  ASSERT_EQ(results[1].state, CaseState::different);
  EXPECT_EQ(results[1].difference->op, "rmsnorm");
  EXPECT_EQ(results[1].difference->output, "output");
  // 192 elements in 64 parts of 4: the third part begins at element 8.
  EXPECT_THAT(results[1].difference->what, HasSubstr("first among the elements [0, 8] to [0, 11]"));
  EXPECT_EQ(verify_record(record, Mode::golden, {})[1].state, CaseState::same) << "only the fast mode's bits were changed";
}

TEST_F(Records, WithTensorsTheFirstElementAndBothValuesAreNamed) {
  make_record(suite(R"(["rmsnorm T=3 H=64"])", true), path("a"), {});
  Record record = read_record(path("a"));
  const std::string tensors = path("a/") + record.cases[0].tensors.at("fast");
  Tensor changed = io::SafetensorsFile::open(tensors).tensor("output").clone();
  quant::set_bits(changed, 70, quant::get_bits(changed, 70) ^ 1);
  io::write_safetensors(tensors, {{"output", changed}});
  record.cases[0].modes.at("fast")[0].digest = "0";
  const auto results = verify_record(record, Mode::fast, {});
  ASSERT_TRUE(results[0].difference.has_value());
  EXPECT_THAT(results[0].difference->what, HasSubstr("1 of 192 elements, first [1, 6]: "));
}

TEST_F(Records, AChangedContractIsReportedAsSuchAndIsNoNumericFailure) {
  make_record(suite(R"(["rmsnorm T=3 H=64"])"), path("a"), {});
  const std::string now = std::to_string(registry().at("rmsnorm").contract_version());
  edit(path("a"), "\"contract_version\": " + now, "\"contract_version\": 987");
  const auto results = verify_record(read_record(path("a")), {}, {});
  EXPECT_EQ(results[0].state, CaseState::contract_changed);
  EXPECT_THAT(results[0].remark, HasSubstr("from version 987 to " + now));
}

TEST_F(Records, ChangedInputsAreToldFromChangedOutputs) {
  make_record(suite(R"(["rmsnorm T=3 H=64"])"), path("a"), {});
  Record record = read_record(path("a"));
  record.cases[0].inputs.at("in.weight") = "0";
  const auto results = verify_record(record, {}, {});
  EXPECT_EQ(results[0].state, CaseState::inputs_changed);
  EXPECT_THAT(results[0].remark, HasSubstr("another in.weight"));
}

TEST_F(Records, AnInterruptedRecordIsTakenUpWhereItStopped) {
  make_record(suite(), path("whole"), {});
  // Stop in the third case, as a kill would: two whole lines and a cut one.
  struct Stop {};
  try {
    make_record(suite(), path("cut"), {}, [](const RecordProgress& p) {
      if (p.done == 2) throw Stop{};
    });
    FAIL();
  } catch (const Stop&) {
  }
  EXPECT_FALSE(fs::exists(path("cut/record.json")));
  std::ofstream(path("cut/record.partial.jsonl"), std::ios::app) << R"({"line": "silu_and_)";
  EXPECT_THROW(read_record(path("cut")), Error);
  std::size_t resumed = 0;
  make_record(suite(), path("cut"), {}, {}, &resumed);
  EXPECT_EQ(resumed, 2U);
  EXPECT_EQ(helpers::read_raw(path("cut/record.json")), helpers::read_raw(path("whole/record.json")));
  EXPECT_FALSE(fs::exists(path("cut/record.partial.jsonl")));
}

TEST_F(Records, TheOldRecordStaysWhileTheNewOneIsMade) {
  make_record(suite(R"(["rmsnorm T=3 H=64"])", true), path("a"), {});
  const std::string before = helpers::read_raw(path("a/record.json"));
  struct Stop {};
  EXPECT_THROW(make_record(suite(), path("a"), {}, [](const RecordProgress&) { throw Stop{}; }), Stop);
  EXPECT_EQ(helpers::read_raw(path("a/record.json")), before);
  EXPECT_EQ(verify_record(read_record(path("a")), {}, {})[0].state, CaseState::same);
  // Another suite's parts are of no use to this one.
  std::size_t resumed = 7;
  make_record(suite(), path("a"), {}, {}, &resumed);
  EXPECT_EQ(resumed, 0U);
  EXPECT_TRUE(fs::is_empty(path("a/tensors"))) << "tensors that no case names are gone";
}

TEST_F(Records, BrokenRecordsAreErrors) {
  make_record(suite(R"(["rmsnorm T=3 H=64"])", true), path("a"), {});
  const std::string good = helpers::read_raw(path("a/record.json"));
  const auto broken = [&](const std::string& text) {
    std::ofstream(path("a/record.json"), std::ios::binary) << text;
    EXPECT_THROW(read_record(path("a")), Error) << text.substr(0, 80);
  };
  broken("");
  broken(good.substr(0, good.size() / 2));
  broken(R"({"format": "something else"})");
  std::string hostile = good;
  const std::size_t at = hostile.find("tensors/");
  hostile.replace(at, 8, "../../x/");
  broken(hostile);
  EXPECT_THROW(read_record(path("nowhere")), Error);
}

TEST_F(Records, DiffStopsAtTheFirstStepThatDiffers) {
  make_record(suite(), path("a"), {});
  make_record(suite(R"(["rmsnorm T=1,3 H=64", "silu_and_mul T=2 D=32 --seed 3"])"), path("b"), {});
  std::size_t steps = 0;
  auto difference = first_difference(path("a"), path("b"), steps);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(steps, 2U);
  EXPECT_THAT(difference->what, HasSubstr("the other one has"));
  make_record(suite(R"(["rmsnorm T=1,3 H=64"])"), path("c"), {});
  difference = first_difference(path("a"), path("c"), steps);
  EXPECT_EQ(difference->what, "only the first one goes on");
}

}  // namespace
}  // namespace dodona::oracle
