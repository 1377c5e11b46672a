// dodona record, verify of a record, diff.
#include "command.h"

namespace dodona::tools_test {
namespace {

class RecordCommand : public Command {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string suite(const std::string& cases) const { return file("suite.json", R"({"cases": )" + cases + "}"); }
};

TEST_F(RecordCommand, ARecordIsMadeVerifiedAndCompared) {
  const std::string lines = suite(R"(["rmsnorm T=1,7 H=64", "silu_and_mul T=2 D=32"])");
  EXPECT_NE(run("record " + lines + " -o " + path("a")).out.find("3 cases recorded in fast and golden modes"), std::string::npos);
  const Output verified = run("verify " + path("a") + " --threads 1 --isa generic");
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_NE(verified.out.find("3 of 3 cases give the recorded bits"), std::string::npos) << verified.out;
  EXPECT_EQ(run("verify --mode golden --op rmsnorm " + path("a")).status, 0);
  ASSERT_EQ(run("record " + lines + " -o " + path("b") + " --json").status, 0);
  EXPECT_EQ(run("diff " + path("a") + " " + path("b")).status, 0);
}

TEST_F(RecordCommand, AChangedRecordFailsWithTheFirstDifference) {
  ASSERT_EQ(run("record " + suite(R"(["rmsnorm T=1,7 H=64"])") + " -o " + path("a")).status, 0);
  fs::copy(path("a"), path("b"));
  std::string text = read_raw(path("b/record.json"));
  const std::size_t at = text.rfind("\"sha256\": \"") + 11;
  text[at] = text[at] == '0' ? '1' : '0';
  file("b/record.json", text);
  const Output verified = run("verify " + path("b"));
  EXPECT_EQ(verified.status, 1);
  EXPECT_NE(verified.out.find("first: DIFFERENT: rmsnorm H=64 T=7"), std::string::npos) << verified.out;
  EXPECT_EQ(json::parse(run("verify --json " + path("b")).out).at("different"), 1);
  const Output compared = run("diff " + path("a") + " " + path("b"));
  EXPECT_EQ(compared.status, 1);
  EXPECT_NE(compared.out.find("1 steps are the same, then"), std::string::npos) << compared.out;
}

TEST_F(RecordCommand, AChangedContractIsNotJudgedAndSaysSo) {
  ASSERT_EQ(run("record " + suite(R"(["rmsnorm T=1 H=64"])") + " -o " + path("a")).status, 0);
  std::string text = read_raw(path("a/record.json"));
  text.replace(text.find("\"contract_version\": "), 20, "\"contract_version\": 98");
  file("a/record.json", text);
  const Output verified = run("verify " + path("a"));
  EXPECT_EQ(verified.status, 2);
  EXPECT_NE(verified.out.find("contract changed"), std::string::npos) << verified.out;
}

TEST_F(RecordCommand, BadSuitesAndRecordsAreOneError) {
  expect_error("record " + suite(R"(["nonesuch T=1"])") + " -o " + path("a"), "nonesuch");
  expect_error("record " + suite(R"(["rmsnorm T=1"])") + " -o " + path("a"), "rmsnorm T=1");
  expect_error("record " + path("nowhere.json") + " -o " + path("a"), "nowhere.json");
  EXPECT_FALSE(fs::exists(path("a"))) << "nothing is begun with a bad suite";
  fs::create_directories(path("half"));
  file("half/record.partial.jsonl", "{}");
  expect_error("verify " + path("half"), "unfinished");
  expect_error("diff " + path("half") + " " + path("nowhere"), "nowhere");
}

}  // namespace
}  // namespace dodona::tools_test
