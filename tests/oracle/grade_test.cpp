#include "oracle/grade/grade.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "dodona/error.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/stopwatch.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/drawn_case.h"
#include "oracle/grade/call_file.h"
#include "oracle/judge/judge.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::oracle {
namespace {

/// Writes outputs over their rooms, as a kernel's process does.
void answer(const std::string& path, const NamedTensors& outputs) {
  const auto file = io::SafetensorsFile::open(path, io::Access::read);
  const auto whole = io::MappedFile::open(path, io::Access::read);
  std::uint64_t end = 0;
  for (const auto& entry : file.entries()) end = std::max(end, entry.end);
  const std::size_t data = whole.bytes().size() - static_cast<std::size_t>(end);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  for (const auto& [name, tensor] : outputs) {
    const io::SafetensorsEntry* entry = file.find("out." + name);
    ASSERT_NE(entry, nullptr) << name;
    const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
    ASSERT_EQ(static_cast<std::uint64_t>(dense.extent_bytes()), entry->end - entry->begin) << name;
    const auto bytes = static_cast<std::size_t>(dense.extent_bytes());
    ASSERT_EQ(::pwrite(fd, dense.data(), bytes, static_cast<off_t>(data + entry->begin)), static_cast<ssize_t>(bytes));
  }
  ::close(fd);
}

class GradedOps : public testing::TestWithParam<const Op*> {};

// What a kernel reads from the file of a call is the call: what it gives there is judged as what it gives here.
TEST_P(GradedOps, FastModePassesThroughTheFileOfACall) {
  const helpers::TempFolder folder;
  const Op& op = *GetParam();
  Kept kept;
  kept.strict = true;
  for (int index = 0; index < 4; ++index) {
    const DrawnCase drawn = drawn_case(op, 11, index, kept);
    SCOPED_TRACE(to_string(drawn.line));
    const CallFile file(folder.file("call" + std::to_string(index)), op, drawn.inputs, 7);
    const Case told = load_case(file.path());
    Arguments arguments = runnable(op, told.inputs);
    op.run(arguments, Exec{});
    answer(file.path(), outputs_of(op, arguments));
    const CallFile::Contents contents = file.read();
    EXPECT_EQ(contents.changed, "");
    EXPECT_EQ(contents.broken, "");
    const Verdict verdict = judge(op, drawn.inputs, contents.outputs, {Mode::golden, Exec{}});
    EXPECT_NE(verdict.outcome, Outcome::fail);
  }
}

std::vector<const Op*> all_ops() {
  std::vector<const Op*> ops;
  for (const auto& op : registry().all()) ops.push_back(op.get());
  return ops;
}
INSTANTIATE_TEST_SUITE_P(Inventory, GradedOps, testing::ValuesIn(all_ops()),
                         [](const auto& tested) { return std::string(tested.param->name()); });

struct OneCall {
  helpers::TempFolder folder;
  const Op& op = registry().at("rmsnorm");
  DrawnCase drawn = drawn_case(op, 1, 0, {parse_case_line("rmsnorm T=3 H=16 --dtype input=f32"), false, true});
  CallFile file{folder.file("call"), op, drawn.inputs, 5};
};

TEST(CallFile, RoomsHoldJunkThatIsRecognisedAgain) {
  const OneCall call;
  const CallFile::Contents contents = call.file.read();
  EXPECT_EQ(contents.untouched, std::vector<std::string>{"output"});
  const CallFile other(call.folder.file("other"), call.op, call.drawn.inputs, 6);
  EXPECT_NE(std::memcmp(contents.outputs[0].second.data(), other.read().outputs[0].second.data(), 3 * 16 * 4), 0);
}

TEST(CallFile, WritingAnInputOrTheHeaderIsSeen) {
  const OneCall call;
  const auto write = [&](off_t at) {
    const int fd = ::open(call.file.path().c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    EXPECT_EQ(::pread(fd, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 1);
    EXPECT_EQ(::pwrite(fd, &byte, 1, at), 1);
    ::close(fd);
  };
  const auto file = io::SafetensorsFile::open(call.file.path(), io::Access::read);
  const auto size = std::filesystem::file_size(call.file.path());
  std::uint64_t end = 0;
  for (const auto& entry : file.entries()) end = std::max(end, entry.end);
  write(static_cast<off_t>(size - end + file.find("in.weight")->begin));
  EXPECT_EQ(call.file.read().changed, "the input weight");
  write(20);
  EXPECT_EQ(call.file.read().changed, "the header of the call's file");
}

TEST(CallFile, ACutFileIsBrokenAndNoCrash) {
  const OneCall call;
  std::filesystem::resize_file(call.file.path(), 100);
  EXPECT_NE(call.file.read().broken, "");
}

TEST(CallFile, GoesWithTheObject) {
  std::string path;
  {
    const OneCall call;
    path = call.file.path();
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_THROW(CallFile(path, call.op, call.drawn.inputs, 1), Error) << "a name is used once";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Grade, CallsOfSeveralProcessesAreThoseOfOneAndFollowFromTheNonce) {
  for (const char* const nonce : {"5eed", "abc"})
    for (const int count : {1, 2, 3, 8}) {
      std::set<int> all;
      std::size_t largest = 0;
      for (int index = 0; index < count; ++index) {
        const std::vector<int> mine = calls_of(nonce, 200, {index, count});
        EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
        for (const int call : mine) EXPECT_TRUE(all.insert(call).second) << call;
        largest = std::max(largest, mine.size());
      }
      EXPECT_EQ(all.size(), 200u);
      EXPECT_LE(largest, 2u * 200u / static_cast<unsigned>(count));
    }
}

// Calls as several processes hand them in: what each says of an earlier one, and where the grading ends, is decided by their numbers alone.
TEST(Grade, ABookGivesTheSameGradeInWhateverOrderCallsCome) {
  std::vector<JudgedCall> calls;
  for (int i = 0; i < 9; ++i) {
    JudgedCall call{.index = i};
    call.call.line = "call " + std::to_string(i);
    call.call.outcome = i == 2 || i == 3 ? CallOutcome::fail : i >= 5 ? CallOutcome::broken : CallOutcome::pass;
    const bool fails = call.call.outcome == CallOutcome::fail;
    if (i < 5) call.outputs = {{.name = "out", .digest = i == 3 ? "d1" : "d" + std::to_string(i), .fails = fails}};
    call.likely = "likely", call.explained = "explained";
    if (i == 4) call.notes = {"a note"};
    call.printed = "printed " + std::to_string(i);
    calls.push_back(call);
  }
  std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int turn = 0; turn < 50; ++turn) {
    Grade grade;
    GradeBook book(grade);
    for (const int i : order) book.add(calls[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(book.ended());
    ASSERT_EQ(book.entered(), 8) << "the third call without an answer is the last";
    EXPECT_EQ(grade.calls[2].cause, "explained") << "the first that is wrong";
    EXPECT_EQ(grade.calls[3].cause, "out is what call 1 gave");
    EXPECT_EQ(grade.notes, (std::vector<std::string>{"a note", "given up after 3 calls in a row without an answer"}));
    EXPECT_EQ(grade.printed, "printed 7");
    std::next_permutation(order.begin(), order.end());
    std::rotate(order.begin(), order.begin() + 5, order.end());
  }
}

TEST(Grade, AScoreCountsWhatCouldHaveFailed) {
  Grade grade;
  const auto add = [&](CallOutcome outcome) { grade.calls.emplace_back().outcome = outcome; };
  EXPECT_FALSE(grade.passes()) << "nothing was called";
  add(CallOutcome::pass), add(CallOutcome::vacuous);
  EXPECT_TRUE(grade.passes());
  EXPECT_EQ(grade.score(), 1);
  add(CallOutcome::vacuous);
  EXPECT_FALSE(grade.passes()) << "most calls could not have failed";
  add(CallOutcome::refused), add(CallOutcome::pass), add(CallOutcome::pass);
  EXPECT_FALSE(grade.passes());
  EXPECT_EQ(grade.score(), 0.75);
}

TEST(DrawnCase, KeepsWhatIsNamedAndDrawsTheRest) {
  const Op& op = registry().at("fused_add_rmsnorm");
  const Kept kept{parse_case_line("fused_add_rmsnorm T=5 --dtype input=f16 --dist ties"), true, true};
  std::set<std::int64_t> widths;
  for (int index = 0; index < 12; ++index) {
    const CaseLine line = drawn_case(op, 2, index, kept).line;
    EXPECT_EQ(line.symbols.at("T"), 5);
    EXPECT_EQ(line.dtypes.at("input"), DType::f16);
    EXPECT_EQ(line.dist, "ties");
    widths.insert(line.symbols.at("H"));
  }
  EXPECT_GT(widths.size(), 3u);
}

TEST(Grade, WhoIsToStopDoesNotWaitForTheKernel) {
  GradeRequest request;
  request.claim = "rmsnorm T=2 H=8";
  request.command = {"/bin/sh", "-c", "sleep 100"};
  request.stopped = [] { return true; };
  const io::Stopwatch clock;
  const Error error = helpers::error_from([&] { grade(request); });
  EXPECT_STREQ(error.what(), "interrupted: call 1 was not graded");
  EXPECT_LT(clock.seconds(), 30);
}

TEST(Grade, NoOtherProcessMayLookIntoTheGraderWhileItGrades) {
  const int before = ::prctl(PR_GET_DUMPABLE);
  GradeRequest request;
  request.claim = "rmsnorm H=16 T=2";
  request.command = {"true", "{call}"};
  request.calls = 1;
  int during = -1;
  grade(request, [&](int, int) { during = ::prctl(PR_GET_DUMPABLE); });
  EXPECT_EQ(during, 0);
  EXPECT_EQ(::prctl(PR_GET_DUMPABLE), before);
}

}  // namespace
}  // namespace dodona::oracle
