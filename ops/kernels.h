// The inventory of kernels that the models call, whether an op stands for them yet or not.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "dodona/op.h"

namespace dodona::ops {

/// One kernel behind DeepSeek V2, V3 and R1 in SGLang.
struct Kernel {
  std::string_view name;
  Source source;
  std::string_view category;
  std::string_view used_by;  ///< operations of the model's code, or the path that leads to it
};

/// All of them, in the order in which they were counted.
std::span<const Kernel> kernels();
/// The op that stands for the kernel: the one of its name; nullptr when there is none yet.
const Op* op_of(const Kernel& kernel);
/// One sentence: how many of the kernels are in, and which ops stand beside them.
std::string kernels_in_words();

}  // namespace dodona::ops
