#include "io/command.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "io/stopwatch.h"
#include "tests/errors.h"

namespace dodona::io {
namespace {

using Kind = Command::Answer::Kind;

TEST(Command, AnswersAreTheLinesThatBeginWithAWordThatWasNamed) {
  Command command({"/bin/sh", "-c", "while read x; do echo noise; echo \"done $x\"; done"});
  const Command::Answer first = command.ask("one", {"done one"}, 10);
  EXPECT_EQ(first.kind, Kind::line);
  EXPECT_EQ(first.text, "done one");
  EXPECT_EQ(command.ask("two", {"failed", "done"}, 10).text, "done two");
  EXPECT_EQ(command.printed(), "noise\nnoise\n");
  EXPECT_EQ(command.wait(10).status, 0) << "its stdin was closed";
}

TEST(Command, AnEndInsteadOfAnAnswerIsToldWithItsStatus) {
  Command exits({"/bin/sh", "-c", "read x; echo last words; exit 7"});
  EXPECT_EQ(exits.ask("one", {"done"}, 10).kind, Kind::ended);
  EXPECT_EQ(exits.wait(0).status, 7);
  EXPECT_EQ(exits.printed(), "last words\n");
  Command killed({"/bin/sh", "-c", "read x; kill -9 $$"});
  EXPECT_EQ(killed.ask("one", {"done"}, 10).kind, Kind::ended);
  EXPECT_EQ(killed.wait(0).status, 128 + 9);
}

TEST(Command, WritingToWhatHasEndedIsNoSignal) {
  Command command({"/bin/true"});
  command.wait(10);
  EXPECT_EQ(command.ask("one", {"done"}, 10).kind, Kind::ended);
}

TEST(Command, WhatDoesNotAnswerIsEndedWithItsChildren) {
  const Stopwatch clock;
  Command command({"/bin/sh", "-c", "sleep 100 & sleep 100"});
  EXPECT_EQ(command.ask("one", {"done"}, 0.2).kind, Kind::timed_out);
  EXPECT_LT(clock.seconds(), 30);
  EXPECT_EQ(run_command("sleep 100", 0.1).timed_out, true);
}

TEST(Command, WhatIsWaitedForEndsWhenTheCallerIsToStop) {
  const Stopwatch clock;
  const auto at_once = [] { return true; };
  EXPECT_TRUE(run_command("sleep 100", 60, at_once).timed_out);
  Command command({"/bin/sh", "-c", "sleep 100"}, Command::End::by_itself, at_once);
  EXPECT_EQ(command.ask("one", {"done"}, 60).kind, Kind::timed_out);
  EXPECT_LT(clock.seconds(), 30);
}

TEST(Command, OnlyTheEndOfWhatIsPrintedIsKept) {
  const CommandResult result = run_command("seq 1 20000; echo end >&2; exit 3", 60);
  EXPECT_EQ(result.status, 3);
  EXPECT_LE(result.output.size(), 4096u);
  EXPECT_NE(result.output.find("20000"), std::string::npos);
}

TEST(Command, AProgramThatIsNotThereIsAnError) {
  const Error error = helpers::error_from([&] { Command command({"no-such-program"}); });
  EXPECT_EQ(error.code(), ErrorCode::bad_option);
  EXPECT_NE(std::string(error.what()).find("'no-such-program' cannot be started"), std::string::npos) << error.what();
  EXPECT_THROW(Command({}), Error);
}

}  // namespace
}  // namespace dodona::io
