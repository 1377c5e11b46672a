#include "ops/moe/deepep/deepep_low_latency_combine.h"

#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/rows/sums/weighted_rows.h"

namespace dodona::ops {
namespace {

using Combine = DeepepLowLatencyCombine;

/// Row e * S + i of every (rank, token, slot), -1 for none. Throws for a row that nobody sent.
std::vector<std::int32_t> rows_of(const Combine& op) {
  const std::int64_t room = op.x.size(1), topk = op.topk_idx.size(2), experts = op.x.size(0);
  std::vector<std::int32_t> row_of_token(static_cast<std::size_t>(experts * op.ranks() * op.tokens()), -1);
  for (std::int64_t e = 0; e < experts; ++e)
    for (std::int64_t r = 0; r < op.ranks(); ++r) {
      const std::int64_t at = e * op.ranks() + r, range = op.layout_range.as<const std::int64_t>()[at];
      const std::int64_t count = range & 0xFFFFFFFF, begin = range >> 32;
      if (begin < 0 || begin > room || count > room - begin)
        throw Error(ErrorCode::bad_value, "", "layout_range",
                    "holds " + std::to_string(count) + " rows from " + std::to_string(begin) + " on at element " + std::to_string(at) +
                        ", expected rows among the " + std::to_string(room) + " of an expert");
      for (std::int64_t i = begin; i < begin + count; ++i) {
        const std::int32_t token = op.src_info.as<const std::int32_t>()[e * room + i];
        if (token < 0 || token >= op.tokens())
          throw Error(ErrorCode::bad_value, "", "src_info",
                      "holds " + std::to_string(token) + " at element " + std::to_string(e * room + i) + ", expected a token below " +
                          std::to_string(op.tokens()));
        row_of_token[static_cast<std::size_t>((e * op.ranks() + r) * op.tokens() + token)] = static_cast<std::int32_t>(e * room + i);
      }
    }
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < op.topk_idx.elements(); ++i) {
    const std::int64_t e = op.topk_idx.as<const std::int64_t>()[i], token = i / topk;
    if (e < -1 || e >= experts)
      throw Error(ErrorCode::bad_value, "", "topk_idx",
                  "holds " + std::to_string(e) + " at element " + std::to_string(i) + ", expected -1 or one of " + std::to_string(experts) +
                      " experts");
    rows.push_back(
        e < 0 ? -1 : row_of_token[static_cast<std::size_t>((e * op.ranks() + token / op.tokens()) * op.tokens() + token % op.tokens())]);
    if (e >= 0 && rows.back() < 0)
      throw Error(
          ErrorCode::bad_value, "", "topk_idx",
          "holds expert " + std::to_string(e) + " at element " + std::to_string(i) + ", expected one that src_info has the token for");
  }
  return rows;
}

WeightedRows sums_of(const Combine& op) {
  const std::int64_t width = op.x.size(2);
  WeightedRows sums{.rows = op.x.reshape({op.x.size(0) * op.x.size(1), width}),
                    .output = op.combined_x.reshape({op.ranks() * op.tokens(), width})};
  const std::vector<std::int32_t> rows = rows_of(op);
  for (std::size_t i = 0; i < rows.size(); ++i) sums.add(rows[i], op.topk_weights.as<const float>()[i]);
  return sums;
}

template <WeightedRowsMistake mistake>
void golden(const Combine& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.combined_x, reference, "combined_x");
  out.make_open();
  golden_weighted_rows(sums_of(op), out, exec, mistake);
}

void fast(const Combine& op, const Exec& exec) {
  add_weighted_rows(sums_of(op), exec);
}

/// Rows by rank and token, as many as there is room for; what has none is not sent.
void make_inputs(Combine& op, std::uint64_t) {
  const std::int64_t room = op.x.size(1), topk = op.topk_idx.size(2), experts = op.x.size(0);
  std::vector<std::int64_t> next(static_cast<std::size_t>(experts), 0);
  auto* src = op.src_info.as<std::int32_t>();
  for (std::int64_t i = 0; i < op.src_info.elements(); ++i) src[i] = 0;
  for (std::int64_t r = 0; r < op.ranks(); ++r)
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t begin = next[static_cast<std::size_t>(e)];
      for (std::int64_t i = r * op.tokens() * topk; i < (r + 1) * op.tokens() * topk; ++i)
        if (std::int64_t& row = next[static_cast<std::size_t>(e)]; op.topk_idx.as<const std::int64_t>()[i] == e && row < room)
          src[e * room + row++] = static_cast<std::int32_t>(i / topk % op.tokens());
      op.layout_range.as<std::int64_t>()[e * op.ranks() + r] = begin << 32 | (next[static_cast<std::size_t>(e)] - begin);
    }
}

void check(const Combine& op) {
  rows_of(op);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_low_latency_combine() {
  return define<ops::DeepepLowLatencyCombine>({
      .contract = R"(
Rows widened to fp32, times their weights, summed from zero over the slots of a token in order (products may be fused, and on an H100 are);
one rounding to bf16.
Slots of no expert add nothing. Budget: two roundings a slot of the sum of magnitudes; below 2^-90 two flushed denormals a slot; all of a
term whose row or weight is denormal. Sums of magnitudes beyond fp32 leave the result open.)",
      .golden = ops::golden<ops::WeightedRowsMistake::none>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"weights-left-out", "rows are summed as they are", ops::golden<ops::WeightedRowsMistake::weights_left_out>}},
      .cases = {"E=8 S=16 H=256 R=2 T=5 topk=3", "E=4 S=12 H=65 R=3 T=4 topk=2", "E=6 S=6 H=128 R=1 T=6 topk=4"},
      .bench_cases = {"E=64 S=128 H=7168 R=4 T=32 topk=8"},
  });
}
}  // namespace dodona
