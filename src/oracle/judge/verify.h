// Verifying recorded cases: files and folders of them, judged one by one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "oracle/judge/judge.h"
#include "oracle/judge/sample.h"

namespace dodona::oracle {

/// One case in one mode.
struct CaseResult {
  std::string path, op, name;
  Mode mode = Mode::golden;
  std::optional<Verdict> verdict;  ///< nothing when the case could not be judged
  std::string error;               ///< why not
  bool no_such_mode = false;       ///< the op has no such mode: not judged, and no error
  std::vector<std::string> ignored;
  std::vector<std::string> samples;  ///< of each output, see text_of()
};

/// One line of the table: an op in one mode.
struct OpSummary {
  std::string op;
  Mode mode = Mode::golden;
  int cases = 0, passed = 0, errors = 0;
  std::string judges;  ///< of the outputs, in order
  double max_share = 0;
  Outcome outcome = Outcome::pass;
  std::vector<std::string> defects;
};

/// The case files among `paths` (folders are searched, sorted by name; files of ops that the inventory does not hold, and tables that
/// are no op, are counted in `skipped`). Throws bad_file for a path that does not exist or a named file that is no case.
struct CaseList {
  std::vector<std::string> files;
  std::vector<std::string> unknown_ops;  ///< names of ops that were found and are not in the inventory
  int skipped = 0;
};
CaseList find_cases(const std::vector<std::string>& paths, const std::string& only_op = {});

/// The folders that DODONA_GOLDEN_PATH names, separated by ':'; empty parts are left out.
std::vector<std::string> golden_path();

/// Judges a file in every mode.
std::vector<CaseResult> verify_file(const std::string& file, const std::vector<Mode>& modes, const Exec& exec, const Sample& sample = {});
/// Judges every file in every mode; `progress` is called before each with its number and the total.
std::vector<CaseResult> verify(const std::vector<std::string>& files, const std::vector<Mode>& modes, const Exec& exec,
                               const std::function<void(std::size_t, std::size_t, const std::string&)>& progress = {},
                               const Sample& sample = {});
/// By op (in the order of the inventory), then mode.
std::vector<OpSummary> summarize(const std::vector<CaseResult>& results);

}  // namespace dodona::oracle
