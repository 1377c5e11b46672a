// Reports in parts, and what joins them.
#include "command.h"

namespace dodona::tools_test {
namespace {

class Parts : public Command {
 protected:
  /// The command's report whole, and as dodona merge makes it of `count` parts, given in another order.
  void expect_joined(const std::string& arguments, int count) {
    const Output whole = run(arguments + " --json");
    std::string paths;
    for (int i = 1; i <= count; ++i) {
      const std::string part = arguments.substr(0, arguments.find(' ')) + std::to_string(i) + ".json";
      const Output output = run(arguments + " --json --part " + std::to_string(i) + "/" + std::to_string(count));
      paths = file(part, output.out) + " " + paths;
    }
    const Output joined = run("merge " + paths);
    EXPECT_EQ(joined.status, whole.status) << joined.err;
    EXPECT_TRUE(joined.out == whole.out) << joined.out;
    const std::string written = (folder_ / "joined.json").string();
    EXPECT_EQ(run("merge " + paths + " -o " + written).status, whole.status);
    EXPECT_TRUE(read_raw(written) == whole.out);
  }
};

TEST_F(Parts, MakeTheReportOfOneProcess) {
  expect_joined("verify --mode all " + (golden_ / "rmsnorm").string() + " " + (golden_ / "all_reduce").string(), 3);
  expect_joined("alarms all_gather_into_tensor --cases 3", 1);
  const std::string suite = file("suite.json", R"({"cases": ["rmsnorm T=1,7,9 H=64", "silu_and_mul T=2 D=32"]})");
  ASSERT_EQ(run("record " + suite + " -o " + (folder_ / "record").string()).status, 0);
  expect_joined("verify " + (folder_ / "record").string(), 2);
}

TEST_F(Parts, OfAScoreAreItsOpsAndJoinLikeOthers) {
  // All parts would inject every fault of every op; this one is told that it is all.
  const Output part = run("score --cases 1 --json --part 1/100");
  const json report = json::parse(part.out);
  EXPECT_EQ(report["part"]["positions"], (json::array({0, 100}))) << part.err;
  ASSERT_EQ(report["ops"].size(), 2u);
  EXPECT_GT(report["ops"][0]["injected"], 0);
  std::string alone = part.out;
  alone.replace(alone.find("\"count\": 100"), 12, "\"count\": 1");
  const Output joined = run("merge " + file("score.json", alone));
  EXPECT_EQ(joined.status, part.status) << joined.err;
  EXPECT_EQ(json::parse(joined.out), (json{{"ops", report["ops"]}}));
}

TEST_F(Parts, OfARecordMakeThatOfOneProcess) {
  const std::string suite =
      file("suite.json", R"({"name": "s", "cases": ["rmsnorm T=1,7,9 H=64", {"line": "silu_and_mul T=2,3 D=32", "tensors": true}]})");
  const std::string whole = (folder_ / "whole").string(), joined = (folder_ / "joined").string();
  ASSERT_EQ(run("record " + suite + " -o " + whole).status, 0);
  std::string parts;
  for (const char* const part : {"1", "2", "3"}) {
    const std::string folder = (folder_ / part).string();
    ASSERT_EQ(run("record " + suite + " --part " + part + "/3 -o " + folder).status, 0);
    EXPECT_EQ(run("verify " + folder).status, 0);
    parts = folder + " " + parts;
  }
  const Output output = run("merge " + parts + " -o " + joined);
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_TRUE(read_raw(fs::path(whole) / "record.json") == read_raw(fs::path(joined) / "record.json"));
  std::size_t tensors = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(whole) / "tensors")) {
    EXPECT_TRUE(read_raw(entry.path()) == read_raw(fs::path(joined) / "tensors" / entry.path().filename())) << entry.path();
    ++tensors;
  }
  EXPECT_EQ(tensors, 2u) << "one for both modes, whose bits are the same here";
  expect_error("merge " + whole + " -o " + joined, "is no part of a record");
  expect_error("merge " + parts, "--output is missing");
  const std::string first = (folder_ / "1").string(), second = (folder_ / "2").string();
  expect_error("merge " + first + " " + second + " -o " + joined, "lacks part 3/3");
  expect_error("merge " + first + " " + first + " -o " + joined, "is part 1, as");
  const std::string other = file("other.json", R"({"name": "t", "cases": ["rmsnorm T=1,2 H=64"]})");
  ASSERT_EQ(run("record " + other + " --part 2/3 -o " + second + "t").status, 0);
  expect_error("merge " + first + " " + second + "t -o " + joined, "has another suite than");
  expect_error("record " + suite + " --part 4/3 -o " + joined, "--part is '4/3'");
}

TEST_F(Parts, KeepTheVerdictOfTheWhole) {
  const std::string suite = file("suite.json", R"({"cases": ["rmsnorm T=1,7,9 H=64"]})");
  ASSERT_EQ(run("record " + suite + " -o " + (folder_ / "record").string()).status, 0);
  std::string text = read_raw(folder_ / "record/record.json");
  const std::size_t at = text.rfind("\"sha256\": \"") + 11;
  text[at] = text[at] == '0' ? '1' : '0';
  file("record/record.json", text);
  expect_joined("verify " + (folder_ / "record").string(), 2);
  // More parts than cases: a part without one says that nothing was judged, the whole does not.
  expect_joined("verify " + (folder_ / "record").string(), 4);
}

TEST_F(Parts, WhatIsNoPartOrLacksOneIsRefused) {
  const std::string folder = (golden_ / "all_reduce").string();
  for (const char* const wrong : {"0/2", "3/2", "2", "a/b", "1/2x", "-1/2"})
    expect_error("verify --json --part=" + std::string(wrong) + " " + folder, "--part is '" + std::string(wrong) + "', expected I/N");
  expect_error("verify --part 1/2 " + folder, "--part needs --json");
  const std::string first = file("1.json", run("verify --json --part 1/2 " + folder).out);
  const std::string second = file("2.json", run("verify --json --part 2/2 " + folder).out);
  expect_error("merge " + first, "lacks part 2/2 of dodona verify");
  expect_error("merge " + first + " " + first, "is part 1, as");
  const std::string third = file("3.json", run("verify --json --part 3/3 " + folder).out);
  expect_error("merge " + first + " " + third, "is part 3/3 of dodona verify, expected one of 2");
  expect_error("merge " + file("whole.json", run("verify --json " + folder).out), "is no part of a report");
  expect_error("merge " + file("none.json", "[1]"), "is no part of a report");
  std::string shortened = read_raw(second);
  shortened.replace(shortened.find("\"positions\": ["), 14, "\"positions\": [7, ");
  expect_error("merge " + first + " " + file("4.json", shortened), "entries, expected");
}

TEST_F(Parts, TheTablesOfScaleAreWhatTheirCommandsPrint) {
  const std::string page = read_raw(fs::path(DODONA_SOURCE_DIR) / "docs/scale.md");
  std::size_t tables = 0;
  for (std::size_t at = 0; (at = page.find(", by `dodona generate --plan ", at)) != std::string::npos; ++tables) {
    const std::size_t begin = at + 12, end = page.find('`', begin);
    const Output table = run(page.substr(begin, end - begin));
    EXPECT_EQ(table.status, 0) << table.err;
    EXPECT_NE(page.find(table.out, end), std::string::npos) << page.substr(begin, end - begin) << "\n" << table.out;
    at = end;
  }
  EXPECT_EQ(tables, 2u);
}

TEST_F(Parts, ALayerOnSeveralRanksShowsThemAndGivesTheirBits) {
  const std::string step = "layer --preset tiny --layer 1 --batch 2 --kv-len 20,3 ";
  const json whole = json::parse(run(step + "--repeat 1 --json").out);
  const json experts = json::parse(run(step + "--ep 4 --against-whole --json").out);
  EXPECT_EQ(experts["digest"], whole["digest"]);
  EXPECT_EQ(experts["ranks"].size(), 4u);
  EXPECT_EQ(experts["against_whole"]["differing"], 0);
  const Output sums = run(step + "--ep 4 --experts trtllm --against-whole --json");
  EXPECT_EQ(sums.status, 0) << "sums of ranks are rounded: " << sums.err;
  EXPECT_GT(json::parse(sums.out)["against_whole"]["differing"], 0);
  EXPECT_LT(json::parse(sums.out)["against_whole"]["largest"], 0.02 * json::parse(sums.out)["against_whole"]["rms"].get<double>());
  expect_error(step + "--ep 16 --experts trtllm", "on 16 ranks, expected 2, 4, 6 or 8");
  const Output halves = run(step + "--tp 2 --against-whole");
  EXPECT_EQ(halves.status, 0) << halves.err;
  for (const char* part :
       {"on 2 ranks of one process", "rank 1  heads 2 to 3: reads", "all-reduces move", "all ranks end with the same bits",
        "of 512 elements differ, by", "on the way: self.post_attention_layernorm() by", "0 of 8 choices of experts are others"})
    EXPECT_NE(halves.out.find(part), std::string::npos) << part << "\n" << halves.out;
  // One rank has no terms for the norm that adds them up.
  const Output fused = run(step + "--tp 2 --use post_attention_layernorm=trtllm_allreduce_fusion --against-whole --json");
  EXPECT_EQ(fused.status, 0) << fused.err;
  const json behind = json::parse(fused.out)["against_whole"]["post_attention_layernorm"];
  EXPECT_GT(behind["differing"], 0);
  EXPECT_LT(behind["largest"], 0.03 * behind["rms"].get<double>());
  EXPECT_EQ(json::parse(run(step + "--dual-stream --repeat 1 --json").out)["digest"], whole["digest"]);
  EXPECT_NE(run(step + "--tp 2 --plan").out.find("all_reduce"), std::string::npos);
  expect_error(step + "--tp 3", "--tp is 3, expected 1, 2, 4, 6 or 8");
  expect_error(step + "--tp 8", "num_attention_heads is 4");
  expect_error(step + "--tp 2 --trail x.jsonl", "--trail is given with --tp");
}

}  // namespace
}  // namespace dodona::tools_test
