// Schedules: what a contract leaves to the kernel, as values of an op's recipe attributes, and the machine whose arithmetic it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// One way in which a kernel may do a call, to the bit.
struct Schedule {
  Mode mode = Mode::hopper;
  std::vector<std::pair<std::string, AttrValue>> attrs;  ///< every recipe attribute that has more than one value to try

  Arguments of(const Arguments& inputs) const;
};

/// `split_k=4`, or `kernel=triton order=ascending`; the machine in front where the op is known on several.
std::string name(const Schedule& schedule, bool with_machine = false);
/// What of it goes into a case line: `--attr split_k=4`; empty where it is what the line says already.
std::string line_options(const Schedule& schedule, const Op& op);

/// Modes whose bits are a GPU's.
std::vector<Mode> gpu_modes(const Op& op);

/// The schedules that the call allows: all values of the recipe attributes that can be counted (words, flags, whole numbers within
/// limits), in all modes with a GPU's bits; those of the call itself first. Throws Error: `unsupported` where there are fewer than two.
std::vector<Schedule> schedules_of(const Op& op, const Arguments& inputs);

}  // namespace dodona::oracle
