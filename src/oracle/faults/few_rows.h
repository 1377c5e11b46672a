// Some rows of a large call, where they fail: a mistake that leaves most of them wrong need not be tried on all.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "oracle/cases/window.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Whether what is computed with the mistake is what golden mode makes of some inputs, all of which are known.
bool is_another_call(const Placed& placed);

class FewRows {
 public:
  /// Nothing where rows of the op depend on each other, where there is but one, or where none of them fails.
  static std::unique_ptr<FewRows> of(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                     const JudgeOptions& options);

  /// Whether the mistake leaves more than half of what fails in these rows wrong. False where that cannot be told from some rows: of
  /// mistakes that strike ids or lengths, and of those that take what a row needs from far away in another way than by other inputs.
  bool rule_out(const Placed& placed) const;

 private:
  FewRows(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options, const Window& window);
  bool rule_out_within(const Placed& placed) const;
  bool rule_out_of_whole(const Placed& placed) const;

  const Arguments& whole_;
  Window window_;
  JudgeOptions options_;
  Arguments inputs_;
  NamedTensors actual_;
  GoldenRun golden_;
  Verdict verdict_;
  bool rows_lie_side_by_side_;
  FaultCase call_;
  std::map<std::string, Placed> placed_;
};

}  // namespace dodona::oracle
