// The trail of a layer: what each of its model ops gave, written down.
//
// Outputs are called by their op: `self.q_b_proj()`, with the note where there is one, `bmm_fp8() (q_nope * w_kc)`. An op's further
// outputs, and the first one too if it has a name, are `self.input_layernorm().residual`, `self.rotary_emb().k_pe`. Readers do not care
// for `self.`, `()` and spaces: `q_b_proj` is the first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/layer/statistics.h"
#include "model/layer/trace.h"

namespace dodona::trail {

struct TrailOutput {
  std::string label;   ///< "output", "residual", "k_pe"...
  std::string digest;  ///< SHA-256 of dtype, shape and values (io::tensor_digest)
  DType dtype{};
  Dims shape;
  model::Statistics statistics;
  Tensor tensor;  ///< where tensors are kept
};

struct TrailStep {
  std::string op, note, shapes;
  std::vector<TrailOutput> outputs;
};

/// The steps in the order in which they were done: a group comes after its members.
struct Trail {
  io::Json setting;  ///< what makes runs comparable: model, layer, batch...
  NamedTensors inputs;
  std::vector<TrailStep> steps;

  /// For Trace::observe; this must outlive the trace.
  model::Observer recorder(bool keep_tensors);
};

/// A safetensors file if the name ends so: the tensors that were kept, `input.NAME` for inputs, and the records as metadata `trail`.
/// Otherwise JSON lines: the setting, then a record for each step. Throws Error (bad_file).
void write_trail(const std::string& path, const Trail& trail);

// ---- names

inline constexpr std::string_view input_prefix = "input.";

std::string title_of(const std::string& op, const std::string& note);
/// The first output goes by the title alone.
std::string output_name(const std::string& title, std::string_view label, bool first);
/// What names are compared by.
std::string key_of(std::string name);

}  // namespace dodona::trail
