#include "ops/quantization/scaled_fp4_experts_quant.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/copy_row.h"
#include "ops/base/expert_rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/fp4_quant_row.h"
#include "ops/rows/quantize/fp4_row.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

constexpr auto layout = quant::ScaleLayout::swizzled_128x4;
constexpr std::int64_t rows_per_choice = 65536;

std::int64_t blocks_of(const ScaledFp4ExpertsQuant& op) {
  return op.input_tensor.size(1) / 16;
}
std::int64_t capacity_of(const ScaledFp4ExpertsQuant& op) {
  return rows_per_choice * op.topk;
}
/// Rows that belong to an expert.
std::int64_t rows_of(const ScaledFp4ExpertsQuant& op) {
  const auto offsets = ints_of(op.expert_offsets);
  return offsets.empty() ? 0 : offsets.back();
}

/// Row of output_scales at which each expert's scales begin, and where those of the last one end.
std::vector<std::int64_t> scale_rows_of(const ScaledFp4ExpertsQuant& op) {
  std::vector<std::int64_t> begin{0};
  const auto offsets = ints_of(op.expert_offsets);
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    const std::int64_t count = static_cast<std::int64_t>(offsets[e + 1]) - offsets[e];
    begin.push_back(begin.back() + quant::align(count, 128));
  }
  if (op.blockscale_offsets.defined())
    for (std::size_t e = 0; e < begin.size(); ++e) begin[e] = ints_of(op.blockscale_offsets)[e];
  return begin;
}

bool is_list(const Tensor& t) {
  return t.defined() && t.dtype() == i32 && t.rank() == 1 && t.contiguous() && t.elements() > 0 && t.data() != nullptr;
}

/// Rows of output_scales: where the offsets end. 0 for offsets that are no lists, which validation then rejects.
std::int64_t scale_rows_needed(const ScaledFp4ExpertsQuant& op) {
  if (!is_list(op.expert_offsets) || (op.blockscale_offsets.defined() && !is_list(op.blockscale_offsets))) return 0;
  if (!op.blockscale_offsets.defined()) {
    require_expert_offsets("expert_offsets", ints_of(op.expert_offsets), op.output.size(0));
    return scale_rows_of(op).back();
  }
  const auto offsets = ints_of(op.blockscale_offsets);
  if (offsets.back() < 0 || offsets.back() > capacity_of(op))
    bad_offset("blockscale_offsets", offsets.size() - 1, offsets.back(), "at most 65536 * topk = " + std::to_string(capacity_of(op)));
  return offsets.back();
}

/// The output has the rows of the map, or of the input.
void make_outputs(ScaledFp4ExpertsQuant& op) {
  if (!op.input_tensor.defined() || op.input_tensor.rank() != 2 || op.input_tensor.size(1) % 16 != 0) return;
  const std::int64_t columns = op.input_tensor.size(1);
  const std::int64_t rows = op.expert_map.defined() ? op.expert_map.elements() : op.input_tensor.size(0);
  if (!op.output.defined()) op.output = Tensor(u8, {rows, columns / 2});
  if (op.output.rank() != 2 || op.topk < 1 || op.output_scales.defined()) return;
  op.output_scales = Tensor(f8_e4m3, {scale_rows_needed(op), quant::align(columns / 16, 4)});
}

/// Some tiles of scales of nobody lie in between.
void make_inputs(ScaledFp4ExpertsQuant& op, std::uint64_t seed) {
  if (!op.blockscale_offsets.defined()) return;
  const InputDraw gap(seed, "blockscale_offsets");
  const auto rows = ints_of(op.expert_offsets);
  std::int64_t at = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    const auto i = static_cast<std::int64_t>(e);
    at += 128 * static_cast<std::int64_t>(gap.below(i, 2));
    op.blockscale_offsets.as<std::int32_t>()[i] = static_cast<std::int32_t>(at);
    if (e + 1 < rows.size()) at += quant::align(static_cast<std::int64_t>(rows[e + 1]) - rows[e], 128);
  }
}

void check(const ScaledFp4ExpertsQuant& op) {
  const std::int64_t rows = op.output.size(0), wanted = op.expert_map.defined() ? op.expert_map.elements() : op.input_tensor.size(0);
  if (rows != wanted)
    throw Error(ErrorCode::bad_shape, "", "output",
                "has " + std::to_string(rows) + " rows, expected " + std::to_string(wanted) + " as " +
                    (op.expert_map.defined() ? "expert_map" : "input_tensor"));
  for (const auto& [name, count] : {std::pair{"output", rows}, {"output_scales", op.output_scales.size(0)}})
    if (count > capacity_of(op))
      throw Error(ErrorCode::bad_shape, "", name,
                  "has " + std::to_string(count) + " rows, expected at most 65536 * topk = " + std::to_string(capacity_of(op)));
  const auto offsets = ints_of(op.expert_offsets);
  require_expert_offsets("expert_offsets", offsets, rows);
  const auto begin = scale_rows_of(op);
  const char* const argument = op.blockscale_offsets.defined() ? "blockscale_offsets" : "expert_offsets";
  std::int64_t end = 0;
  for (std::size_t e = 0; e < begin.size(); ++e) {
    const std::int64_t count = e + 1 < begin.size() ? offsets[e + 1] - offsets[e] : 0;
    require_scale_offset(argument, e, begin[e], count, end, op.output_scales.size(0));
    end = begin[e] + quant::align(count, 128);
  }
}

/// Row `r` of the output, which belongs to an expert; `begin` as scale_rows_of gives it.
Fp4QuantRow row_of(const ScaledFp4ExpertsQuant& op, const std::vector<std::int64_t>& begin, std::int64_t r) {
  const auto offsets = ints_of(op.expert_offsets);
  // The last expert that begins at or before the row: those before it with the same offset are empty.
  const auto e = static_cast<std::size_t>(std::upper_bound(offsets.begin(), offsets.end(), r) - offsets.begin() - 1);
  const std::int64_t source = op.expert_map.defined() ? ints_of(op.expert_map)[static_cast<std::size_t>(r)] : r;
  const std::int64_t columns = op.input_tensor.size(1);
  return {.input = op.input_tensor.as<std::byte>() + source * columns * 2,
          .type = op.input_tensor.dtype(),
          .blocks = blocks_of(op),
          .encode_scale = op.input_global_scale.as<float>()[op.input_global_scale.offset(static_cast<std::int64_t>(e))],
          .zero_by_amax = false,
          .first_code = r * columns,
          .scale = quant::scale_offset(layout, begin[e] + r - offsets[e], 0, blocks_of(op))};
}

template <class Body>
void for_each_row(const ScaledFp4ExpertsQuant& op, const Exec& exec, const Body& body) {
  const auto begin = scale_rows_of(op);
  parallel_for(exec.threads, rows_of(op), static_cast<double>(op.input_tensor.size(1)),
               [&](std::int64_t r) { body(row_of(op, begin, r)); });
}

template <Fp4Rule rule>
void golden(const ScaledFp4ExpertsQuant& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output, reference, "output", f4_e2m1), scales(op.output_scales, reference, "output_scales");
  for (const GoldenOutput* out : {&codes, &scales}) out->make_open();
  const std::int64_t columns = op.input_tensor.size(1);
  for (std::int64_t i = rows_of(op) * columns; i < op.output.size(0) * columns; ++i) codes.leave_open(i);
  leave_other_scales_open(scales, op.output_scales.elements(), [&](const auto& body) {
    const auto begin = scale_rows_of(op);
    for (std::int64_t r = 0; r < rows_of(op); ++r) body(row_of(op, begin, r));
  });
  for_each_row(op, exec, [&](const Fp4QuantRow& row) { put_fp4_row(row, codes, scales, rule); });
}

void condition(const ScaledFp4ExpertsQuant& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.output.clone();
  const GoldenOutput codes(scratch, &reference, "output", f4_e2m1);
  codes.make_open();
  for_each_row(actual, exec, [&](const Fp4QuantRow& row) { condition_fp4_row(row, actual.output_scales.as<std::uint8_t>(), codes); });
}

/// Few rows an expert have many scales of nobody.
void clear(std::uint8_t* bytes, std::int64_t count, const Exec& exec) {
  constexpr std::int64_t piece = std::int64_t{1} << 18;
  const Writing writing = kept_by_caches(count) ? Writing::cached : Writing::streamed_last;
  parallel_for(exec.threads, quant::ceil_div(count, piece), static_cast<double>(piece) / 32, [&](std::int64_t i) {
    dispatch<CopyRowKernel>(exec.isa, CopyRow{nullptr, bytes + i * piece, std::min(piece, count - i * piece), writing});
  });
}

void clear_padding(const ScaledFp4ExpertsQuant& op, const Exec& exec) {
  const std::int64_t rows = rows_of(op), row_bytes = op.output.size(1);
  clear(op.output.as<std::uint8_t>() + rows * row_bytes, (op.output.size(0) - rows) * row_bytes, exec);
  if (op.output_scales.elements() != rows * blocks_of(op)) clear(op.output_scales.as<std::uint8_t>(), op.output_scales.elements(), exec);
}

void fast(const ScaledFp4ExpertsQuant& op, const Exec& exec) {
  clear_padding(op, exec);
  for_each_row(op, exec, [&](const Fp4QuantRow& row) {
    dispatch<Fp4RowKernel>(exec.isa, Fp4Row{.input = row.input,
                                            .codes = op.output.as<std::uint8_t>() + row.first_code / 2,
                                            .scales = op.output_scales.as<std::uint8_t>() + row.scale,
                                            .blocks = row.blocks,
                                            .type = row.type,
                                            .encode_scale = row.encode_scale,
                                            .zero_by_amax = false});
  });
}

void hopper(const ScaledFp4ExpertsQuant& op, const Exec& exec) {
  clear_padding(op, exec);
  for_each_row(op, exec,
               [&](const Fp4QuantRow& row) { hopper_fp4_row(row, op.output.as<std::uint8_t>(), op.output_scales.as<std::uint8_t>()); });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_scaled_fp4_experts_quant() {
  return define<ops::ScaledFp4ExpertsQuant>({
      .contract = R"(
Row r belongs to the expert e with expert_offsets[e] <= r < expert_offsets[e+1] and is quantized as scaled_fp4_quant does with S
= input_global_scale[e]: amax = max |x| of each block of 16; scale = e4m3(S * (amax * fl32(1/6))); r = rcp(scale * rcp(S)), 0
where the scale is 0; code = e2m1(x*r). Its scales are those of row r - expert_offsets[e] of a matrix in tiles of 128 x 4 that
begins at row blockscale_offsets[e]. Budgets as in scaled_fp4_quant. Rows beyond the last offset, and scales of no row, are
unspecified.)",
      .golden = ops::golden<ops::Fp4Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_outputs = ops::make_outputs,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                    ops::golden<ops::Fp4Rule::maximum_without_magnitude>},
                   {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                    ops::golden<ops::Fp4Rule::scale_not_rounded>}},
      .cases = {"M=40 T=40 K=80 E=4 R=512", "M=33 T=33 K=272 E=8 R=1024 --dtype input_tensor=f16",
                "M=9 T=64 K=64 E=8 R=1024 --with expert_map --dist wide-exponent", "M=140 T=140 K=32 E=3 R=768 --with blockscale_offsets"},
      .bench_cases = {"M=2048 T=2048 K=7168 E=256 R=32768"},
  });
}
}  // namespace dodona
