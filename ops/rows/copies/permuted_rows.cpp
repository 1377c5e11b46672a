#include "ops/rows/copies/permuted_rows.h"

#include <cmath>
#include <cstring>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/rows/copies/cast_row.h"
#include "ops/rows/quantize/quantize_row.h"
#include "ops/rows/sums/term_sums.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

bool is_fp8(DType type) {
  return type == f8_e4m3 || type == f8_e5m2;
}

/// Calls body(row, token) for every row; those of no token have -1.
template <class Body>
void for_each_row(const PermutedRows& rows, const Exec& exec, const Body& body) {
  const std::vector<std::int64_t> tokens = rows.tokens();
  parallel_for(exec.threads, static_cast<std::int64_t>(tokens.size()), static_cast<double>(rows.input.size(1)),
               [&](std::int64_t row) { body(row, tokens[static_cast<std::size_t>(row)]); });
}

void write(const PermutedRows& rows, const Exec& exec, float factor) {
  const std::int64_t width = rows.input.size(1), from_bytes = width * bits(rows.input.dtype()) / 8,
                     to_bytes = width * bits(rows.output.dtype()) / 8;
  for_each_row(rows, exec, [&](std::int64_t row, std::int64_t token) {
    std::byte* const to = rows.output.as<std::byte>() + row * to_bytes;
    if (token < 0) {
      std::memset(to, 0, static_cast<std::size_t>(to_bytes));
      return;
    }
    const std::byte* const from = rows.input.as<const std::byte>() + token * from_bytes;
    if (!rows.divisor) return cast_row(rows.input.dtype(), from, rows.output.dtype(), to, width, exec);
    if (is_fp8(rows.output.dtype()) && (rows.input.dtype() == bf16 || rows.input.dtype() == f16))
      return dispatch<QuantizeRowKernel>(exec.isa, QuantizeRow{from, reinterpret_cast<std::uint8_t*>(to), width, nullptr,
                                                               rows.input.dtype(), rows.output.dtype(), false, factor});
    std::vector<float> wide(static_cast<std::size_t>(width));
    quant::to_f32(rows.input.dtype(), from, wide.data(), width);
    for (float& x : wide) x *= factor;
    cast_row(f32, reinterpret_cast<const std::byte*>(wide.data()), rows.output.dtype(), to, width, exec);
  });
}

}  // namespace

std::vector<std::int64_t> PermutedRows::tokens() const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(output.size(0)), -1);
  for (std::size_t slot = 0; slot < row_of.size(); ++slot)
    if (row_of[slot] >= 0) all[static_cast<std::size_t>(row_of[slot])] = static_cast<std::int64_t>(slot) / topk;
  return all;
}

void PermutedRows::require_rows() const {
  std::vector<std::uint8_t> taken(static_cast<std::size_t>(output.size(0)), 0);
  for (std::size_t slot = 0; slot < row_of.size(); ++slot) {
    if (row_of[slot] < 0) continue;
    if (row_of[slot] >= output.size(0) || taken[static_cast<std::size_t>(row_of[slot])]++ != 0)
      throw Error(ErrorCode::bad_value, "", "src2dst",
                  "holds " + std::to_string(row_of[slot]) + " at element " + std::to_string(slot) + ", expected a row below " +
                      std::to_string(output.size(0)) + " that no other slot has");
  }
}

void golden_permuted_rows(const PermutedRows& rows, const Exec& exec, Reference* reference, PermutedRowsMistake mistake) {
  const GoldenOutput out(rows.output, reference, rows.output_name);
  out.make_open();
  const std::int64_t width = rows.input.size(1);
  const bool same = !rows.divisor && rows.input.dtype() == rows.output.dtype();
  const float s = rows.divisor.value_or(1.0f);
  const double factor = mistake == PermutedRowsMistake::scale_left_out ? 1.0
                        : mistake == PermutedRowsMistake::multiplied   ? static_cast<double>(s)
                                                                       : static_cast<double>(1.0f / s);
  for_each_row(rows, exec, [&](std::int64_t row, std::int64_t token) {
    for (std::int64_t h = 0; h < width; ++h) {
      const std::int64_t to = row * width + h, from = token * width + h;
      if (token < 0) {
        out.leave_open(to);
        continue;
      }
      if (!rows.divisor) {
        cast_element(rows.input, from, rows.output, out, to);
        continue;
      }
      const double x = quant::get(rows.input, from), y = x * factor;
      const double lost = is_denormal(factor) ? std::fabs(y) : flush_floor;
      const Bounded value{y, std::isfinite(y) ? 5.0 * f32_eps * std::fabs(y) + lost : 0.0};
      if (is_fp8(rows.output.dtype())) {
        out.put_saturating(to, value);
      } else {
        out.put(to, value);
      }
    }
  });
  if (!same || reference == nullptr) return;
  ReferenceOutput& record = reference->output(rows.output_name, rows.output.elements());
  for (std::size_t i = 0; i < record.exact.size(); ++i)
    if (record.unspecified[i] == 0) record.exact[i] = quant::get(rows.output, static_cast<std::int64_t>(i));
}

void permute_rows(const PermutedRows& rows, const Exec& exec) {
  write(rows, exec, 1.0f / rows.divisor.value_or(1.0f));
}

void hopper_permute_rows(const PermutedRows& rows, const Exec& exec) {
  write(rows, exec, quant::hopper::triton::div(1.0f, rows.divisor.value_or(1.0f)));
}

}  // namespace dodona::ops
