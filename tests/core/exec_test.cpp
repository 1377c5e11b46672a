// Overrides of what is detected, proven in processes of their own: a program reads the environment once.
#include "dodona/exec.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dodona/error.h"
#include "dodona/op.h"
#include "oracle/cases/generate.h"
#include "tests/errors.h"

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
  for (const Mode mode : mode_list) EXPECT_EQ(parse_mode(name(mode)), mode);
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

TEST(Scratch, IsKeptForTheNextCallAndGrows) {
  const ScratchPool pool;
  const std::byte* const first = pool.take(100).as();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(pool.take(50).as(), first);
  EXPECT_EQ(pool.kept(), 100u);
  pool.take(1000);
  EXPECT_EQ(pool.kept(), 1000u) << "what is too small is replaced, not kept beside the larger one";
}

TEST(Scratch, TwoCallsAtOnceDoNotShare) {
  const ScratchPool pool;
  {
    const Scratch a = pool.take(256), b = pool.take(64);
    EXPECT_NE(a.as(), b.as());
    EXPECT_EQ(pool.kept(), 0u);
  }
  EXPECT_EQ(pool.kept(), 320u);
  const std::byte* const small = pool.take(32).as();
  EXPECT_EQ(pool.take(64).as(), small) << "the smallest that is large enough";
  EXPECT_NE(pool.take(65).as(), small);

  std::vector<std::thread> threads;
  std::atomic<int> spoilt = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 1; i <= 300; ++i) {
        const Scratch mine = pool.take(i % 97 * 8 + 8);
        mine.as<int>()[0] = mine.as<int>()[1] = t;
        std::this_thread::yield();
        spoilt += mine.as<int>()[0] != t || mine.as<int>()[1] != t ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(spoilt, 0);
}

TEST(Scratch, AnExecAndItsCopiesShareOnePool) {
  const Exec exec;
  Exec copy = exec;
  copy.mode = Mode::golden;
  const std::byte* const memory = exec.scratch.take(128).as();
  EXPECT_EQ(copy.scratch.take(128).as(), memory);
  EXPECT_EQ(Exec().scratch.kept(), 0u);
}

TEST(Scratch, OutlivesItsPool) {
  auto pool = std::make_unique<ScratchPool>();
  const Scratch scratch = pool->take(64);
  pool.reset();
  scratch.as<int>()[0] = 1;
}

TEST(Scratch, WhatCannotBeHadIsAnError) {
  const ScratchPool pool;
  const Error error = helpers::error_from([&] { pool.take(std::size_t{1} << 60); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
  EXPECT_NE(pool.take(64).as(), nullptr);
}

}  // namespace
}  // namespace dodona
