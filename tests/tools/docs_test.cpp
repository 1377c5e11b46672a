// dodona docs: pages made from the inventory and from the commands' own options.
#include <cstdlib>

#include "command.h"
#include "dodona/op.h"
#include "ops/kernels.h"

namespace dodona::tools_test {
namespace {

class Docs : public Command {
 protected:
  /// The words that bash offers behind `line`, whose last word is the one being typed.
  std::string completions(const std::string& line) const {
    const std::string script = file("completion", run("docs bash").out);
    const std::string shell =
        "source " + script + "; COMP_WORDS=(" + line + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _dodona; " + "echo \"${COMPREPLY[*]}\"";
    const std::string out = (folder_ / "words").string();
    EXPECT_EQ(std::system(("bash -c '" + shell + "' > " + out).c_str()), 0) << line;
    return read_raw(out);
  }
  bool have(const std::string& program) const { return std::system(("command -v " + program + " > /dev/null 2>&1").c_str()) == 0; }
};

void expect_fresh(const std::string& page, const Output& made) {
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(made.out == read_raw(fs::path(DODONA_SOURCE_DIR) / page)) << page << " is stale; make it anew with: tools/docs";
}

TEST_F(Docs, OpsPageIsWhatTheInventoryAndTheRecordingsSay) {
  expect_fresh("docs/ops.md", run("docs ops --recordings " + golden_.string() + " --speeds " DODONA_SOURCE_DIR "/bench/recorded.json"));
}

TEST_F(Docs, CliPageIsWhatTheHelpSays) {
  expect_fresh("docs/cli.md", run("docs cli"));
}

TEST_F(Docs, ReadmeCountsTheKernelsAsTheInventoryDoes) {
  const std::string listed = run("list --inventory").out, sentence = ops::kernels_in_words();
  EXPECT_NE(listed.find(sentence), std::string::npos);
  EXPECT_NE(("\n" + read_raw(fs::path(DODONA_SOURCE_DIR) / "README.md")).find("\n" + sentence + "\n"), std::string::npos)
      << "README.md does not say: " << sentence << "; make it anew with: tools/docs";
  EXPECT_NE(read_raw(fs::path(DODONA_SOURCE_DIR) / "docs/ops.md").find("\n" + sentence + "\n"), std::string::npos);
}

/// Of the layer that the pages show at its real size.
TEST_F(Docs, PagesTellTheDigestOfTheirLayer) {
  const std::string told = run("layer --batch 1 --kv-len 1024").out;
  const std::size_t at = told.find("\ndigest ");
  ASSERT_NE(at, std::string::npos) << told;
  const std::string line = told.substr(at + 1, told.find('\n', at + 1) - at - 1);
  EXPECT_NE(read_raw(fs::path(DODONA_SOURCE_DIR) / "docs/guide.md").find("\n" + line + "\n"), std::string::npos)
      << "docs/guide.md does not say: " << line;
  const std::string cell = "| 1 | one rank | " + line.substr(7, 8) + " |";
  EXPECT_NE(read_raw(fs::path(DODONA_SOURCE_DIR) / "docs/scale.md").find(cell), std::string::npos) << "docs/scale.md has no row " << cell;
}

TEST_F(Docs, OpsPageHasASectionForEveryOp) {
  const std::string page = run("docs ops").out;
  for (const auto& op : registry().all()) EXPECT_NE(page.find("\n### " + std::string(op->name()) + "\n"), std::string::npos) << op->name();
  EXPECT_NE(page.find("no recorded case"), std::string::npos);
}

TEST_F(Docs, OpsPageShowsMeasuredSpeeds) {
  const std::string speeds =
      file("speeds.json", R"({"context": {"date": "2026-01-02T03:04:05", "num_cpus": 2, "mhz_per_cpu": 2000, "isa": "v3",
    "F_GFLOPps threads:1": "250.4"}, "benchmarks": [
    {"name": "rotary_embedding/T=1_Nq=128_--attr_head_size=64_--attr_is_neox=false/threads:2/real_time", "real_time": 1500, "time_unit": "ns",
     "label": "cold", "GB/s": 12.345, "share_of_R": 0.512},
    {"name": "fused_add_rmsnorm/T=1_H=7168/threads:2/real_time", "real_time": 2500, "time_unit": "ns",
     "label": "not cold", "GB/s": 80.5, "share_of_U": 0.93},
    {"name": "golden/linear/T=1_N=7168/threads:1/real_time", "real_time": 0.25, "time_unit": "s", "share_of_F": 0.01, "eigen_ms": 30.5}]})");
  const std::string page = run("docs ops --speeds " + speeds).out;
  EXPECT_NE(page.find("| `T=1 Nq=128 --attr head_size=64 --attr is_neox=false` | fast | 2 | cold | 1.5 us | 12.3 GB/s | 0.51 R | |"),
            page.npos);
  EXPECT_NE(page.find("| `T=1 H=7168` | fast | 2 | not cold | 2.5 us | 80.5 GB/s | 0.93 U | |"), page.npos);
  EXPECT_NE(page.find("| `T=1 N=7168` | golden | 1 | | 250 ms | | 0.01 F | Eigen 30.5 ms |"), page.npos);
  EXPECT_NE(page.find("2 processors at 2000 MHz, instruction set v3, 2026-01-02; F = 250 GFLOP/s on 1 thread(s)"), page.npos);
  EXPECT_NE(run("docs ops").out.find("Speed: not measured."), std::string::npos);
  expect_error("docs ops --speeds " + file("broken.json", "{"), "broken.json");
}

TEST_F(Docs, BashCompletesCommandsOptionsValuesAndOps) {
  EXPECT_EQ(completions("dodona ge"), "gen generate\n");
  EXPECT_EQ(completions("dodona gen --comp"), "--compact\n");
  EXPECT_EQ(completions("dodona gen --dist wi"), "wide-exponent\n");
  EXPECT_EQ(completions("dodona info fused_add"), "fused_add_rmsnorm\n");
  EXPECT_EQ(completions("dodona layer --residual f"), "fused\n");
  EXPECT_EQ(completions("dodona gen -o x"), "\n");  // a file: bash's own completion
}

TEST_F(Docs, ZshScriptParses) {
  ASSERT_TRUE(have("zsh")) << "tools/test installs it";
  EXPECT_EQ(std::system(("zsh -n " + file("_dodona", run("docs zsh").out)).c_str()), 0);
}

TEST_F(Docs, ZshCompletesCommandsOptionsValuesAndOps) {
  ASSERT_TRUE(have("zsh")) << "tools/test installs it";
  file("_dodona", run("docs zsh").out);
  const auto completes = [&](const std::string& line, const std::string& expected) {
    const std::string script = DODONA_SOURCE_DIR "/tests/tools/complete.zsh";
    return std::system(("TERM=dumb timeout 30 zsh -f " + script + " " + folder_.string() + " '" + line + "' '" + expected + "'").c_str()) ==
           0;
  };
  EXPECT_TRUE(completes("dodona info fused_add", "fused_add_rmsnorm "));
  EXPECT_TRUE(completes("dodona gen --dist wi", "wide-exponent "));
}

TEST_F(Docs, ManualPageFormatsWithoutWarnings) {
  const std::string page = run("docs man").out;
  EXPECT_EQ(page.find(".TH DODONA 1"), 0U);
  for (const char* command : {"list", "info", "gen", "check", "verify"})
    EXPECT_NE(page.find(".SS dodona " + std::string(command)), std::string::npos) << command;
  ASSERT_TRUE(have("groff")) << "tools/test installs it";
  const std::string warnings = (folder_ / "warnings").string();
  EXPECT_EQ(std::system(("groff -man -ww -Tutf8 " + file("dodona.1", page) + " > /dev/null 2> " + warnings).c_str()), 0);
  EXPECT_EQ(read_raw(warnings), "");
}

TEST_F(Docs, BadPagesAndFoldersAreRefused) {
  EXPECT_EQ(run("docs nothing").status, 2);
  EXPECT_EQ(run("docs ops --recordings " + (folder_ / "none").string()).status, 2);
  EXPECT_EQ(run("docs").status, 2);
}

}  // namespace
}  // namespace dodona::tools_test
