// The trail of a layer: what each of its model ops gave, written down; and a run of the layer held against what its ops gave elsewhere.
//
// Outputs are called by their op: `self.q_b_proj()`, with the note where there is one, `bmm_fp8() (q_nope * w_kc)`. An op's further
// outputs, and the first one too if it has a name, are `self.input_layernorm().residual`, `self.rotary_emb().k_pe`. Readers do not care
// for `self.`, `()` and spaces: `q_b_proj` is the first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/layer/statistics.h"
#include "model/layer/trace.h"

namespace dodona::model {

struct TrailOutput {
  std::string label;   ///< "output", "residual", "k_pe"...
  std::string digest;  ///< SHA-256 of dtype, shape and values (io::tensor_digest)
  DType dtype{};
  Dims shape;
  Statistics statistics;
  Tensor tensor;  ///< where tensors are kept
};

struct TrailStep {
  std::string op, note, shapes;
  std::vector<TrailOutput> outputs;
};

/// The steps in the order in which they were done: a group comes after its members.
struct Trail {
  io::Json setting;  ///< what makes runs comparable: model, layer, batch...
  io::NamedTensors inputs;
  std::vector<TrailStep> steps;

  /// For Trace::observe; this must outlive the trace.
  Observer recorder(bool keep_tensors);
};

/// A safetensors file if the name ends so: the tensors that were kept, `input.NAME` for inputs, and the records as metadata `trail`.
/// Otherwise JSON lines: the setting, then a record for each step. Throws Error (bad_file).
void write_trail(const std::string& path, const Trail& trail);

struct TrailDifference;

/// What ops gave elsewhere: a trail; or a dump of tensors, a safetensors file or a folder of such files.
class TrailReference {
 public:
  /// Throws Error (bad_file) for anything else.
  static TrailReference open(const std::string& path);

  const std::string& path() const { return path_; }
  /// A trail has digests and is held to equal bits; a dump is judged within tolerances.
  bool is_trail() const { return !setting_.is_null(); }
  const io::Json& setting() const { return setting_; }
  /// The tensor `input.NAME`; undefined where there is none.
  Tensor input(const std::string& name) const;

 private:
  friend class TrailComparison;
  friend std::optional<TrailDifference> first_difference(const TrailReference&, const TrailReference&, std::int64_t&);
  struct Entry {
    std::string name;    ///< as the file has it
    std::string digest;  ///< of a trail
    std::string shape;   ///< dtype and shape of a trail's output
    Statistics statistics;
    Tensor tensor;
  };
  void add_tensors(const std::string& file);
  void add_step(const io::Json& record, const std::string& where);

  std::string path_;
  io::Json setting_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;  ///< keys of a trail's outputs, as the ops were done
};

/// How far an output of a dump may lie from this library's for the same inputs: `ulps` units in the last place of the output's type at
/// the larger of both values (one: each may have been rounded to either side), and a share of the row's largest magnitude.
struct TrailTolerance {
  double ulps = 0, of_row = 0;
};
/// Where `of_row` comes from:
///  - 0, and no ulps: copies, choices, sums of two numbers rounded once;
///  - 2^-20: a few fp32 operations on numbers of the row's size (rotations, sums over experts); 2^-18: router weights, whose exponentials
///    and divisions are approximate on GPUs;
///  - 2^-13: fp32 (or cut) accumulation of thousands of products: 500 steps of 2^-24 of partial sums up to three times the row's rms;
///  - 2^-8: attention, whose weights are rounded to bf16 (2^-9 each, independent errors);
///  - 2^-6: products that quantize their activations themselves: approximate reciprocals may take elements on the border between two codes
///    to the other side, a quarter of the element's size for one element in a thousand. The same for the unquantized experts in one
///    op, with bf16 roundings between their products.
TrailTolerance trail_tolerance(const OpRecord& record, std::string_view label);

struct TrailDifference {
  std::string name;      ///< of the output, as described above
  std::string expected;  ///< dtype and shape, and without tensors digest and statistics, of this run
  std::string found;     ///< of the file
  bool has_element = false;
  std::int64_t beyond = 0, elements = 0;  ///< elements that are wrong, of how many
  Dims index;                             ///< of the worst
  double expected_value = 0, found_value = 0, allowed = 0;
};

/// The first output in which two trails differ, bit by bit: `expected` is of `a`, `found` of `b`. `same` counts those before it. Throws
/// Error (bad_file) for what is no trail, and bad_value for trails of different runs, naming what differs.
std::optional<TrailDifference> first_difference(const TrailReference& a, const TrailReference& b, std::int64_t& same);

/// Holds the ops of a run against the reference until one differs. Each op of a dump is judged on the dump's own inputs: what the dump
/// gives for an output takes the place of the run's before the next op reads it. Ops that the dump leaves out loosen what follows by their
/// own tolerance, as a share of rows.
class TrailComparison {
 public:
  TrailComparison(TrailReference reference, DType activations);
  /// For Trace::observe; this must outlive the trace. Throws Error (bad_shape, bad_dtype) naming the tensor.
  Observer observer();

  const std::optional<TrailDifference>& difference() const { return difference_; }
  /// Outputs that were compared.
  std::int64_t compared() const { return compared_; }
  /// Ops that the reference does not hold, in order.
  const std::vector<std::string>& absent() const { return absent_; }
  /// Throws Error (bad_file) when nothing was compared, or when nothing differs but the reference holds tensors that no model op gives.
  void finish() const;

 private:
  friend std::optional<TrailDifference> first_difference(const TrailReference&, const TrailReference&, std::int64_t&);
  using Entry = TrailReference::Entry;
  void compare(const OpRecord& record, const NamedTensors& outputs);
  bool compare_bits(const std::string& name, const Entry& entry, const Tensor& ours);
  bool compare_values(const OpRecord& record, std::string_view label, const std::string& name, const Entry& entry, const Tensor& ours);
  bool compare_permutation(const std::string& name, const Entry& entry, const NamedTensors& outputs);
  bool judge(const std::string& name, const Entry& entry, const Tensor& ours, const TrailTolerance& tolerance);
  bool judge_codes(const std::string& name, const Entry& entry, const Tensor& ours);

  TrailReference reference_;
  DType activations_;
  double carried_ = 0;
  std::int64_t compared_ = 0;
  std::vector<std::string> absent_, asked_;
  std::optional<TrailDifference> difference_;
};

}  // namespace dodona::model
