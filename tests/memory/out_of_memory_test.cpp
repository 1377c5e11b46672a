// Memory that cannot be had is an error of the call, wherever in it the lack is noticed; nothing outside the outputs is touched.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "../ops/sweep.h"
#include "capi/translate.h"
#include "core/threads.h"
#include "dodona/c.h"
#include "failing_new.h"
#include "tests/errors.h"

namespace dodona {
namespace {

using failing_new::Failure;
using failing_new::Where;

/// A call through the C interface whose every tensor lies between guards.
class GuardedCall {
 public:
  GuardedCall(const Op& op, const Arguments& inputs, Mode mode, int threads) : op_(op), exec_{static_cast<int>(mode), threads, nullptr} {
    prepared_ = oracle::runnable(op, inputs);
    op.prepare(prepared_);
    for (const auto& [name, tensor] : prepared_.tensors) {
      const TensorSpec& spec = *op.schema().find_tensor(name);
      if (!spec.view_of.empty()) continue;
      guards_.push_back(std::make_unique<sweep::Guarded>(tensor, spec.direction != Direction::out, std::byte{0xFF}));
      tensors_.push_back(capi::describe(name, guards_.back()->tensor()));
      read_only_.push_back(spec.direction == Direction::in);
    }
    for (const auto& [name, value] : prepared_.attrs) texts_.push_back(to_string(value));
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      dodona_attr attr{};
      attr.name = prepared_.attrs[i].first.c_str();
      attr.text = texts_[i].c_str();
      attrs_.push_back(attr);
    }
  }

  int run() const {
    dodona_tensors* made = nullptr;
    const int status = dodona_run(op_.name().data(), tensors_.data(), tensors_.size(), attrs_.data(), attrs_.size(), &exec_, &made);
    dodona_tensors_free(made);
    return status;
  }

  void expect_nothing_else_touched(const std::string& what) const {
    for (std::size_t i = 0; i < guards_.size(); ++i) {
      EXPECT_TRUE(guards_[i]->guards_intact()) << what << ": written outside " << tensors_[i].name;
      if (read_only_[i]) EXPECT_TRUE(guards_[i]->unchanged()) << what << ": " << tensors_[i].name << " changed";
    }
  }

  std::vector<std::vector<std::byte>> outputs() const {
    std::vector<std::vector<std::byte>> bytes;
    for (std::size_t i = 0; i < guards_.size(); ++i)
      if (!read_only_[i]) bytes.push_back(sweep::bytes_of(guards_[i]->tensor()));
    return bytes;
  }

 private:
  const Op& op_;
  dodona_exec exec_;
  Arguments prepared_;
  std::vector<std::unique_ptr<sweep::Guarded>> guards_;
  std::vector<dodona_tensor> tensors_;
  std::vector<bool> read_only_;
  std::vector<std::string> texts_;
  std::vector<dodona_attr> attrs_;
};

/// Fails allocation after allocation of a call until it succeeds; returns how many tries failed.
int fail_everywhere(const Op& op, const Arguments& inputs, Mode mode, const std::string& what) {
  GuardedCall honest(op, inputs, mode, 3);
  EXPECT_EQ(honest.run(), DODONA_OK) << what << ": " << dodona_last_error();
  int failed = 0;
  for (std::int64_t successes = 0;; successes += 1 + successes) {
    const GuardedCall call(op, inputs, mode, 3);
    int status = DODONA_OK;
    bool happened = false;
    {
      const Failure failure(successes);
      status = call.run();
      happened = failure.happened();
    }
    const std::string moment = what + ", after " + std::to_string(successes) + " allocations";
    call.expect_nothing_else_touched(moment);
    // Some algorithms of the standard library ask for memory that they can do without: then the call succeeds, with the right outputs.
    EXPECT_TRUE(status == DODONA_OK || (happened && status == DODONA_OUT_OF_MEMORY)) << moment << ": " << dodona_last_error();
    if (status == DODONA_OK) EXPECT_EQ(call.outputs(), honest.outputs()) << moment;
    failed += status == DODONA_OUT_OF_MEMORY ? 1 : 0;
    if (!happened || testing::Test::HasFailure()) return failed;
  }
}

TEST(OutOfMemory, IsAnErrorOfEveryOpInEveryModeAndAtEveryMoment) {
  for (const auto& op : registry().all()) {
    const CaseLine line = sweep::own_lines(*op).front();
    const Arguments inputs = oracle::generate(line);
    for (const Mode mode : op->modes()) {
      if (!op->supports(oracle::runnable(*op, inputs), mode)) continue;
      EXPECT_GT(fail_everywhere(*op, inputs, mode, to_string(line) + " in " + std::string(name(mode)) + " mode"), 0);
      if (HasFailure()) return;
    }
  }
}

TEST(OutOfMemory, InsideAParallelRegionReachesTheCallerOfCAndCpp) {
  const Op& op = registry().at("rmsnorm");
  const Arguments inputs = oracle::generate(parse_case_line("rmsnorm T=16 H=7168"));
  const GuardedCall call(op, inputs, Mode::golden, 4);
  ASSERT_EQ(call.run(), DODONA_OK) << dodona_last_error();
  {
    const Failure failure(0, Where::other_threads);
    EXPECT_EQ(call.run(), DODONA_OUT_OF_MEMORY);
    EXPECT_TRUE(failure.happened());
  }
  EXPECT_STREQ(dodona_last_error_op(), "rmsnorm");
  call.expect_nothing_else_touched("rmsnorm");
  const Error error = helpers::error_from([&] {
    const Failure failure(0, Where::other_threads);
    sweep::run(op, inputs, sweep::exec_of(Mode::golden, 4));
  });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(error.what(), "rmsnorm: needs more memory than can be had");
  EXPECT_EQ(call.run(), DODONA_OK) << "the next call finds everything in order: " << dodona_last_error();
}

TEST(OutOfMemory, AThreadThatCannotBeStartedIsNotLost) {
  std::atomic<int> calls = 0;
  const auto count = [&](std::int64_t) { ++calls; };
  {
    const Failure failure(0, Where::anywhere, true);
    EXPECT_THROW(on_plain_threads(4, 100, count), std::bad_alloc);
  }
  on_plain_threads(4, 100, count);
  EXPECT_GE(calls, 100);
}

/// The first call of the process, with no memory at all, and what it says afterwards.
int first_calls() {
  {
    const Failure failure(0, Where::anywhere, true);
    if (dodona_op_count() != 0 || dodona_op_name(0) != nullptr || dodona_op_schema("rmsnorm") != nullptr) return 1;
    if (dodona_last_error_code() != DODONA_OUT_OF_MEMORY) return 2;
    dodona_version();
    dodona_case* made = nullptr;
    if (dodona_case_from_line("rmsnorm T=4 H=64", nullptr, &made) != DODONA_OUT_OF_MEMORY || made != nullptr) return 3;
    dodona_verdict_html(nullptr);
  }
  if (dodona_op_count() == 0 || dodona_op_name(0) == nullptr || dodona_op_schema("rmsnorm") == nullptr) return 4;
  return std::string(dodona_version()).empty() ? 5 : 0;
}

TEST(OutOfMemory, EvenOfTheFirstCallIsNoEndOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(first_calls()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace dodona
