// The job that mpirun started this process in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/layer/ranks.h"
#include "model/ranks/grid.h"
#include "mpi_calls.h"

namespace dodona::tools {

/// Ranks that mpirun says there are; 1 without it. Known from the environment: nothing is loaded.
std::int64_t started_ranks();

/// In a job of several ranks: goes on in a child, while this process waits for it. A child that is killed is named on stderr with its rank
/// and cause, and the exit code is then 2, at which mpirun ends the other ranks; a rank that loses its parent goes with it. Returns in the
/// child, and at once where there is no job.
void watch_over_this_rank();

/// One rank's place in the job.
class MpiJob {
 public:
  /// Loads the module beside the command, and MPI with it. Throws Error (unsupported) for a build without.
  MpiJob();
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  std::int64_t rank() const { return rank_; }
  std::int64_t ranks() const { return ranks_; }

  const MpiCalls& calls() const { return *calls_; }
  /// What every rank says, by rank.
  std::vector<std::string> gather(const std::string& mine) const;
  /// All ranks call it before they work together: `error` is what keeps this rank from it, empty for nothing; `facts` are names and what
  /// must be the same on every rank. Throws Error naming the first rank that cannot, or that differs from rank 0, and in what; on every
  /// rank the same.
  /// Beside version and contracts, which are always held against each other.
  void agree(const std::string& error, const std::vector<std::pair<std::string, std::string>>& facts) const;

  /// Times of gather calls, for reports.
  struct Tally {
    std::int64_t calls = 0, bytes = 0;
    double seconds = 0;
    Tally operator-(const Tally& before) const { return {calls - before.calls, bytes - before.bytes, seconds - before.seconds}; }
  };
  /// The groups of this rank in the grid, which live as long as the job.
  model::Ranks groups(const model::Grid& grid);
  Tally tally() const;

 private:
  class Group;
  void* module_ = nullptr;
  const MpiCalls* calls_ = nullptr;
  std::int64_t rank_ = 0, ranks_ = 1;
  std::vector<std::unique_ptr<model::RankGroup>> groups_;
};

}  // namespace dodona::tools
