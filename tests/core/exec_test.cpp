// Overrides of what is detected, proven in processes of their own: a program reads the environment once.
#include "dodona/exec.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "dodona/op.h"
#include "oracle/cases/generate.h"

namespace dodona {
namespace {

struct Output {
  std::string text;
  int status;
};

Output shell(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) output.text += buffer.data();
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

const std::string command = DODONA_COMMAND;
const std::string small_run = " run --json rmsnorm T=2 H=64";

TEST(Exec, NamesParseBack) {
  for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper}) EXPECT_EQ(parse_mode(name(mode)), mode);
  for (int i = 0; i < isa_count; ++i) EXPECT_EQ(parse_isa(name(static_cast<Isa>(i))), static_cast<Isa>(i));
  EXPECT_FALSE(parse_isa("avx9000"));
  EXPECT_FALSE(parse_mode("slow"));
}

TEST(Exec, EveryTierCanBeForcedByTheEnvironmentAndByTheFlag) {
  for (const Isa isa : available_isas()) {
    const std::string wanted = "\"isa\": \"" + std::string(name(isa)) + "\"";
    EXPECT_NE(shell("DODONA_ISA=" + std::string(name(isa)) + " " + command + small_run).text.find(wanted), std::string::npos);
    EXPECT_NE(shell("DODONA_ISA=generic " + command + small_run + " --isa " + std::string(name(isa))).text.find(wanted), std::string::npos);
  }
}

TEST(Exec, TheForcedTierIsTheOneThatRuns) {
  // The tracer reports the tier that the call was dispatched to.
  for (const Isa isa : available_isas()) {
    Exec exec;
    exec.isa = isa;
    Isa seen = Isa::neon;
    exec.tracer = [&](const TraceEvent& event) { seen = event.isa; };
    Arguments arguments = oracle::generate(parse_case_line("rmsnorm T=1 H=16"));
    registry().at("rmsnorm").run(arguments, exec);
    EXPECT_EQ(seen, isa);
  }
}

TEST(Exec, ThreadsCanBeForcedByTheEnvironmentAndByTheFlag) {
  EXPECT_NE(shell("DODONA_NUM_THREADS=3 " + command + small_run).text.find("\"threads\": 3"), std::string::npos);
  EXPECT_NE(shell("DODONA_NUM_THREADS=3 " + command + small_run + " --threads 1").text.find("\"threads\": 1"), std::string::npos);
}

TEST(Exec, ImpossibleOverridesAreErrorsThatSayWhatIsPossible) {
  for (const char* setting : {"DODONA_ISA=avx9000", "DODONA_NUM_THREADS=0", "DODONA_NUM_THREADS=two", "DODONA_NUM_THREADS=9999999999999"}) {
    const Output output = shell(std::string(setting) + " " + command + small_run);
    EXPECT_EQ(output.status, 2) << setting << ": " << output.text;
    EXPECT_NE(output.text.find("must be"), std::string::npos) << output.text;
  }
  const Output flag = shell(command + small_run + " --isa avx9000");
  EXPECT_EQ(flag.status, 2);
  EXPECT_NE(flag.text.find("must be one of"), std::string::npos) << flag.text;
}

TEST(Workspace, GrowsAndIsReused) {
  Workspace workspace;
  std::byte* first = workspace.get(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(workspace.get(50), first);
  workspace.get(1000);
  EXPECT_GE(workspace.capacity(), 1000u);
}

}  // namespace
}  // namespace dodona
