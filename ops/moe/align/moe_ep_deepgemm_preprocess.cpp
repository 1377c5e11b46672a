#include "ops/moe/align/moe_ep_deepgemm_preprocess.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/rows/copies/placed_rows.h"
#include "ops/rows/quantize/group_quant.h"

namespace dodona::ops {
namespace {

using Call = MoeEpDeepgemmPreprocess;

/// The row of every slot, -1 for none, and the rows of every expert.
struct Rows {
  std::vector<std::int64_t> of_slot, counts;
};
Rows rows_of(const Call& op) {
  Rows rows{{}, std::vector<std::int64_t>(static_cast<std::size_t>(op.num_local_experts), 0)};
  for (std::int64_t slot = 0; slot < op.topk_ids.elements(); ++slot) {
    const auto id = static_cast<std::int64_t>(quant::get(op.topk_ids, slot));
    rows.of_slot.push_back(id < 0 ? -1 : id * op.gateup_input.size(1) + rows.counts[static_cast<std::size_t>(id)]++);
  }
  return rows;
}

std::vector<std::int64_t> tokens_of(const Call& op, const Rows& rows) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(op.num_local_experts * op.gateup_input.size(1)), -1);
  for (std::size_t slot = 0; slot < rows.of_slot.size(); ++slot)
    if (rows.of_slot[slot] >= 0)
      tokens[static_cast<std::size_t>(rows.of_slot[slot])] = static_cast<std::int64_t>(slot) / op.topk_ids.size(1);
  return tokens;
}

/// Tokens as they are sent.
struct Payload {
  Tensor codes, scales;
  explicit Payload(const Call& op)
      : codes(f8_e4m3, op.hidden_states.shape()), scales(f32, {op.hidden_states.size(0), op.hidden_states.size(1) / 128}) {}
  GroupQuant quant(const Call& op) const {
    return {op.hidden_states, codes, scales, nullptr, 128, 1e-10f, -448.0, 448.0, false, false, false, false};
  }
};

void place(const Call& op, const Rows& rows, const Payload& sent, const Exec& exec) {
  const std::vector<std::int64_t> tokens = tokens_of(op, rows);
  place_rows(tokens, sent.codes, op.gateup_input, exec);
  place_rows(tokens, sent.scales, op.gateup_input_scale, exec);
  for (std::int64_t e = 0; e < op.num_local_experts; ++e)
    op.masked_m.as<std::int32_t>()[e] = static_cast<std::int32_t>(rows.counts[static_cast<std::size_t>(e)]);
  for (std::size_t slot = 0; slot < rows.of_slot.size(); ++slot)
    op.src2dst.as<std::int32_t>()[slot] = static_cast<std::int32_t>(std::max<std::int64_t>(rows.of_slot[slot], 0));
}

void record(const Call& op, const Rows& rows, const Reference& sent, Reference& reference) {
  const std::vector<std::int64_t> tokens = tokens_of(op, rows);
  record_placed(tokens, op.gateup_input, sent.find("output_q"), reference, "gateup_input");
  record_placed(tokens, op.gateup_input_scale, sent.find("output_s"), reference, "gateup_input_scale");
  record_exact(op.masked_m, &reference, "masked_m");
  record_placed(rows.of_slot, op.src2dst.reshape({op.src2dst.elements(), 1}), nullptr, reference, "src2dst");
}

enum class Rule { right, maximum_of_half };

template <Rule rule>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  const Payload payload(op);
  Reference sent;
  golden_group_quant(payload.quant(op), rule == Rule::maximum_of_half ? largest_of_half_group : quant::amax, exec, &sent);
  const Rows rows = rows_of(op);
  place(op, rows, payload, exec);
  if (reference != nullptr) record(op, rows, sent, *reference);
}

/// Codes follow from the scale that was stored.
void condition(const Call& actual, const Exec& exec, Reference& reference) {
  const ReferenceOutput& scales = *reference.find("gateup_input_scale");
  bool others = false;
  for (std::size_t i = 0; i < scales.exact.size(); ++i) {
    const bool open = !scales.unspecified.empty() && scales.unspecified[i] != 0;
    others =
        others || (!open && static_cast<float>(scales.exact[i]) != quant::get(actual.gateup_input_scale, static_cast<std::int64_t>(i)));
  }
  if (!others) return;
  const Rows rows = rows_of(actual);
  const Payload payload(actual);
  Reference sent;
  golden_group_quant(payload.quant(actual), quant::amax, exec, &sent);
  const std::int64_t width = payload.codes.size(1), groups = payload.scales.size(1), topk = actual.topk_ids.size(1);
  for (std::size_t slot = 0; slot < rows.of_slot.size(); ++slot) {
    if (rows.of_slot[slot] < 0) continue;
    const std::int64_t token = static_cast<std::int64_t>(slot) / topk, row = rows.of_slot[slot];
    std::copy_n(actual.gateup_input.as<std::uint8_t>() + row * width, width, payload.codes.as<std::uint8_t>() + token * width);
    std::copy_n(actual.gateup_input_scale.as<float>() + row * groups, groups, payload.scales.as<float>() + token * groups);
  }
  condition_group_quant(payload.quant(actual), exec, sent);
  record_placed(tokens_of(actual, rows), actual.gateup_input, sent.find("output_q"), reference, "gateup_input");
}

void fast(const Call& op, const Exec& exec) {
  const Payload payload(op);
  fast_group_quant(payload.quant(op), exec);
  place(op, rows_of(op), payload, exec);
}

void hopper(const Call& op, const Exec& exec) {
  const Payload payload(op);
  hopper_group_quant(payload.quant(op), exec);
  place(op, rows_of(op), payload, exec);
}

void check(const Call& op) {
  for (std::int64_t slot = 0; slot < op.topk_ids.elements(); ++slot)
    if (const auto id = static_cast<std::int64_t>(quant::get(op.topk_ids, slot)); id < -1 || id >= op.num_local_experts)
      bad_offset("topk_ids", static_cast<std::size_t>(slot), id, "-1 or an expert below " + std::to_string(op.num_local_experts));
  const std::vector<std::int64_t> counts = rows_of(op).counts;
  if (const std::int64_t most = *std::max_element(counts.begin(), counts.end()); most > op.gateup_input.size(1))
    throw Error(
        ErrorCode::bad_shape, "", "gateup_input",
        "has room for " + std::to_string(op.gateup_input.size(1)) + " rows of an expert, expected at least " + std::to_string(most));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_moe_ep_deepgemm_preprocess() {
  return define<ops::MoeEpDeepgemmPreprocess>({
      .contract = R"(
Tokens are quantized as version 1 of sgl_per_token_group_quant_8bit does it, in groups of 128 with scales in f32, with its budgets; codes
follow from the scale that was stored. The rows of an expert are those of the slots that name it, in order. Rows behind an expert's count,
and slots of no expert, are unspecified (here 0).)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"maximum-of-half", "the scale is that of the first half of each group", ops::golden<ops::Rule::maximum_of_half>}},
      .cases = {"T=5 topk=2 H=256 --attr num_local_experts=3",
                "T=3 topk=2 H=128 --dtype topk_ids=i64 --dtype hidden_states=f16 --attr num_local_experts=4"},
      .bench_cases = {"T=64 topk=8 H=7168 --attr num_local_experts=16"},
  });
}
}  // namespace dodona
