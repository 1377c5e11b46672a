// A run of a layer held against what its model ops gave elsewhere.
//
// A trail is held to equal bits, in any mode. A dump is held against a run in golden mode, in which every kernel says what is open about
// its outputs. A model op's output that is a kernel's output is judged as that kernel's outputs are (oracle::judge) on the inputs that the
// kernel was called with. One that follows from several kernels, or from sums between them, may lie one unit in the last place, and the
// share of its row that the budgets of those kernels come to, from golden's: see share_of_row().
//
// Each op is judged on the dump's own inputs: what the dump gives for an output takes the place of the run's before the next op reads it.
// Ops that the dump leaves out loosen what follows by what their own budgets come to, as a share of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer/trace.h"
#include "trail/kernel_calls.h"
#include "trail/trail_difference.h"

namespace dodona::trail {

/// Holds the ops of a run against the reference until one differs.
class TrailComparison {
 public:
  TrailComparison(TrailReference reference, DType activations);
  TrailComparison(const TrailComparison&) = delete;
  TrailComparison& operator=(const TrailComparison&) = delete;

  /// What weights are to be made ready with: in golden mode for a dump.
  Exec for_weights(Exec exec) const;
  /// What the run is to be made with: so too, and its calls are seen. This must outlive the run.
  Exec for_run(Exec exec);
  /// For Trace::observe; this must outlive the trace. Throws Error (bad_shape, bad_dtype) naming the tensor.
  model::Observer observer();

  const std::optional<TrailDifference>& difference() const { return difference_; }
  /// Outputs that were compared.
  std::int64_t compared() const { return compared_; }
  /// Ops that the reference does not hold, in order.
  const std::vector<std::string>& absent() const { return absent_; }
  /// Throws Error (bad_file) when nothing was compared, or when nothing differs but the reference holds tensors that no model op gives.
  void finish() const;

 private:
  /// An output of the model op that the reference holds.
  struct Held {
    std::string name, label;
    const TrailEntry* entry;
    Tensor ours;
  };
  std::vector<Held> held_of(const model::OpRecord& record, const NamedTensors& outputs);
  void compare(const model::OpRecord& record, const NamedTensors& outputs);
  void compare_bits(const Held& held);
  void compare_dump(std::vector<Held> held, const NamedTensors& outputs, std::vector<KernelCall> calls);
  oracle::Verdict judge_call(KernelCall& call, double share);
  void pass_over(const model::OpRecord& record, const NamedTensors& outputs, const std::vector<KernelCall>& calls);

  TrailReference reference_;
  DType activations_;
  Exec judging_;
  CallRecorder recorder_;
  double carried_ = 0;
  std::int64_t compared_ = 0;
  std::vector<std::string> absent_, asked_;
  std::optional<TrailDifference> difference_;
};

}  // namespace dodona::trail
