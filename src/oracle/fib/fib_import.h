// Cases from FlashInfer-Bench data, and Traces of our own runs on them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "oracle/cases/case_file.h"
#include "oracle/fib/fib_definition.h"

namespace dodona::oracle::fib {

struct ImportOptions {
  std::uint64_t seed = 0;                    ///< of inputs that a workload calls random: theirs have none
  std::vector<std::string> only;             ///< names of Definitions; empty for all
  std::map<std::string, std::int64_t> axes;  ///< a workload for Definitions that have none: var axes
  std::map<std::string, std::string> ops;    ///< Definition name to op, for those that nothing else tells
  int threads = 1;
};

/// What became of one workload (of a Definition, where it has none).
struct Imported {
  std::string definition, uuid, dialect, op;
  std::optional<Case> made;
  std::optional<Workload> workload;
  std::string skipped;             ///< why there is no case, although nothing is wrong: no op of ours does that
  std::string error;               ///< what is wrong with it
  std::vector<std::string> notes;  ///< what was read leniently, left out or made up
};

/// Reads definitions/**/*.json and workloads/**/*.jsonl below `root`, or the *.json of a folder of fi_trace dumps. Each workload is handed
/// over when it was made, so that one at a time is in memory. Throws Error(bad_file) when there is no Definition at all.
void import_set(const std::string& root, const ImportOptions& options, const std::function<void(Imported)>& take);

/// The case of one workload. Only what page tables name is made or read of a paged cache.
/// Throws Error: unsupported where no op of ours does what the Definition says; bad_file and others for what is wrong.
Case import_workload(const Definition& definition, const Workload& workload, const std::string& root, const ImportOptions& options,
                     std::vector<std::string>& notes);

/// Runs the case in `exec`'s mode, judges it against golden mode and writes down both as a Trace (one line of JSON).
std::string trace_of(const Case& c, const Workload& workload, const Exec& exec);

}  // namespace dodona::oracle::fib
