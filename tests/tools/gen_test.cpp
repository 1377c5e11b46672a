// dodona gen.
#include <cstdlib>

#include "command.h"

namespace dodona::tools_test {
namespace {

class Gen : public Command {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
};

TEST_F(Gen, EveryOptionReachesTheCase) {
  const Output output =
      run("gen moe_fused_gate T=3 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --dtype input_tensor=f16 --dist ties "
          "--seed 4 "
          "--dialect flashinfer --json -o " +
          path("case"));
  ASSERT_EQ(output.status, 0) << output.err;
  const json report = json::parse(output.out);
  EXPECT_EQ(
      report.at("line"),
      "moe_fused_gate E=64 T=3 --dtype input_tensor=f16 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --dist ties --seed 4 "
      "--dialect flashinfer");
  EXPECT_TRUE(report.at("digests").contains("out.topk_ids"));
  EXPECT_EQ(run("verify " + path("case")).status, 0);
}

TEST_F(Gen, TheSameLineGivesTheSameBytes) {
  ASSERT_EQ(run("gen bmm_fp8 L=1 M=3 N=32 K=64 --seed 8 --threads 1 -o " + path("a")).status, 0);
  ASSERT_EQ(run("gen bmm_fp8 N=32 L=1 K=64 M=3 --seed 8 --threads 4 --isa generic -o " + path("b")).status, 0);
  EXPECT_EQ(read_raw(path("a")), read_raw(path("b")));
}

TEST_F(Gen, CompactCasesRunAndVerify) {
  ASSERT_EQ(run("gen rmsnorm T=64 H=7168 --compact -o " + path("c.safetensors")).status, 0);
  EXPECT_LT(fs::file_size(path("c.safetensors")), 2000U);
  EXPECT_EQ(run("run " + path("c.safetensors")).status, 0);
  EXPECT_EQ(run("verify --mode all " + path("c.safetensors")).status, 0);
}

TEST_F(Gen, BadLinesGetOneClearErrorAndLeaveNoFile) {
  const std::string to = " -o " + path("never");
  expect_error("gen rmsnrom T=1" + to, "did you mean rmsnorm?");
  expect_error("gen rmsnorm T=1" + to, "H");
  expect_error("gen rmsnorm T=1 H=64 --dist gaussian" + to, "--dist");
  expect_error("gen rmsnorm T=1 H=64 --dialect cuda" + to, "--dialect");
  expect_error("gen rmsnorm T=1 H=64 -o " + path("no/such/folder/case"), "no/such/folder");
  EXPECT_FALSE(fs::exists(path("never")));
  EXPECT_EQ(run("gen rmsnorm T=1 H=64").status, 2);
}

}  // namespace
}  // namespace dodona::tools_test
