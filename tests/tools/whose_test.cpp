// dodona whose.
#include "command.h"

namespace dodona::tools_test {
namespace {

class WhoseCommand : public Command {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const std::string line_ = "linear T=8 N=96 K=712 --attr out_dtype=f32";
};

TEST_F(WhoseCommand, AScheduleIsNamedFromALineAndFromAFile) {
  ASSERT_EQ(run("run " + line_ + " --attr split_k=3 --mode hopper -o " + path("out.safetensors")).status, 0);
  const Output named = run("whose \"" + line_ + "\" " + path("out.safetensors"));
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_NE(named.out.find("all bits        hopper split_k=3 = blackwell split_k=3"), std::string::npos) << named.out;
  EXPECT_NE(named.out.find("--attr split_k=3"), std::string::npos) << named.out;
  ASSERT_EQ(run("gen " + line_ + " -o " + path("case.safetensors")).status, 0);
  EXPECT_EQ(run("whose " + path("case.safetensors") + " " + path("out.safetensors")).out, named.out);
  const Output report = run("whose \"" + line_ + "\" " + path("out.safetensors") + " --json");
  EXPECT_EQ(json::parse(report.out).at("answer"), "named");
  EXPECT_EQ(json::parse(report.out).at("found").at(0).at(0).at("attrs").at("split_k"), "3");
  EXPECT_NE(
      run("check " + path("case.safetensors") + " " + path("out.safetensors") + " --mode hopper").out.find("bits of hopper split_k=3"),
      std::string::npos);
}

TEST_F(WhoseCommand, OutputsOfNoScheduleAreNobodys) {
  ASSERT_EQ(run("run " + line_ + " --mode golden -o " + path("out.safetensors")).status, 0);
  const Output none = run("whose \"" + line_ + "\" " + path("out.safetensors"));
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.out.find("none of them made these numbers"), std::string::npos) << none.out;
  EXPECT_EQ(none.out.find("all bits"), std::string::npos);
}

TEST_F(WhoseCommand, OpsWithSeveralSchedulesAreListed) {
  const Output ops = run("whose --ops");
  EXPECT_EQ(ops.status, 0) << ops.err;
  EXPECT_NE(ops.out.find("machine, split_k, chunk_order, block_k, chunks\n"), std::string::npos) << ops.out;
  EXPECT_EQ(ops.out.find("gelu_and_mul"), std::string::npos) << ops.out;
}

TEST_F(WhoseCommand, SomeRowsWillDo) {
  ASSERT_EQ(run("run linear T=3 N=96 K=712 --attr out_dtype=f32 --attr split_k=3 --mode hopper -o " + path("rows.safetensors")).status, 0);
  // Tensors are filled in the order of their elements: three rows of eight are the rows of three.
  EXPECT_EQ(run("whose \"" + line_ + "\" " + path("rows.safetensors") + " --window T=0..3").status, 0);
  EXPECT_EQ(run("whose \"" + line_ + "\" " + path("rows.safetensors") + " --window T=1..4").status, 1);
  const std::string recorded = path("recorded.safetensors");
  ASSERT_EQ(run("gen " + line_ + " --attr split_k=3 --outputs " + path("rows.safetensors") + " --window T=0..3 -o " + recorded).status, 0);
  EXPECT_EQ(run("verify --mode all " + recorded).status, 0);
  EXPECT_EQ(run("check --mode hopper " + recorded).status, 0);
  EXPECT_EQ(run("whose " + recorded).status, 0);
}

TEST_F(WhoseCommand, BadInputGetsOneClearError) {
  ASSERT_EQ(run("run gelu_and_mul T=2 D=64 -o " + path("out.safetensors")).status, 0);
  expect_error("whose \"gelu_and_mul T=2 D=64\" " + path("out.safetensors"), "has one schedule only for this call (gate_order=gate_up)");
  expect_error("whose \"rmsnrom T=2 H=64\" " + path("out.safetensors"), "did you mean rmsnorm?");
  expect_error("whose " + path("no-such-case") + " " + path("out.safetensors"), "does not exist");
  ASSERT_EQ(run("run linear T=2 N=96 K=712 -o " + path("other.safetensors")).status, 0);
  expect_error("whose \"" + line_ + "\" " + path("other.safetensors"), "expected f32 [8, 96]");
  expect_error("whose \"" + line_ + "\" " + path("out.safetensors") + " --window K=0..64", "independent along T");
  expect_error("whose \"" + line_ + "\"", "holds no outputs");
  expect_error("whose", "CASE");
  expect_error("gen " + line_ + " --attr chunk_order=sideways -o " + path("never"), "ascending, descending, by_fours");
  expect_error("run " + line_ + " --attr block_k=256 --attr split_k=4", "K = 712 has 3 tiles of 256");
  expect_error("run rmsnorm T=2 H=64 --mode hopper --attr kernel=vllm", "has no hopper mode with kernel=vllm");
  expect_error("run bmm_fp8 L=1 M=2 N=16 K=512 --attr accumulator=promoted_128 --attr split_k=2 --attr block_k=64", "expected 128 or 256");
  expect_error("gen " + line_ + " --attr split_k=99 -o " + path("never"), "split_k");
}

}  // namespace
}  // namespace dodona::tools_test
