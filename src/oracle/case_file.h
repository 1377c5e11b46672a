// Case files: one call of an op, its inputs and, when recorded, its outputs, in one safetensors file.
//
// Tensors `in.<argument>` hold values before the call, `out.<name>` values after it; an argument written in place has both. Metadata
// (all strings): op, case, attrs (JSON: attributes, and `strides` in elements per tensor), match, provenance, notes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct Case {
  const Op* op = nullptr;
  std::string name;      ///< `rmsnorm/p01_bf16_t4_h7168`
  std::string path;      ///< of the file, empty for a case made in memory
  Arguments inputs;      ///< inputs, in-place arguments before the call, attributes; may view a read-only file
  NamedTensors outputs;  ///< recorded outputs by argument name; empty when only inputs are known
  std::string match, provenance, notes;
  std::vector<std::string> ignored;  ///< tensors and attributes of the file that the op does not have
};

/// Throws Error: bad_file when the file is no case, unknown_op when the inventory does not hold its op.
Case load_case(const std::string& path);
/// The op that the file says it is a case of, without looking it up; empty when the file is no case file.
std::string case_op(const std::string& path);
/// Writes the case, strides kept in `attrs.strides`. Written to a temporary name, then renamed.
void save_case(const Case& c, const std::string& path);

/// Inputs ready to run: arguments that the op writes in place are copied (layout kept), so that the case is not changed.
Arguments runnable(const Op& op, const Arguments& inputs);
/// The op's outputs (written in place or not) out of the arguments of a finished call.
NamedTensors outputs_of(const Op& op, const Arguments& arguments);
/// The inputs with `actual` in the place of outputs; in-place arguments keep their value from before the call.
Arguments with_actual(const Op& op, const Arguments& inputs, const NamedTensors& actual);
/// Throws Error naming the output when `actual` has another dtype or shape than the op's outputs for these inputs.
void check_outputs(const Op& op, const Arguments& finished, const NamedTensors& actual);

}  // namespace dodona::oracle
