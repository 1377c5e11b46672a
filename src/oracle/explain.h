// Which well-known mistake reproduces what a kernel gave?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/judge.h"

namespace dodona::oracle {

struct Explanation {
  std::string id, text;              ///< of the mistake
  std::vector<std::string> outputs;  ///< that fail, and would be right if the kernel had made the mistake
  bool complete = false;             ///< all that fail: the actual outputs are those of the mistake
  std::int64_t failing = 0;          ///< elements that fail even so
};

struct Explained {
  std::vector<Explanation> found;  ///< complete ones first, then those that leave the fewest failures
  int tried = 0;                   ///< mistakes that could be replayed
  int left = 0;                    ///< not tried: the time was up
};

/// One line per finding, for people.
std::vector<std::string> lines_of(const Explained& explained);

/// Replays the call under every applicable mistake, and keeps those under which the actual outputs pass, whole outputs at a time (or leave
/// less than a tenth of the failures). `verdict` is the failing one. Stops after `seconds`.
Explained explain(const Case& c, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options, double seconds,
                  const std::function<void(std::size_t, std::size_t, const std::string&)>& progress = {});

}  // namespace dodona::oracle
