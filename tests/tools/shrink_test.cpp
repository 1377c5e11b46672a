// dodona shrink with commands that are right, wrong, silent, slow and broken.
#include <cstdlib>

#include "command.h"

namespace dodona::tools_test {
namespace {

class ShrinkCommand : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    ASSERT_EQ(run("gen silu_and_mul T=5 D=24 --seed 3 -o " + path("case")).status, 0);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
};

TEST_F(ShrinkCommand, AFailingKernelIsShrunkToOneElement) {
  // The kernel: the case's line with the halves exchanged. It reads the line from the case file.
  const std::string kernel = file("kernel.sh", R"(#!/bin/sh
line=$(grep -a -o '"line":"[^"]*"' "$1" | sed 's/"line":"//;s/"$//')
)" DODONA_COMMAND R"( run $line --dialect trtllm -o "$2" > /dev/null
)");
  const Output output = run("shrink " + path("case") + " 'sh " + kernel + " {case} {out}' --format safetensors -o " + path("least"));
  EXPECT_EQ(output.status, 1) << output.err << output.out;
  EXPECT_EQ(output.out.substr(0, output.out.find('\n')), "silu_and_mul D=1 T=1 --dist ties") << output.out;
  EXPECT_EQ(run("check " + path("least")).status, 0);
}

TEST_F(ShrinkCommand, CommandsThatFailHangOrWriteNothingAreOneError) {
  const std::string shrink = "shrink " + path("case") + " ";
  expect_error(shrink + "'echo no GPU here >&2; exit 3 #'", "failed with status 3");
  expect_error(shrink + "'true #'", "wrote no");
  expect_error(shrink + "'sleep 30 #' --timeout 0.2", "was not done after 0.2 s");
  expect_error(shrink + "'echo nonsense > {out}'", "actual.npz");
  expect_error("shrink " + (golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors").string() + " true", "only generated cases");
}

/// Ctrl-C while the kernel runs: the folder that they share, here one of the test's own, is empty again.
TEST_F(ShrinkCommand, InterruptedItLeavesNothingBehind) {
  fs::create_directory(folder_ / "tmp");
  const std::string call =
      "TMPDIR=" + path("tmp") + " timeout -s INT 1 " DODONA_COMMAND " shrink " + path("case") + " 'sleep 30 #' 2> " + path("stderr");
  EXPECT_EQ(WEXITSTATUS(std::system(call.c_str())), 124);
  EXPECT_EQ(read_raw(folder_ / "stderr"), "dodona: interrupted: the smallest line was not found\n");
  EXPECT_TRUE(fs::is_empty(folder_ / "tmp"));
}

TEST_F(ShrinkCommand, OutputsThatPassAreNoFailureToShrink) {
  const Output output = run("shrink " + path("case") + " 'cp {case} {out}'");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.out.find("do not fail here"), std::string::npos) << output.out << output.err;
}

}  // namespace
}  // namespace dodona::tools_test
