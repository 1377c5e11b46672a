#include "task_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

/// How a task ended on another rank; a rank that has done none yet asks with `task` -1.
struct Answer {
  std::int64_t task = -1;
  bool failed = false;
  std::string bytes;
  ErrorCode code = ErrorCode::bad_value;
  std::string op, argument, message;
};
void fields(auto& parcel, Answer& a) {
  parcel(a.task, a.failed, a.bytes, a.code, a.op, a.argument, a.message);
}

Answer answer_to(std::int64_t task, const TaskRanks::Work& work) {
  Answer answer{.task = task};
  try {
    answer.bytes = work(static_cast<std::size_t>(task));
  } catch (const Error& error) {
    answer.failed = true;
    answer.code = error.code(), answer.op = error.op(), answer.argument = error.argument(), answer.message = error.message();
  } catch (const std::bad_alloc&) {
    answer.failed = true;
    answer.code = ErrorCode::out_of_memory, answer.message = "out of memory";
  } catch (const std::exception& error) {
    answer.failed = true;
    answer.message = error.what();
  }
  return answer;
}

/// Waiting takes no processor from those that work.
constexpr std::chrono::microseconds nap{200};

}  // namespace

TaskRanks::TaskRanks() {
  if (started_ranks() > 1) process_ = std::make_unique<RankProcess>();
}

void TaskRanks::begin(const std::function<std::string()>& make) {
  if (alone())
    make();
  else
    process_->begin([&] { return Facts{{"set of cases", make()}}; });
}

void TaskRanks::share(std::span<const std::size_t> tasks, std::span<const double> costs, const Work& work, const Keep& keep) {
  if (!alone() && !shows()) return work_for_rank_0(work);
  if (!alone()) return serve(tasks, costs, work, keep);
  for (const std::size_t task : tasks) keep(task, work(task));
}

std::string TaskRanks::receive(int& from) const {
  std::int64_t bytes = -1;
  while ((bytes = job().calls().waiting(&from)) < 0) std::this_thread::sleep_for(nap);
  std::string message(static_cast<std::size_t>(bytes), '\0');
  job().calls().receive(from, message.data(), bytes);
  return message;
}

void TaskRanks::work_for_rank_0(const Work& work) {
  Answer answer;
  for (;;) {
    const std::string message = packed(std::move(answer));
    job().calls().send(0, message.data(), static_cast<std::int64_t>(message.size()));
    int from = 0;
    const auto task = unpacked<std::int64_t>(receive(from));
    if (task < 0) return;
    answer = answer_to(task, work);
  }
}

/// Rank 0 works too; a thread of its own deals with the others.
void TaskRanks::serve(std::span<const std::size_t> tasks, std::span<const double> costs, const Work& work, const Keep& keep) {
  std::vector<std::size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::mutex mutex;
  std::size_t next = 0;
  std::exception_ptr failure;
  const auto take = [&] {
    const std::lock_guard lock(mutex);
    return failure || next == order.size() ? std::int64_t{-1} : static_cast<std::int64_t>(tasks[order[next++]]);
  };
  const auto give = [&](const Answer& answer, std::int64_t rank) {
    const std::lock_guard lock(mutex);
    if (failure || answer.task < 0) return;
    try {
      if (answer.failed)
        throw Error(answer.code, answer.op, answer.argument, answer.message + (rank > 0 ? fmt::format(" (rank {})", rank) : ""));
      keep(static_cast<std::size_t>(answer.task), answer.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
  };
  std::thread dealer([&] {
    for (std::int64_t working = job().ranks() - 1; working > 0;) {
      int from = 0;
      give(unpacked<Answer>(receive(from)), from);
      const std::int64_t task = take();
      job().calls().send(from, &task, sizeof task);
      if (task < 0) --working;
    }
  });
  for (std::int64_t task = take(); task >= 0; task = take()) give(answer_to(task, work), 0);
  dealer.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dodona::tools
