// Judges: is this what the op should have returned, by how much, and where not?
//
// Every output is held against golden mode's unrounded value: element i passes when it is the rounding of some number within
// slack[i] of exact[i]. `budget` rounds to nearest even with overflow to infinity, `code` saturates as device conversions do; slack 0
// and `exact` ask for equal bits; `grouping` asks for the members of each group, in any order. What follows from choices that the contract
// leaves open is first brought in line (Op::condition).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "oracle/cases/case_file.h"

namespace dodona::oracle {

enum class Outcome {
  pass,
  known_defect,  ///< every failing element is explained by a known upstream defect
  vacuous,       ///< nothing fails, but almost nothing could have: zeros would have passed as well
  fail,
};
std::string_view name(Outcome outcome);

struct ElementReport {
  std::int64_t linear = 0;  ///< row-major index
  Dims index;
  double golden = 0, actual = 0;
  double share = 0;  ///< of the slack that one rounding of it needs to explain the actual value; infinite where the slack is 0
};

/// What an output was held against, element by element.
struct OutputDetail {
  Tensor expected;            ///< golden as the op stores it
  Tensor golden, actual;      ///< as compared: packed codes are one element each; contiguous in row-major counting
  std::vector<double> share;  ///< of the slack, as in ElementReport; 0 where the bits follow; NaN where nothing is compared
  std::vector<double> exact;  ///< golden before its rounding; empty where the judge has only bits
  std::vector<std::int64_t> failing;
};

struct OutputVerdict {
  std::string name;
  Judge judge = Judge::exact;
  Outcome outcome = Outcome::pass;
  std::int64_t elements = 0;
  std::int64_t compared = 0;   ///< elements less the unspecified ones
  std::int64_t differing = 0;  ///< bits differ from golden
  std::int64_t failing = 0;
  double max_share = 0;                        ///< largest share of the budget used by an element that passes
  std::vector<ElementReport> worst;            ///< up to 5, worst first
  std::string pattern;                         ///< of the failing elements: one row, one column, the tail, all...
  std::string defect;                          ///< id of the known defect
  std::shared_ptr<const OutputDetail> detail;  ///< on request
};

struct Verdict {
  Outcome outcome = Outcome::pass;
  std::vector<OutputVerdict> outputs;
  double max_share() const;
  std::int64_t failing() const;
};

/// What the actual outputs are held against.
struct JudgeOptions {
  Mode mode = Mode::golden;  ///< golden: the budget; fast: the budget, and the fast outputs must pass it too; a GPU's: equal bits
                             ///< (`grouping` as ever)
  Exec exec = {};            ///< threads and ISA (its mode is not used)
  bool details = false;      ///< keep every element's share
};

/// Golden mode's answer to one case: any number of actual outputs can be held against it.
struct GoldenRun {
  NamedTensors outputs;
  Reference reference;
  unsigned inner = 0;  ///< which functions that many kernels share it met on its way: bits of Inner
};
/// With the flaw that `exec` has, if it has one.
GoldenRun run_golden(const Op& op, const Arguments& inputs, const Exec& exec);

/// Judges `actual` as the outputs of `op` for `inputs`. Throws Error when the outputs do not have the op's names, types and shapes.
Verdict judge(const Op& op, const Arguments& inputs, const NamedTensors& actual, const JudgeOptions& options);
Verdict judge(const Op& op, const Arguments& inputs, const GoldenRun& golden, const NamedTensors& actual, const JudgeOptions& options);

}  // namespace dodona::oracle
