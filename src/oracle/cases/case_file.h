// Case files: one call of an op, its inputs and, when recorded, its outputs, in one safetensors file.
//
// Tensors `in.<argument>` hold values before the call, `out.<name>` values after it; an argument written in place has both. Metadata
// (all strings): op, case, attrs (JSON: attributes, `strides` in elements per tensor, and `generated`, rules for inputs that are not
// stored), match, provenance, notes.
//
// A generated case (make_case.h) also has the metadata `line`, `contract_version`, `digests` (JSON: SHA-256 by stored name) and `inputs`
// (JSON: how each input is made), and per output with a budget the tensors `exact.<name>` (before its rounding), `slack.<name>` and, where
// the contract leaves elements unspecified, `open.<name>`. A compact one has no tensors at all: its inputs come from the line. Outputs that
// a kernel gave for a line are stored with it alone: such a file has `out.<name>` tensors, no inputs, and a `match` other than `golden`;
// where it has the metadata `window` (`T=0..8`), outputs are those of these rows.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dodona/op.h"
#include "oracle/cases/window.h"

namespace dodona::oracle {

using dodona::NamedTensors;

struct Case {
  const Op* op = nullptr;
  std::string name;      ///< `rmsnorm/p01_bf16_t4_h7168`
  std::string path;      ///< of the file, empty for a case made in memory
  Arguments inputs;      ///< inputs, in-place arguments before the call, attributes; may view a read-only file
  NamedTensors outputs;  ///< recorded outputs by argument name; empty when only inputs are known
  std::string match, provenance, notes;
  std::string line;                            ///< the case line that makes the inputs; empty for a recording
  int contract_version = 0;                    ///< of the op when the outputs were made; 0 when the file does not say
  std::map<std::string, std::string> digests;  ///< of `in.` and `out.` tensors by stored name
  std::string input_plan;                      ///< JSON: how each input is made
  NamedTensors budgets;                        ///< `exact.`, `slack.` and `open.` tensors by stored name
  bool compact = false;                        ///< line and digests only
  Window window;                               ///< of the line's call: what `inputs` and `outputs` hold
  std::vector<std::string> ignored;            ///< tensors and attributes of the file that the op does not have

  /// Whether the outputs are a kernel's, not golden mode's.
  bool recorded() const { return line.empty() || match != "golden"; }
};

/// The inputs of a compact case are made anew. Throws Error: bad_file when the file is no case or made inputs do not have the stored
/// digests, unknown_op when the inventory does not hold its op.
Case load_case(const std::string& path, int threads = 1);
/// The op that the file says it is a case of, without looking it up; empty when the file is no case file.
std::string case_op(const std::string& path);
/// Writes the case (a compact one without tensors), strides kept in `attrs.strides`. Written to a temporary name, then renamed.
void save_case(const Case& c, const std::string& path);

/// The attributes of a call as a case file has them: JSON, with the strides of inputs that are not contiguous.
std::string attrs_text(const Op& op, const Arguments& inputs);

/// Inputs ready to run: arguments that the op writes are copied (layout kept), so that the case is not changed.
Arguments runnable(const Op& op, const Arguments& inputs);
/// An output that a caller asks for by giving memory for it, and one that a call always gets so.
bool asked_for_by_memory(const TensorSpec& spec);
/// Memory for an optional output is no input of a case: where the output is wanted the call makes it, or reading the output asks for it
/// again.
bool is_memory_of_output(const TensorSpec& spec);
/// The op's outputs (written in place or not) out of the arguments of a finished call.
NamedTensors outputs_of(const Op& op, const Arguments& arguments);
/// The inputs with `actual` in the place of outputs; in-place arguments keep their value from before the call.
Arguments with_actual(const Op& op, const Arguments& inputs, const NamedTensors& actual);
/// Throws Error naming the output when `actual` lacks one of the expected outputs, or has it in another dtype or shape.
void check_outputs(const Op& op, const NamedTensors& expected, const NamedTensors& actual);

}  // namespace dodona::oracle
