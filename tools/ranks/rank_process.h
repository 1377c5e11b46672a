// One rank of a job, from the handshake to its end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mpi_job.h"

namespace dodona::tools {

/// Names, and what must be the same on every rank.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The most memory that this process has had.
double peak_megabytes();

class RankProcess {
 public:
  /// Watches over this rank, and joins the job.
  RankProcess();
  MpiJob& job() { return *job_; }

  /// `make` readies this rank and gives what it depends on, which is held against the others'; see MpiJob::agree. What it throws on any
  /// rank ends all with exit code 2, when rank 0 has said which and why: nobody returns then.
  void begin(const std::function<Facts()>& make);
  /// `body` on every rank. One that throws says why and ends, and mpirun ends the others. Gives exit code 0.
  int run(const std::function<void()>& body);

 private:
  std::unique_ptr<MpiJob> job_;
};

}  // namespace dodona::tools
