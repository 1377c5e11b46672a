// The first rows of a large call: a mistake that leaves most of them wrong need not be tried on all.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "oracle/cases/window.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

class FewRows {
 public:
  /// Nothing where rows of the op depend on each other, where there are not many, or where the first ones are right.
  static std::unique_ptr<FewRows> of(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options);

  /// Whether the mistake leaves more than half of what fails in these rows wrong. False where it may be another one in some rows than in
  /// all: one that takes what a row needs from far away, or that strikes ids or lengths.
  bool rule_out(const Placed& placed) const;

 private:
  FewRows(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options, const Window& window);

  JudgeOptions options_;
  Arguments inputs_;
  NamedTensors actual_;
  GoldenRun golden_;
  Verdict verdict_;
  FaultCase call_;
  std::map<std::string, Placed> placed_;
};

}  // namespace dodona::oracle
