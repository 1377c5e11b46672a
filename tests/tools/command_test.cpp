// The command as a user meets it: exit codes, JSON, and one clear error for each kind of bad input.
#include "command.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "dodona/op.h"

namespace dodona::tools_test {
namespace {

TEST_F(Command, HelpIsEverywhere) {
  for (const char* arguments : {"--help", "list --help", "info --help", "run --help", "verify --help", "gen --help", "check --help",
                                "record --help", "diff --help", "shrink --help", "audit --help", "layer --help", "shapes --help",
                                "spec --help", "synth --help", "inspect --help", "doctor --help"}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, 0) << arguments;
    EXPECT_FALSE(output.out.empty()) << arguments;
  }
  EXPECT_EQ(run("--version").status, 0);
}

TEST_F(Command, AuditCountsFaultsAndSaysWhatTheCustomaryCheckMisses) {
  const Output output = run("audit shuffle_rows --json --strict");
  EXPECT_EQ(output.status, 0) << output.err;
  const json audit = json::parse(output.out).at("ops").at(0);
  EXPECT_EQ(audit.at("op"), "shuffle_rows");
  EXPECT_GT(audit.at("injected"), 20);
  EXPECT_EQ(audit.at("injected"), audit.at("caught"));
  EXPECT_GE(json::parse(run("audit --faults --json").out).size(), 40u);
  expect_error("audit no_such_op", "there is no op");
}

TEST_F(Command, ListJsonIsAnArrayOfOps) {
  const json list = json::parse(run("list --json").out);
  ASSERT_TRUE(list.is_array());
  EXPECT_GE(list.size(), 16u);
  for (const auto& op : list)
    for (const char* key : {"name", "category", "sources", "modes"}) EXPECT_TRUE(op.contains(key));
}

TEST_F(Command, TheInventoryOfKernelsTellsWhichAreIn) {
  const json kernels = json::parse(run("list --inventory --json").out);
  EXPECT_EQ(kernels.size(), 60u) << "the kernels that were counted";
  std::set<std::string> names;
  std::size_t in = 0;
  for (const auto& kernel : kernels) {
    const std::string name = kernel.at("name");
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    for (const char* key : {"source", "category", "used_by"}) EXPECT_FALSE(kernel.at(key).get<std::string>().empty()) << name << " " << key;
    const Op* op = registry().find(name);
    EXPECT_EQ(kernel.at("in").get<bool>(), op != nullptr) << name;
    in += op != nullptr ? 1 : 0;
    if (op != nullptr)
      EXPECT_NE((", " + to_string(op->info().sources) + ",").find(", " + kernel.at("source").get<std::string>() + ","), std::string::npos)
          << name << ": the op has other sources";
  }
  EXPECT_EQ(run("list --inventory").out.rfind("kernel", 0), 0u);
  EXPECT_NE(run("list --inventory").out.find("\n" + std::to_string(in) + " of the inventory's 60 kernels are in"), std::string::npos);
}

TEST_F(Command, InfoKnowsEveryOpInTextAndJson) {
  for (const auto& op : json::parse(run("list --json").out)) {
    const std::string name = op.at("name");
    EXPECT_NE(run("info " + name).out.find("contract"), std::string::npos);
    EXPECT_EQ(json::parse(run("info --json " + name).out).at("name"), name);
  }
}

TEST_F(Command, InfoNamesTheMistakesThatAnOpDeclares) {
  EXPECT_NE(run("info moe_fused_gate").out.find("bias-in-weights: the weights are made of score + bias"), std::string::npos);
  EXPECT_EQ(json::parse(run("info --json sgl_per_token_quant_fp8").out).at("mistakes").at(0).at("id"), "maximum-without-magnitude");
}

TEST_F(Command, RunWritesItsOutputsAndTheSameDigestForTheSameLine) {
  const std::string path = (folder_ / "out.safetensors").string();
  const Output first = run("run rmsnorm T=3 H=64 --seed 5 --json -o " + path);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(fs::exists(path));
  const json a = json::parse(first.out), b = json::parse(run("run rmsnorm T=3 H=64 --seed 5 --json --threads 2 --isa generic").out);
  EXPECT_EQ(a.at("outputs"), b.at("outputs"));
}

TEST_F(Command, RunTakesACaseFile) {
  EXPECT_EQ(run("run --mode golden " + (golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors").string()).status, 0);
}

TEST_F(Command, AGpuIsAnotherNameOfItsMode) {
  const std::string line = "run bmm_fp8 L=1 M=2 N=16 K=64 --json ";
  const auto digest = [&](const std::string& how) { return json::parse(run(line + how).out).at("outputs"); };
  EXPECT_EQ(digest("--gpu h200"), digest("--mode hopper"));
  EXPECT_EQ(digest("--gpu l40s"), digest("--mode ada"));
  EXPECT_EQ(digest("--gpu b200 --mode blackwell"), digest("--mode blackwell"));
  EXPECT_NE(digest("--gpu b200"), digest("--gpu h100"));
  expect_error(line + "--gpu v100", "--gpu must be one of h100, h200, b200, l40s, a100, got 'v100'");
  expect_error(line + "--gpu b200 --mode hopper", "--gpu b200 is blackwell mode, but --mode asks for hopper");
  expect_error(line + "--gpu a100", "bmm_fp8: has no ampere mode, expected fast, golden, hopper, blackwell or ada");
  expect_error("check --gpu h300 x", "--gpu must be one of");
  expect_error("verify --mode slow x", "--mode must be all, fast, golden, hopper, blackwell, ada or ampere, got 'slow'");
}

TEST_F(Command, RecordingsAreHeldAgainstTheGpuThatMadeThem) {
  // An H200's.
  const Output output = run("verify --json --mode all " + (golden_ / "bmm_fp8").string());
  EXPECT_EQ(output.status, 0) << output.out << output.err;
  const json report = json::parse(output.out);
  int hopper = 0;
  for (const json& result : report.at("cases")) {
    const bool other = result.at("mode") == "blackwell" || result.at("mode") == "ada" || result.at("mode") == "ampere";
    if (other) EXPECT_EQ(result.at("outcome"), "no such mode");
    hopper += result.at("mode") == "hopper" && result.at("outcome") == "pass";
  }
  EXPECT_GT(hopper, 0);
}

TEST_F(Command, VerifyPassesTheRecordedCasesAndPrintsATable) {
  const Output output = run("verify --mode all --op rmsnorm " + golden_.string());
  EXPECT_EQ(output.status, 0) << output.out << output.err;
  for (const char* column : {"op", "cases", "mode", "judge", "budget used", "verdict", "golden", "fast", "hopper"})
    EXPECT_NE(output.out.find(column), std::string::npos) << column;
}

TEST_F(Command, VerifyFailsOnATamperedRecordingAndSaysWhere) {
  std::string bytes = read_raw(golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors");
  // The high byte of the last recorded element, which is an output: bf16 tensors end with out.output.
  bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 0x10);
  const Output output = run("verify " + file("tampered.safetensors", bytes));
  EXPECT_EQ(output.status, 1) << output.out << output.err;
  EXPECT_NE(output.out.find("[32, 511]"), std::string::npos) << output.out;
  EXPECT_NE(output.out.find("reproduce:"), std::string::npos);
}

TEST_F(Command, VerifyJsonHoldsTheVerdicts) {
  const json report = json::parse(run("verify --json --op rmsnorm " + golden_.string()).out);
  EXPECT_EQ(report.at("failed"), 0);
  EXPECT_EQ(report.at("errors"), 0);
  EXPECT_GT(report.at("cases").size(), 0u);
}

TEST_F(Command, GoldenPathIsSearchedWhenNoPathIsGiven) {
  EXPECT_EQ(run("verify --op rmsnorm", "DODONA_GOLDEN_PATH=" + golden_.string()).status, 0);
  expect_error("verify", "needs a case file or folder");
}

TEST_F(Command, DoctorNamesTiersThreadsAndBlas) {
  const Output output = run("doctor --no-measure");
  EXPECT_EQ(output.status, 0);
  for (const char* word : {"tiers", "threads", "OpenMP", "BLAS"}) EXPECT_NE(output.out.find(word), std::string::npos) << word;
  EXPECT_TRUE(json::parse(run("doctor --no-measure --json").out).contains("tiers"));
}

TEST_F(Command, DoctorMeasuresTheNamedLimitsAlone) {
  const json limits = json::parse(run("doctor --json --limits F,V --threads 1").out).at("limits");
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].at("threads"), 1);
  EXPECT_GT(limits[0].at("F_GFLOPps").get<double>(), 0);
  EXPECT_GT(limits[0].at("V_GOPps").get<double>(), 0);
  EXPECT_FALSE(limits[0].contains("R_GBps"));
  for (const std::string wrong : {"X", "RF", "R --no-measure"}) {
    const Output refused = run("doctor --limits " + wrong);
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_NE(refused.err.find("--limits"), std::string::npos) << refused.err;
  }
}

TEST_F(Command, DoctorSaysWhatTheLimitsGoThrough) {
  const Output output = run("doctor --no-measure", "DODONA_LLC_MIB=300");
  EXPECT_NE(output.out.find("300 MiB in the last level (DODONA_LLC_MIB); R, C and U go through 900 MiB: cold\n"), std::string::npos)
      << output.out;
  const json report = json::parse(run("doctor --no-measure --json", "DODONA_LLC_MIB=300").out);
  EXPECT_EQ(report["cold_bytes"], 900 << 20);
  EXPECT_EQ(report["cold"], true);
  for (const char* wrong : {"0", "-1", "65537", "lots", "3.5"}) {
    const Output refused = run("doctor --no-measure", std::string("DODONA_LLC_MIB=") + wrong);
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_NE(refused.err.find("DODONA_LLC_MIB must be a whole number from 1 to 65536"), std::string::npos) << refused.err;
  }
}

TEST_F(Command, DoctorSaysWhetherMatrixTilesAreInUseAndTheyCanBeSwitchedOff) {
  const json as_found = json::parse(run("doctor --no-measure --json").out);
  const Output off = run("doctor --no-measure", "DODONA_AMX=0");
  EXPECT_EQ(off.status, 0);
  EXPECT_NE(off.out.find("products of integers, and of NVFP4, take vectors\n"), std::string::npos) << off.out;
  const Output demanded = run("doctor --no-measure", "DODONA_AMX=1");
  EXPECT_EQ(demanded.status, as_found["amx"] == "in use" ? 0 : 2) << demanded.err;
  if (demanded.status == 2)
    EXPECT_NE(demanded.err.find("DODONA_AMX must be 0 or not set on this machine"), std::string::npos) << demanded.err;
  for (const char* wrong : {"2", "-1", "yes"}) {
    const Output refused = run("doctor --no-measure", std::string("DODONA_AMX=") + wrong);
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_NE(refused.err.find("DODONA_AMX must be a whole number from 0 to 1"), std::string::npos) << refused.err;
    EXPECT_EQ(refused.out, "") << wrong;
  }
}

TEST_F(Command, BadUsageIsExitTwo) {
  for (const char* arguments : {"", "frobnicate", "info", "list --frob", "run", "verify --mode slow x"})
    EXPECT_EQ(run(arguments).status, 2) << arguments;
}

TEST_F(Command, BadInputsGetOneClearErrorAndExitTwo) {
  expect_error("frobnicate", "command 'frobnicate' is not there, expected one of list, info, ");
  expect_error("info rmsnrom", "did you mean rmsnorm?");
  expect_error("run rmsnrom T=1", "did you mean rmsnorm?");
  expect_error("run rmsnorm T=1", "H");
  expect_error("run rmsnorm T=1 H=64 --dtype input=i8", "input");
  expect_error("run rmsnorm T=1 H=64 --attr eps=-1", "eps must be at least 0");
  expect_error("run rmsnorm T=1 H=64 --mode slow", "--mode");
  expect_error("run rmsnorm T=1 H=64 --isa avx9000", "--isa");
  expect_error("run rmsnorm T=100000000 H=100000000", "rmsnorm: input");
  expect_error("run rmsnorm T=4611686018427387904 H=4611686018427387904", "too many elements");
  expect_error("run /nowhere/case.safetensors", "/nowhere/case.safetensors");
  expect_error("verify /nowhere", "does not exist");
  expect_error("verify --op rmsnrom " + golden_.string(), "did you mean rmsnorm?");
}

TEST_F(Command, WhatIsNoNumberIsToldWithWhatIsExpected) {
  expect_error("shapes --preset tiny --layer=-9", "--layer: must be a number from 0, got '-9'");
  expect_error("shapes --preset tiny --layer 1.5", "--layer: must be a whole number of 64 bits, got '1.5'");
  expect_error("whose x --seconds nan", "--seconds: must be a number from 0, got 'nan'");
  expect_error("spec --threshold-single x", "--threshold-single: must be a number, got 'x'");
}

TEST_F(Command, FoldersWithoutCasesAndNamesThatCannotBeLookedUpAreNamed) {
  const std::string nothing = (folder_ / "nothing").string(), round = (folder_ / "round").string();
  fs::create_directory(nothing);
  expect_error("verify " + nothing, nothing + " holds no case file of an op of the inventory");
  expect_error("verify --op bmm_fp8 " + (golden_ / "rmsnorm").string(), "rmsnorm holds no case file of bmm_fp8");
  fs::create_symlink(round, round);
  for (const char* command : {"verify ", "diff ", "merge "})
    expect_error(command + round + " " + nothing, "dodona: " + round + ": Too many levels of symbolic links");
}

TEST_F(Command, HostileFilesGetOneClearErrorAndExitTwo) {
  const std::string good = read_raw(golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors");
  const auto with_header = [](const std::string& header) {
    std::string bytes(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(bytes.data(), &size, 8);
    return bytes + header;
  };
  expect_error("run " + file("empty.safetensors", ""), "empty.safetensors");
  expect_error("run " + file("truncated.safetensors", good.substr(0, good.size() / 2)), "truncated.safetensors");
  expect_error("run " + file("bomb.safetensors", with_header(std::string(100000, '['))), "bomb.safetensors");
  expect_error("run " + file("noop.safetensors", with_header("{}")), "names no op");
  expect_error("run " + file("strange.safetensors", with_header(R"({"__metadata__":{"op":"nonesuch"}})")), "nonesuch");
  expect_error("run " + file("missing.safetensors", with_header(R"({"__metadata__":{"op":"rmsnorm","attrs":"{}"}})")), "input is missing");
  expect_error("run " + file("attrs.safetensors", with_header(R"({"__metadata__":{"op":"rmsnorm","attrs":"{\"eps\":1,\"eps\":2}"}})")),
               "eps");
  std::string strides = R"({"__metadata__":{"op":"rmsnorm","attrs":"{\"strides\":{\"in.input\":[4611686018427387904,1]}}"},)"
                        R"("in.input":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  expect_error("run " + file("strides.safetensors", with_header(strides) + std::string(8, '\0')), "impossible layout");
}

TEST_F(Command, VerifyReportsUnreadableCasesAndStillJudgesTheOthers) {
  const std::string bad = file("bad.safetensors", "not a case");
  const Output output = run("verify " + bad + " " + (golden_ / "rmsnorm/p03_bf16_t33_h512.safetensors").string());
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.out.find("bad.safetensors"), std::string::npos);
  EXPECT_NE(output.out.find("1 verdict: 1 pass, 0 fail; 1 case could not be judged\n"), std::string::npos) << output.out;
}

TEST_F(Command, NothingIsLeftBehindWhenAnOutputCannotBeWritten) {
  expect_error("run rmsnorm T=1 H=64 -o " + (folder_ / "no/such/folder/out.safetensors").string(), "out.safetensors");
  EXPECT_FALSE(fs::exists(folder_ / "no"));
}

TEST_F(Command, WhatDoesNotReachStdoutIsOneClearErrorHoweverLittleItIs) {
  const std::string full = " >/dev/full";
  for (const std::string& arguments :
       {std::string("--version"), std::string("list"), std::string("info rmsnorm"),
        std::string("synth unused --preset tiny --layers 0 --plan"), std::string("doctor --no-measure"),
        std::string("generate --preset tiny --prompt-ids 1 --max-new 1 --quiet"), std::string("generate --preset tiny --plan"),
        "verify --mode fast " + (golden_ / "rmsnorm").string()}) {
    const Output output = run(arguments + full);
    EXPECT_EQ(output.status, 2) << arguments;
    EXPECT_TRUE(output.err.starts_with("dodona: cannot write to stdout")) << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
}

TEST_F(Command, NoColorCodesReachAPipe) {
  EXPECT_EQ(run("verify --mode golden --op rmsnorm " + golden_.string()).out.find("\033["), std::string::npos);
}

}  // namespace
}  // namespace dodona::tools_test
