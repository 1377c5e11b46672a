// Scores of sparse attention's indexer: a few heads of a query against keys that all heads share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Keys next to each other in memory, e4m3, each with a scale.
struct KeyRun {
  std::int64_t column, count;  ///< of the row of scores
  const std::byte* codes;
  const float* scales;
};

/// One row of scores: sum over heads of w * max(0, q . k), times the key's scale, for the columns from `begin` to `end`.
struct LogitRow {
  const std::byte* q;    ///< [heads, width]
  const float* weights;  ///< [heads]
  std::int64_t begin, end;
  std::vector<KeyRun> runs;  ///< columns from begin to end in order
};

struct MqaLogits {
  std::int64_t heads, width;
  bool clean;     ///< -inf in the columns that are not the row's; else nothing is said of them
  Tensor logits;  ///< f32 [rows, columns]
  std::vector<LogitRow> rows;
};

/// The rule itself, and mistakes of such kernels.
enum class LogitRule {
  right,
  without_relu,
  relu_behind_weights,  ///< max(0, w * (q . k))
  first_scale,          ///< all keys of a run have the scale of its first
};

void mqa_logits_golden(const MqaLogits& call, LogitRule rule, const Exec& exec, Reference* reference);
void mqa_logits_fast(const MqaLogits& call, const Exec& exec);
void mqa_logits_hopper(const MqaLogits& call, const Exec& exec);

extern const std::string mqa_logits_contract;

/// Why hopper mode has no such kernel.
std::optional<Refusal> mqa_logits_unsupported(Mode mode, const Tensor& q);

template <class O, LogitRule rule>
void mqa_logits_golden_of(const O& op, const Exec& exec, Reference* reference) {
  mqa_logits_golden(op.call(), rule, exec, reference);
}

/// The op: `O` has `call()`.
template <class O>
Implementation<O> mqa_logits_op(const std::string& contract) {
  Implementation<O> all;
  all.contract = contract + mqa_logits_contract;
  all.golden = mqa_logits_golden_of<O, LogitRule::right>;
  all.fast = [](const O& op, const Exec& exec) { mqa_logits_fast(op.call(), exec); };
  all.hopper = [](const O& op, const Exec& exec) { mqa_logits_hopper(op.call(), exec); };
  all.unsupported = [](const O& op, Mode mode) { return mqa_logits_unsupported(mode, op.q); };
  all.flops = [](const O& op) {
    const MqaLogits call = op.call();
    double scores = 0;
    for (const LogitRow& row : call.rows) scores += static_cast<double>(row.end - row.begin);
    return 2 * scores * static_cast<double>(call.heads * (call.width + 1));
  };
  all.mistakes = {
      {"relu-left-out", "negative products of a head are added too", mqa_logits_golden_of<O, LogitRule::without_relu>},
      {"relu-behind-weights", "the weight is multiplied before negative scores become zero",
       mqa_logits_golden_of<O, LogitRule::relu_behind_weights>},
      {"scale-of-first-key", "keys that lie together all have the scale of the first", mqa_logits_golden_of<O, LogitRule::first_scale>}};
  all.customary = {{"logits", CustomaryKind::cosine, 0, 1 - 5e-6, "DeepGEMM tests/test_attention.py (calc_diff below 5e-6)"}};
  return all;
}

}  // namespace dodona::ops
