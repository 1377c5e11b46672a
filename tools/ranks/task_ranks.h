// The cases of a suite, shared out to the ranks of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "parcel.h"
#include "rank_process.h"

namespace dodona::tools {

/// The ranks that mpirun started, or this process alone: a command asks for tasks to be done, and rank 0 has what they gave.
class TaskRanks {
 public:
  /// In a job of several ranks: watches over this one, and joins. Made before anything is read or written.
  TaskRanks();

  /// Whether this process is the one that shows and writes.
  bool shows() const { return alone() || job().rank() == 0; }
  bool alone() const { return process_ == nullptr; }

  /// `make` readies this rank's tasks and gives what they depend on: another text on another rank is an error, as are another version and
  /// other contracts. What it throws on any rank ends all: rank 0 says which and why, and nobody returns.
  void begin(const std::function<std::string()>& make);

  using Work = std::function<std::string(std::size_t task)>;
  using Keep = std::function<void(std::size_t task, const std::string& bytes)>;
  /// Does every one of rank 0's tasks once, on whichever rank is free, those of the largest cost first; alone, in order. work(task) gives
  /// bytes, which keep(task, bytes) is given on rank 0, one call at a time, as they come. What `work` or `keep` throws is thrown on rank 0,
  /// when all ranks are through with what they had begun; the others return.
  void share(std::span<const std::size_t> tasks, std::span<const double> costs, const Work& work, const Keep& keep);

  /// As `share`: what each task gave, in the order of the tasks; nothing but on rank 0.
  template <class Make>
  auto results(std::span<const double> costs, const Make& work, const std::function<void(std::size_t done, std::size_t task)>& progress) {
    using Result = decltype(work(std::size_t{}));
    std::vector<Result> all(costs.size());
    if (alone()) {
      for (std::size_t i = 0; i < all.size(); ++i) progress(i, i), all[i] = work(i);
      return all;
    }
    std::vector<std::size_t> tasks(costs.size());
    std::iota(tasks.begin(), tasks.end(), std::size_t{0});
    std::size_t done = 0;
    share(
        tasks, costs, [&](std::size_t i) { return packed(work(i)); },
        [&](std::size_t i, const std::string& bytes) { all[i] = unpacked<Result>(bytes), progress(done++, i); });
    return all;
  }

 private:
  void serve(std::span<const std::size_t> tasks, std::span<const double> costs, const Work& work, const Keep& keep);
  void work_for_rank_0(const Work& work);
  std::string receive(int& from) const;

  MpiJob& job() const { return process_->job(); }

  std::unique_ptr<RankProcess> process_;
};

}  // namespace dodona::tools
