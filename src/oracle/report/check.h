// Checking a kernel's outputs against a case: the verdict, and everything that helps to find out why.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "oracle/cases/case_file.h"
#include "oracle/faults/explain.h"
#include "oracle/judge/pattern.h"
#include "oracle/judge/sample.h"
#include "oracle/judge/statistics.h"

namespace dodona::oracle {

struct OutputCheck {
  OutputVerdict verdict;
  DType dtype = DType::f32;  ///< as stored
  Dims shape;                ///< as stored
  std::string sample;        ///< `64 of 4096 rows, seed 1` where no more was judged
  ErrorStatistics statistics;
  LogicalView view;                    ///< of the compared elements
  std::vector<std::string> relations;  ///< how failing values relate to golden
};

struct CheckResult {
  std::string op, case_name, case_path, actual_path, line;
  int contract_version = 0;
  Outcome outcome = Outcome::pass;
  std::vector<OutputCheck> outputs;
  std::optional<Explained> explained;  ///< when asked for, and something fails
  std::vector<std::string> notes;      ///< what a reader should know of the case itself
  std::string whose;                   ///< bits that fail: the schedule that gives them, if one does
};

/// How long explanations are looked for.
struct ExplainOptions {
  bool on = false;
  double seconds = 60;
  std::function<void(std::size_t, std::size_t, const std::string&)> progress = {};
};

/// Judges `actual` (of the names, types and shapes that load_actual() gives) as the outputs of the case.
CheckResult check(const Case& c, const NamedTensors& actual, const JudgeOptions& options, const ExplainOptions& explaining = {},
                  const Sample& sample = {});
/// The same with golden mode's answer to the case, for those who check many outputs.
CheckResult check(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const JudgeOptions& options,
                  const ExplainOptions& explaining = {});

/// What most likely went wrong, in one line: the first mistake or number that reproduces everything, else how the failing elements of the
/// first failing output relate to golden, else where they lie. Empty where nothing fails.
std::string likely_cause(const CheckResult& result);

/// `, compared as f4_e2m1 codes [130, 256]` where the elements judged are not those stored; else nothing.
std::string compared_as(const OutputCheck& output);

/// Representable numbers between golden and actual at one element, see ulp_distance().
std::int64_t ulps_of(const OutputVerdict& verdict, std::int64_t linear);

}  // namespace dodona::oracle
