#include "graded_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dodona/error.h"
#include "parcel.h"
#include "rank_process.h"
#include "tools/common.h"

namespace dodona::oracle {

void fields(auto& parcel, GradedCall& c) {
  parcel(c.line, c.kind, c.outcome, c.cause, c.kernel_seconds, c.judge_seconds);
}
void fields(auto& parcel, JudgedCall::Output& o) {
  parcel(o.name, o.digest, o.fails, o.written, o.several, o.one_value);
}
void fields(auto& parcel, JudgedCall& c) {
  parcel(c.index, c.call, c.outputs, c.likely, c.explained, c.notes, c.printed);
}

}  // namespace dodona::oracle

namespace dodona::tools {
namespace {

/// To rank 0: a call, or that there will be no more from this rank, because of an error where it has one.
struct Message {
  bool last = false;
  std::string error;
  oracle::JudgedCall call;
};
void fields(auto& parcel, Message& m) {
  parcel(m.last, m.error, m.call);
}

/// A kernel is no rank: it must not take itself for one, nor have the job's connections.
void forget_the_job() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (const int fd = std::atoi(entry.path().filename().c_str()); fd > 2) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  std::vector<std::string> names;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    for (const char* const prefix : {"OMPI_", "PMIX_", "PMI_", "ORTE_", "PRTE_"})
      if (text.starts_with(prefix)) names.push_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

/// The nonce that rank 0 has, on all ranks. What goes between them lies in memory that other processes of the user can open, so it is
/// written over: the transport has rooms for some pages of messages, which those that follow fill many times.
std::string told(const MpiJob& job, const std::string& nonce) {
  const std::string all = job.gather(nonce).front();
  for (int i = 0; i < 512; ++i) job.gather(std::string(64, '-'));
  return all;
}

std::string receive(const MpiJob& job, int& from, std::int64_t bytes) {
  std::string message(static_cast<std::size_t>(bytes), '\0');
  job.calls().receive(from, message.data(), bytes);
  return message;
}
/// Waiting takes no processor from the kernels.
std::string receive(const MpiJob& job, int& from) {
  std::int64_t bytes = -1;
  while ((bytes = job.calls().waiting(&from)) < 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return receive(job, from, bytes);
}
void send(const MpiJob& job, std::int64_t to, const std::string& message) {
  job.calls().send(static_cast<int>(to), message.data(), static_cast<std::int64_t>(message.size()));
}

/// Makes its calls until rank 0 has enough, and stays until it says so.
void work_for_rank_0(const MpiJob& job, oracle::CallMaker& maker, const std::string& nonce, const oracle::GradePart& part) {
  Message end{.last = true};
  bool enough = false;
  int from = 0;
  try {
    maker.make(nonce, part, [&](oracle::JudgedCall call) {
      send(job, 0, packed(Message{.call = std::move(call)}));
      if (const std::int64_t bytes = job.calls().waiting(&from); bytes >= 0) receive(job, from, bytes), enough = true;
      return !enough;
    });
  } catch (const std::exception& failure) {
    end.error = fmt::format("rank {} of {}: {}", job.rank(), job.ranks(), failure.what());
  }
  send(job, 0, packed(end));
  if (!enough) receive(job, from);
}

/// Makes its own calls, and enters those of all.
class Books {
 public:
  Books(const MpiJob& job, oracle::Grade& grade, std::function<void(int)> progress)
      : job_(job), book_(grade), progress_(std::move(progress)), working_(job.ranks() - 1) {}

  void run(oracle::CallMaker& maker, const oracle::Grade& grade) {
    const oracle::GradePart part{.index = 0, .count = static_cast<int>(job_.ranks())};
    try {
      maker.make(grade.nonce, part, [&](oracle::JudgedCall call) {
        enter(std::move(call));
        int from = 0;
        for (std::int64_t bytes = 0; (bytes = job_.calls().waiting(&from)) >= 0;) take(receive(job_, from, bytes));
        return !said_;
      });
    } catch (const std::exception& failure) {
      error_ = fmt::format("rank 0 of {}: {}", job_.ranks(), failure.what());
      say_enough();
    }
    int from = 0;
    while (working_ > 0) take(receive(job_, from));
    say_enough();
    if (!error_.empty()) throw Error(ErrorCode::bad_value, "", "grade", error_);
  }

 private:
  void enter(oracle::JudgedCall call) {
    book_.add(std::move(call));
    progress_(book_.entered());
    if (book_.ended()) say_enough();
  }
  void take(const std::string& bytes) {
    auto message = unpacked<Message>(bytes);
    if (!message.last) return enter(std::move(message.call));
    --working_;
    if (message.error.empty()) return;
    if (error_.empty()) error_ = message.error;
    say_enough();
  }
  /// Once: a rank waits for it before it leaves.
  void say_enough() {
    if (std::exchange(said_, true)) return;
    for (std::int64_t rank = 1; rank < job_.ranks(); ++rank) send(job_, rank, "enough");
  }

  const MpiJob& job_;
  oracle::GradeBook book_;
  std::function<void(int)> progress_;
  std::int64_t working_;
  bool said_ = false;
  std::string error_;
};

}  // namespace

int grade_over_mpi(const std::function<oracle::GradeRequest()>& ready, const std::function<void(int, int)>& progress,
                   const std::function<int(const oracle::Grade&)>& show) {
  // Ranks whose memory is closed cannot read each other's: all goes through memory that they share.
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  ::setenv("OMPI_MCA_smsc", "^cma", 1);
  RankProcess process;
  forget_the_job();
  MpiJob& job = process.job();
  oracle::GradeRequest request;
  std::unique_ptr<oracle::CallMaker> maker;
  process.begin([&]() -> Facts {
    request = ready();
    maker = std::make_unique<oracle::CallMaker>(request);
    return {
        {"grading", fmt::format("{}\n{} {} {} {}", request.claim, request.calls, request.nonce, name(request.mode), request.same_bits)}};
  });
  int exit_code = exit_pass;
  process.run([&] {
    oracle::Grade grade = maker->begin();
    grade.nonce = told(job, job.rank() == 0 ? grade.nonce : "");
    if (job.rank() == 0) {
      Books(job, grade, [&](int done) { progress(done, request.calls); }).run(*maker, grade);
      exit_code = show(grade);
    } else {
      work_for_rank_0(job, *maker, grade.nonce, {.index = static_cast<int>(job.rank()), .count = static_cast<int>(job.ranks())});
    }
  });
  return exit_code;
}

}  // namespace dodona::tools
