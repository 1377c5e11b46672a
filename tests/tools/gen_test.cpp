// dodona gen, and the NumPy script that makes its inputs anew.
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

/// A Python with NumPy: Debian's, or the one first in the path.
std::string python() {
  for (const char* candidate : {"/usr/bin/python3", "python3"})
    if (std::system((std::string(candidate) + " -c 'import numpy' 2>/dev/null").c_str()) == 0) return candidate;
  return {};
}

TEST_F(Gen, TheNumpyScriptMakesTheSameInputs) {
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no Python with NumPy (Debian: python3-numpy)";
  const std::string script = interpreter + " " DODONA_SOURCE_DIR "/docs/regenerate_inputs.py ";
  // Values, weights, positions, tables of cosines, scales, 8-bit floats, log-sum-exps.
  for (const char* line : {"rmsnorm T=3 H=65 --seed 77 --dist outliers", "merge_state T=2 N=5 D=64 --dist edge",
                           "rotary_embedding T=3 P=64 R=64 Nq=4 --attr head_size=64 --dtype query=f32",
                           "bmm_fp8 L=1 M=3 N=32 K=64 --dist ties", "weak_ref_tensor S=33 --dtype tensor=f4_e2m1 --dist wide-exponent"}) {
    ASSERT_EQ(run(std::string("gen ") + line + " --compact -o " + path("c")).status, 0) << line;
    EXPECT_EQ(std::system((script + path("c") + " > " + path("out")).c_str()), 0) << line << "\n" << read_raw(path("out"));
  }
  // It can fail: another seed gives other bytes.
  std::string bytes = read_raw(path("c"));
  const std::size_t at = bytes.find("\\\"seed\\\":0");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 9] = '1';
  EXPECT_NE(std::system((script + file("other", bytes) + " > " + path("out")).c_str()), 0);
}

}  // namespace
}  // namespace dodona::tools_test
