#include "ops/moe/deepep/deepep_low_latency_dispatch_nvfp4.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/threads.h"
#include "ops/rows/quantize/fp4_quant_row.h"
#include "ops/rows/quantize/fp4_row.h"
#include "quant/nvfp4.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

using Dispatch = DeepepLowLatencyDispatchNvfp4;

constexpr auto layout = quant::ScaleLayout::swizzled_128x4;

/// Token `token` as row `row` of all experts' rooms.
Fp4QuantRow row_of(const Dispatch& op, std::int64_t row, std::int64_t token) {
  const std::int64_t width = op.x.size(2), blocks = width / quant::nvfp4_block, room = op.packed_recv_x.size(1);
  return {.input = op.x.as<const std::byte>() + token * width * 2,
          .type = bf16,
          .blocks = blocks,
          .encode_scale = *op.x_global_scale.as<float>(),
          .zero_by_amax = false,
          .first_code = row * width,
          .scale = quant::scale_offset(layout, row / room * op.packed_recv_x_scales.size(1) + row % room, 0, blocks)};
}

/// Calls body(row) for every row that holds a token.
template <class Body>
void for_each_row(const Dispatch& op, const DealtRows& rows, const Exec& exec, const Body& body) {
  parallel_for(exec.threads, static_cast<std::int64_t>(rows.token.size()), static_cast<double>(op.x.size(2)), [&](std::int64_t row) {
    if (const std::int64_t token = rows.token[static_cast<std::size_t>(row)]; token >= 0) body(row_of(op, row, token));
  });
}

void clear(const Dispatch& op) {
  for (const Tensor* const t : {&op.packed_recv_x, &op.packed_recv_x_scales})
    std::memset(t->data(), 0, static_cast<std::size_t>(t->elements()));
}

/// Quantizes into `out`, whose rows are as `rows` says.
void quantize(const Dispatch& out, const DealtRows& rows, const Exec& exec, Reference* reference, Fp4Rule rule) {
  const GoldenOutput codes(out.packed_recv_x, reference, "packed_recv_x", f4_e2m1),
      scales(out.packed_recv_x_scales, reference, "packed_recv_x_scales");
  codes.make_open();
  scales.make_open();
  const std::int64_t width = out.x.size(2);
  leave_other_scales_open(scales, out.packed_recv_x_scales.elements(), [&](const auto& body) {
    for (std::size_t row = 0; row < rows.token.size(); ++row) {
      const auto at = static_cast<std::int64_t>(row);
      if (rows.token[row] >= 0)
        body(row_of(out, at, rows.token[row]));
      else
        for (std::int64_t i = at * width; i < (at + 1) * width; ++i) codes.leave_open(i);
    }
  });
  for_each_row(out, rows, exec, [&](const Fp4QuantRow& row) { put_fp4_row(row, codes, scales, rule); });
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, range_halves_swapped, scale_not_rounded };

template <Rule rule>
void golden(const Dispatch& op, const Exec& exec, Reference* reference) {
  const DealtRows rows = dealt_rows(low_latency_of(op));
  quantize(op, rows, exec, reference, rule == Rule::scale_not_rounded ? Fp4Rule::scale_not_rounded : Fp4Rule::right);
  place_sources(low_latency_of(op), rows);
  if (rule == Rule::range_halves_swapped)
    for (std::int64_t i = 0; i < op.packed_recv_layout_range.elements(); ++i) {
      std::int64_t& range = op.packed_recv_layout_range.as<std::int64_t>()[i];
      range = (range & 0xFFFFFFFF) << 32 | range >> 32;
    }
  if (reference != nullptr) record_sources(low_latency_of(op), rows, *reference);
}

/// Rows lie where the outputs say.
void move_rows(const Dispatch& out, const DealtRows& rows, const Exec& exec, Reference& reference) {
  Reference moved;
  quantize(out, rows, exec, &moved, Fp4Rule::right);
  place_sources(low_latency_of(out), rows);
  record_sources(low_latency_of(out), rows, moved);
  for (const char* const name :
       {"packed_recv_x", "packed_recv_x_scales", "packed_recv_count", "packed_recv_src_info", "packed_recv_layout_range"}) {
    const ReferenceOutput& known = *moved.find(name);
    ReferenceOutput& record = reference.output(name, static_cast<std::int64_t>(known.exact.size()));
    record = known;
    // Golden mode's own bits lie elsewhere: any NaN will do.
    for (std::size_t i = 0; i < record.exact.size(); ++i)
      if (std::isnan(record.exact[i])) record.slack[i] = 1.0;
  }
}

/// And codes follow from the scales that were stored.
void condition(const Dispatch& actual, const Exec& exec, Reference& reference) {
  DealtRows rows;
  if (!rows_as_dealt(low_latency_of(actual), rows)) return;
  Dispatch out = actual;
  for (Tensor* t :
       {&out.packed_recv_x, &out.packed_recv_x_scales, &out.packed_recv_count, &out.packed_recv_src_info, &out.packed_recv_layout_range})
    *t = Tensor(t->dtype(), t->shape());
  const DealtRows ours = dealt_rows(low_latency_of(actual));
  if (rows.token != ours.token || rows.begin != ours.begin) move_rows(out, rows, exec, reference);
  const GoldenOutput codes(out.packed_recv_x, &reference, "packed_recv_x", f4_e2m1);
  for_each_row(out, rows, exec,
               [&](const Fp4QuantRow& row) { condition_fp4_row(row, actual.packed_recv_x_scales.as<std::uint8_t>(), codes); });
}

void fast(const Dispatch& op, const Exec& exec) {
  const DealtRows rows = dealt_rows(low_latency_of(op));
  clear(op);
  for_each_row(op, rows, exec, [&](const Fp4QuantRow& row) {
    dispatch<Fp4RowKernel>(exec.isa, Fp4Row{.input = row.input,
                                            .codes = op.packed_recv_x.as<std::uint8_t>() + row.first_code / 2,
                                            .scales = op.packed_recv_x_scales.as<std::uint8_t>() + row.scale,
                                            .blocks = row.blocks,
                                            .type = row.type,
                                            .encode_scale = row.encode_scale,
                                            .zero_by_amax = false});
  });
  place_sources(low_latency_of(op), rows);
}

void check(const Dispatch& op) {
  require_ranks(low_latency_of(op));
  require_room(low_latency_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_low_latency_dispatch_nvfp4() {
  const std::string few = " --attr num_max_dispatch_tokens_per_rank=8 --attr num_experts=8";
  return define<ops::DeepepLowLatencyDispatchNvfp4>({
      .contract = R"(
A row for each token and each expert that it chose, in the expert's room, as in deepep_low_latency_dispatch; each is quantized as
scaled_fp4_quant does it with S = x_global_scale, scales in tiles of 128 x 4 of the expert. Budgets as there. The rows that layout_range and
src_info name decide where each token's must lie. What stands behind an expert's count, and scales of no row, are unspecified.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"range-halves-swapped", "layout_range has the begin in the low half", ops::golden<ops::Rule::range_halves_swapped>},
                   {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                    ops::golden<ops::Rule::scale_not_rounded>}},
      .cases = {"R=2 T=5 H=256 topk=3" + few, "R=4 T=3 H=80 topk=2" + few,
                "R=1 T=6 H=64 topk=4 --attr num_max_dispatch_tokens_per_rank=130 --attr num_experts=4"},
      .bench_cases = {"R=4 T=32 H=7168 topk=8 --attr num_max_dispatch_tokens_per_rank=32 --attr num_experts=64"},
  });
}
}  // namespace dodona
