// dodona check as a user meets it: files of every kind, exit codes, reports.
#include "command.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"

namespace dodona::tools_test {
namespace {

class Check : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    ASSERT_EQ(run("gen rmsnorm T=4 H=64 --seed 1 -o " + path("case")).status, 0);
    golden_output_ = io::SafetensorsFile::open(path("case")).tensor("out.output").clone();
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string npz(const std::string& name, const std::vector<std::pair<std::string, Tensor>>& tensors) const {
    io::write_npz(path(name), tensors);
    return path(name);
  }
  Tensor golden_output_;
};

TEST_F(Check, ACaseAloneJudgesItsOwnOutputs) {
  const Output output = run("check " + path("case"));
  EXPECT_EQ(output.status, 0);
  EXPECT_NE(output.out.find("bits            all equal golden's"), std::string::npos) << output.out;
  EXPECT_EQ(run("check " + (golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors").string()).status, 0);
  EXPECT_EQ(run("check --mode hopper " + (golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors").string()).status, 0);
}

TEST_F(Check, WhatIsReadIsNotWrittenOver) {
  const std::string before = read_raw(path("case"));
  for (const char* option : {" --junit ", " --report "})
    expect_error("check " + path("case") + option + path("case"), "names " + path("case") + ", which is read: it would be lost");
  expect_error("run " + path("case") + " -o " + path("case"), "--output names " + path("case") + ", which is read");
  EXPECT_EQ(read_raw(path("case")), before);
  expect_error("check " + path("case") + " --junit " + path("x") + " --report " + path("./x"), "--junit and --report name one file");
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Check, SomeRowsOfACallAreMadeAndJudgedAlone) {
  const std::string line = "rmsnorm T=4 H=64 --seed 1";
  for (const char* compact : {"", " --compact"}) {
    ASSERT_EQ(run("gen " + line + " --window T=2..4" + compact + " -o " + path("window")).status, 0);
    io::write_safetensors(path("rows"), {{"output", golden_output_.slice(0, 2, 4).clone()}});
    io::write_safetensors(path("others"), {{"output", golden_output_.slice(0, 1, 3).clone()}});
    io::write_safetensors(path("all"), {{"output", golden_output_}});
    EXPECT_EQ(run("check " + path("window") + " " + path("rows")).status, 0);
    EXPECT_EQ(run("check " + path("window") + " " + path("all")).status, 0) << "the window's rows of the whole";
    EXPECT_EQ(run("check " + path("window") + " " + path("others")).status, 1);
  }
  // 9.8 GB, of which two rows are made.
  ASSERT_EQ(run("gen rmsnorm T=600000 H=8192 --window T=524287..524289 -o " + path("huge")).status, 0);
  EXPECT_LT(std::filesystem::file_size(path("huge")), 1000000u);
  expect_error("gen " + line + " --window H=0..1 -o " + path("never"), "independent along T");
  expect_error("gen " + line + " --special one-expert -o " + path("never"), "strikes expert ids, of which this call has none");
}

TEST_F(Check, FilesOfSeveralRunsAreHeldAgainstEachOther) {
  io::write_safetensors(path("a"), {{"output", golden_output_}});
  io::write_npy(path("b.npy"), golden_output_);
  const Tensor other = golden_output_.clone();
  other.as<std::uint16_t>()[3 * 64 + 5] ^= 1u;
  const std::string wrong = npz("c.npz", {{"out.output", other}});
  EXPECT_EQ(run("check --same-bits " + path("a") + " " + path("b.npy")).status, 0);
  const Output differ = run("check --same-bits " + path("a") + " " + wrong + " " + path("b.npy"));
  EXPECT_EQ(differ.status, 1);
  EXPECT_NE(differ.out.find("agree           " + path("a") + ", " + path("b.npy")), std::string::npos) << differ.out;
  EXPECT_NE(differ.out.find("differ          " + wrong), std::string::npos) << differ.out;
  EXPECT_NE(differ.out.find("1 of 256 elements"), std::string::npos) << differ.out;
  EXPECT_NE(differ.out.find("the first at [3, 5]"), std::string::npos) << differ.out;
  const Output report = run("check --json --same-bits " + path("a") + " " + wrong);
  EXPECT_EQ(report.status, 1);
  EXPECT_EQ(json::parse(report.out).at("differences").at(0).at("differing"), 1);
  io::write_safetensors(path("fewer"), {{"output", golden_output_.slice(0, 0, 2).clone()}});
  EXPECT_EQ(run("check --same-bits " + path("fewer") + " " + wrong).status, 0) << "the rows that both have";
  expect_error("check --same-bits " + path("a"), "--same-bits");
  expect_error("check " + path("case") + " --same-bits " + path("a") + " " + wrong, "no case is judged");
  expect_error("check", "CASE");
}

TEST_F(Check, AModeThatNoRecordingConfirmsSaysSo) {
  const std::string line = "cutlass_scaled_fp4_mm M=4 N=32 K=192";
  ASSERT_EQ(run("gen " + line + " -o " + path("fp4")).status, 0);
  ASSERT_EQ(run("run " + line + " --gpu b200 -o " + path("b200.safetensors")).status, 0);
  const Output output = run("check --gpu b200 " + path("fp4") + " " + path("b200.safetensors"));
  EXPECT_EQ(output.status, 0) << output.out << output.err;
  EXPECT_NE(output.out.find("note: blackwell mode is a model of published measurements"), std::string::npos) << output.out;
  EXPECT_EQ(run("check --mode blackwell " + path("fp4") + " " + path("b200.safetensors")).out, output.out);
  EXPECT_EQ(run("check " + path("fp4") + " " + path("b200.safetensors")).out.find("note:"), std::string::npos);
  EXPECT_NE(run("info cutlass_scaled_fp4_mm").out.find("blackwell mode is a model of published measurements"), std::string::npos);
  EXPECT_EQ(run("info rmsnorm").out.find("is a model of"), std::string::npos);
}

TEST_F(Check, OutputsComeAsSafetensorsNpzNpyAndRawCodes) {
  io::write_safetensors(path("plain.safetensors"), {{"output", golden_output_}});
  io::write_safetensors(path("prefixed.safetensors"), {{"out.output", golden_output_}, {"in.input", golden_output_}});
  io::write_npy(path("one.npy"), golden_output_);
  const Tensor raw = golden_output_.bitcast(DType::i16);
  io::write_safetensors(path("raw.safetensors"), {{"output", raw}});
  for (const std::string& file : {path("plain.safetensors"), path("prefixed.safetensors"), path("one.npy"), path("raw.safetensors"),
                                  npz("a.npz", {{"output", golden_output_}}), npz("b.npz", {{"out.output", raw}})})
    EXPECT_EQ(run("check " + path("case") + " " + file).status, 0) << file << run("check " + path("case") + " " + file).err;
}

TEST_F(Check, Fp8OutputsOfTwoTensorsComeAsBytes) {
  ASSERT_EQ(run("gen sgl_per_token_quant_fp8 M=4 K=64 -o " + path("q")).status, 0);
  const auto file = io::SafetensorsFile::open(path("q"));
  const Tensor codes = file.tensor("out.output_q"), scales = file.tensor("out.output_s");
  EXPECT_EQ(run("check " + path("q") + " " + npz("q.npz", {{"output_q", codes.bitcast(DType::u8)}, {"output_s", scales}})).status, 0);
  io::write_npy(path("q.npy"), codes);
  expect_error("check " + path("q") + " " + path("q.npy"), "give an npz or safetensors file");
}

TEST_F(Check, WrongNamesTypesAndShapesAreOneErrorAndNoVerdict) {
  const std::string check = "check " + path("case") + " ";
  expect_error(check + npz("none.npz", {}), "lacks the output output (bf16 [4, 64])");
  expect_error(check + npz("named.npz", {{"outptu", golden_output_}}), "holds 'outptu', which is no output of this call");
  expect_error(check + npz("extra.npz", {{"output", golden_output_}, {"lse", golden_output_}}), "holds 'lse'");
  expect_error(check + npz("type.npz", {{"output", Tensor(DType::f32, {4, 64})}}), "output is f32 [4, 64], expected bf16 [4, 64]");
  expect_error(check + npz("width.npz", {{"output", Tensor(DType::u8, {4, 64})}}), "output is u8 [4, 64], expected bf16 [4, 64]");
  expect_error(check + npz("shape.npz", {{"output", golden_output_.reshape({64, 4})}}), "output is bf16 [64, 4], expected bf16 [4, 64]");
}

TEST_F(Check, UnreadableFilesAreOneErrorAndNoVerdict) {
  const std::string bytes = read_raw(npz("whole.npz", {{"output", golden_output_}}));
  expect_error("check " + path("case") + " " + file("cut.npz", bytes.substr(0, bytes.size() / 2)), "cut.npz");
  expect_error("check " + path("case") + " " + file("empty", ""), "empty");
  expect_error("check " + path("case") + " " + path("nowhere.npz"), "nowhere.npz");
  expect_error("check " + file("cut.safetensors", read_raw(path("case")).substr(0, 300)), "cut.safetensors");
  expect_error("check " + path("case") + " --mode slow", "--mode");
  expect_error("check " + path("case") + " --report " + path("no/such/folder/r.html"), "r.html");
}

TEST_F(Check, AFailureIsExitOneAndExplainsItself) {
  Tensor broken = golden_output_.clone();
  broken.as<std::uint16_t>()[70] = 0x7FC0;
  const std::string actual = npz("broken.npz", {{"output", broken}});
  const Output output = run("check " + path("case") + " " + actual + " --junit " + path("j.xml") + " --report " + path("r.html"));
  EXPECT_EQ(output.status, 1);
  for (const char* part : {"one element: [1, 6]", "NaN where golden has none: 1 elements, first at [1, 6]",
                           "torch.testing.assert_close fails", "reproduce: dodona gen rmsnorm H=64 T=4 --seed 1"})
    EXPECT_NE(output.out.find(part), std::string::npos) << part << "\n" << output.out;
  EXPECT_NE(read_raw(path("j.xml")).find("failures=\"1\""), std::string::npos);
  EXPECT_NE(read_raw(path("r.html")).find("one element: [1, 6]"), std::string::npos);
  const json report = json::parse(run("check --json " + path("case") + " " + actual).out);
  EXPECT_EQ(report.at("outcome"), "FAIL");
  EXPECT_EQ(report.at("outputs")[0].at("worst")[0].at("index"), json({1, 6}));
  EXPECT_EQ(report.at("outputs")[0].at("unexpected_nan"), 1);
}

/// With so large a scale the scores overflow, and the contract leaves everything open.
TEST_F(Check, AVerdictThatComparedNothingIsExitTwo) {
  ASSERT_EQ(run("gen trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=2 pages=2 P=32 W=1 --attr bmm1_scale=1e36 -o " + path("open")).status,
            0);
  const Output text = run("check " + path("open") + " --junit " + path("j.xml") + " --report " + path("r.html"));
  EXPECT_EQ(text.status, 2);
  EXPECT_NE(text.out.find("nothing was compared"), std::string::npos) << text.out;
  EXPECT_NE(read_raw(path("j.xml")).find("failures=\"1\""), std::string::npos);
  EXPECT_NE(read_raw(path("r.html")).find("nothing was compared"), std::string::npos);
  const Output json = run("check --json " + path("open"));
  EXPECT_EQ(json.status, 2);
  EXPECT_NE(json.out.find("\"outcome\": \"vacuous\""), std::string::npos) << json.out;
  const Output verified = run("verify " + path("open"));
  EXPECT_EQ(verified.status, 2);
  EXPECT_NE(verified.out.find("0 pass, 0 fail, 1 vacuous"), std::string::npos) << verified.out;
}

TEST_F(Check, ExplainNamesTheRecipeThatReproducesTheOutputs) {
  ASSERT_EQ(run("gen silu_and_mul T=4 D=64 -o " + path("silu")).status, 0);
  ASSERT_EQ(run("run silu_and_mul T=4 D=64 --dialect trtllm -o " + path("trtllm")).status, 0);
  const std::string check = "check --explain " + path("silu") + " " + path("trtllm");
  const Output output = run(check + " --report " + path("r.html"));
  EXPECT_EQ(output.status, 1);
  EXPECT_NE(output.out.find("reproduced by: computed with gate_order=up_gate instead of gate_up"), std::string::npos) << output.out;
  EXPECT_NE(read_raw(path("r.html")).find("gate_order=up_gate"), std::string::npos);
  EXPECT_EQ(json::parse(run(check + " --json").out).at("explanations").at("found")[0].at("id"), "other-recipe:gate_order=up_gate");
  EXPECT_NE(run(check + " --explain-seconds 0").out.find("time was up"), std::string::npos);
}

TEST_F(Check, CompactCasesAreCheckedAgainstTheirDigests) {
  ASSERT_EQ(run("gen rmsnorm T=4 H=64 --seed 1 --compact -o " + path("compact")).status, 0);
  EXPECT_EQ(run("check " + path("compact")).status, 0);
  EXPECT_EQ(run("check " + path("compact") + " " + npz("a.npz", {{"output", golden_output_}})).status, 0);
  std::string bytes = read_raw(path("compact"));
  const std::size_t at = bytes.find("out.output\\\":\\\"") + 15;
  bytes[at] = bytes[at] == '0' ? '1' : '0';
  expect_error("check " + file("changed", bytes) + " " + path("a.npz"), "a digest of out.output that golden mode does not give");
}

TEST_F(Check, ANewContractIsReportedAsSuch) {
  ASSERT_EQ(run("gen rmsnorm T=4 H=64 --seed 1 --compact -o " + path("compact")).status, 0);
  std::string bytes = read_raw(path("compact"));
  const std::size_t at = bytes.find("out.output\\\":\\\"") + 15, version = bytes.find("contract_version\":\"") + 19;
  bytes[at] = bytes[at] == '0' ? '1' : '0';
  bytes[version] = '9';
  const Output output = run("check " + file("changed", bytes) + " " + npz("a.npz", {{"output", golden_output_}}));
  EXPECT_EQ(output.status, 0);
  EXPECT_NE(output.out.find("the contract went from version 9 to"), std::string::npos) << output.out;
}

}  // namespace
}  // namespace dodona::tools_test
