#include "rank_process.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>

#include "dodona/error.h"
#include "tools/common.h"

namespace dodona::tools {

double peak_megabytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

RankProcess::RankProcess() {
  watch_over_this_rank();
  job_ = std::make_unique<MpiJob>();
}

void RankProcess::begin(const std::function<Facts()>& make) {
  std::string error;
  Facts facts;
  try {
    facts = make();
  } catch (const std::bad_alloc&) {
    error = "fails: out of memory";
  } catch (const std::exception& failure) {
    error = std::string("fails: ") + failure.what();
  }
  try {
    job_->agree(error, facts);
  } catch (const Error& failure) {
    // All ranks know: one of them says it, and the others stay until it has, for mpirun ends all when the first one goes.
    if (job_->rank() == 0) fmt::print(stderr, "dodona: {}\n", failure.what());
    std::fflush(stderr);
    job_->gather("");
    job_.reset();
    std::exit(exit_cannot);
  }
}

int RankProcess::run(const std::function<void()>& body) {
  const auto give_up = [&](const char* why) {
    // The others would wait for this rank.
    fmt::print(stderr, "dodona: rank {} of {}: {}\n", job_->rank(), job_->ranks(), why);
    std::fflush(stderr);
    std::_Exit(exit_cannot);
  };
  try {
    body();
  } catch (const std::bad_alloc&) {
    give_up("out of memory");
  } catch (const std::exception& failure) {
    give_up(failure.what());
  }
  return exit_pass;
}

}  // namespace dodona::tools
