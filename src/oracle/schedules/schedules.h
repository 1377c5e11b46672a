// Schedules: what a contract leaves to the kernel, as values of an op's recipe attributes, and the machine whose arithmetic it is.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// One way in which a kernel may do a call, to the bit.
struct Schedule {
  Mode mode = Mode::hopper;
  std::vector<std::pair<std::string, AttrValue>> attrs;  ///< every recipe attribute that has more than one value to try

  Arguments of(const Arguments& inputs) const;
  bool operator==(const Schedule&) const = default;
};

/// What of it is not the op's default, `split_k=4`, or else the first attribute, `kernel=cutlass`; the machine in front where the op is
/// known on several.
std::string name(const Schedule& schedule, const Op& op, bool with_machine = false);
/// What of it goes into a case line: `--attr split_k=4`; empty where it is what the line says already.
std::string line_options(const Schedule& schedule, const Op& op);

/// Attributes that show in the last bit of fp32 alone, which a rounding to bf16 hides in all but one of some hundred thousand elements.
bool is_fine(std::string_view attr);

/// Modes whose bits are a GPU's.
std::vector<Mode> gpu_modes(const Op& op);

/// The schedules that the call allows: all values of the recipe attributes that can be counted (words, flags, whole numbers within
/// limits), in all modes with a GPU's bits, splits of K by one name each; the fewer of them differ from the call itself, the sooner. Throws
/// Error: `unsupported` where there are fewer than two.
std::vector<Schedule> schedules_of(const Op& op, const Arguments& inputs);

/// An op with several schedules: what they differ in, and how many its case lines allow at most.
struct Variety {
  std::string op;
  std::vector<std::string> by;  ///< attributes; `machine` where it is known on several
  std::size_t most = 0;
};
std::vector<Variety> varieties();

}  // namespace dodona::oracle
