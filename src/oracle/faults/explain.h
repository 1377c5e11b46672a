// Which well-known mistake reproduces what a kernel gave?
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

struct Explanation {
  std::string id, text;              ///< of the fault, see Placed
  std::vector<std::string> outputs;  ///< that fail, and would be right if the kernel had made the mistake
  bool complete = false;             ///< all that fail: the actual outputs are those of the fault
  std::int64_t failing = 0;          ///< elements that fail even so
  bool of_all_failing = false;       ///< all outputs that fail would be right, others would not: the mistake is made with these alone
  std::string part = {};             ///< where outputs fail, if those elements alone would all be right
  bool variant = false;              ///< somewhere a documented behaviour: a case line can ask for it
  bool narrow = true;                ///< one number or rule says it all: else what the outputs hold says more, where that is known
};

struct Explained {
  std::vector<Explanation> found;  ///< complete ones, or else those that leave the fewest failures first
  int tried = 0;                   ///< faults that could be replayed
  int left = 0;                    ///< not tried: the time was up
};

/// What would be left of the failures if the kernel had the fault; nothing when the call does not allow it, or when the fault changes
/// nothing of it.
std::optional<Explanation> replay(const Placed& placed, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options);

/// One line per finding, for people.
std::vector<std::string> lines_of(const Explained& explained);

/// Replays the call with every fault of the library that fits it, and keeps those with which the actual outputs pass, whole outputs at a
/// time (or leave less than a tenth of the failures); of these only the ones that pass altogether, if there are any. `golden` is golden
/// mode's answer to the case, `verdict` the failing one. Stops after `seconds`.
Explained explain(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options,
                  double seconds, const std::function<void(std::size_t, std::size_t, const std::string&)>& progress = {});

}  // namespace dodona::oracle
