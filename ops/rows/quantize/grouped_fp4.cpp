#include "ops/rows/quantize/grouped_fp4.h"

#include <cstring>
#include <vector>

#include "core/threads.h"
#include "ops/base/expert_rows.h"
#include "ops/rows/activation/act_and_mul_row.h"
#include "ops/rows/activation/silu.h"
#include "ops/rows/quantize/fp4_row.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

constexpr auto layout = quant::ScaleLayout::swizzled_128x4;

std::int64_t kept(const GroupedFp4& op, std::int64_t group) {
  return ints_of(op.mask)[static_cast<std::size_t>(group)];
}

const std::byte* input_row(const GroupedFp4& op, std::int64_t group, std::int64_t row) {
  return op.input.as<std::byte>() + (group * op.rows() + row) * op.input.size(2) * 2;
}

/// Row `row` of a group, its elements as they lie in the input.
Fp4QuantRow row_of(const GroupedFp4& op, std::int64_t group, std::int64_t row) {
  const std::int64_t blocks = op.columns() / 16;
  return {.input = input_row(op, group, row),
          .type = op.input.dtype(),
          .blocks = blocks,
          .encode_scale = op.input_global_scale.as<float>()[op.input_global_scale.offset(group)],
          .zero_by_amax = false,
          .first_code = (group * op.rows() + row) * op.columns(),
          .scale = quant::scale_offset(layout, group * op.output_scales.size(1) + row, 0, blocks)};
}

/// A row that silu and a product make, with what is open of it.
struct MadeRow {
  std::vector<std::byte> elements;
  std::vector<double> slack;
};

MadeRow made(const GroupedFp4& op, Silu activation, const std::byte* gate_and_up) {
  const std::int64_t n = op.columns();
  const DType type = op.input.dtype();
  std::vector<double> x(static_cast<std::size_t>(2 * n));
  quant::to_f64(type, gate_and_up, x.data(), 2 * n);
  MadeRow row{std::vector<std::byte>(static_cast<std::size_t>(2 * n)), {}};
  std::vector<float> products;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const double up = x[i + static_cast<std::size_t>(n)];
    const Bounded product = rounded_to(type, rounded_f32(activation(x[i]) * up));
    products.push_back(static_cast<float>(product.exact));
    row.slack.push_back(product.slack);
  }
  quant::from_f32(type, products.data(), row.elements.data(), n);
  return row;
}

/// Calls body(row) for every row of the mask.
template <class Body>
void for_each_row(const GroupedFp4& op, const Exec& exec, const Body& body) {
  const Silu activation = op.silu ? golden_silu(exec) : silu;
  parallel_for(exec.threads, op.groups() * op.rows(), static_cast<double>(op.columns()), [&](std::int64_t i) {
    const std::int64_t group = i / op.rows(), r = i % op.rows();
    if (r >= kept(op, group)) return;
    Fp4QuantRow row = row_of(op, group, r);
    MadeRow products;
    if (op.silu) {
      products = made(op, activation, row.input);
      row.input = products.elements.data();
      row.slack = products.slack.data();
    }
    body(row);
  });
}

void clear(const GroupedFp4& op) {
  std::memset(op.output_scales.data(), 0, static_cast<std::size_t>(op.output_scales.elements()));
  const std::int64_t row_bytes = op.output.size(2);
  for (std::int64_t g = 0; g < op.groups(); ++g) {
    const std::int64_t rest = op.rows() - kept(op, g);
    std::memset(op.output.as<std::uint8_t>() + (g * op.rows() + kept(op, g)) * row_bytes, 0, static_cast<std::size_t>(rest * row_bytes));
  }
}

}  // namespace

void golden_grouped_fp4(const GroupedFp4& op, const Exec& exec, Reference* reference, Fp4Rule rule) {
  const GoldenOutput codes(op.output, reference, "output", f4_e2m1), scales(op.output_scales, reference, "output_scales");
  for (const GoldenOutput* out : {&codes, &scales}) out->make_open();
  for (std::int64_t g = 0; g < op.groups(); ++g)
    for (std::int64_t i = (g * op.rows() + kept(op, g)) * op.columns(); i < (g + 1) * op.rows() * op.columns(); ++i) codes.leave_open(i);
  leave_other_scales_open(scales, op.output_scales.elements(), [&](const auto& body) {
    for (std::int64_t g = 0; g < op.groups(); ++g)
      for (std::int64_t r = 0; r < kept(op, g); ++r) body(row_of(op, g, r));
  });
  for_each_row(op, exec, [&](const Fp4QuantRow& row) { put_fp4_row(row, codes, scales, rule); });
}

void condition_grouped_fp4(const GroupedFp4& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.output.clone();
  const GoldenOutput codes(scratch, &reference, "output", f4_e2m1);
  codes.make_open();
  for_each_row(actual, exec, [&](const Fp4QuantRow& row) { condition_fp4_row(row, actual.output_scales.as<std::uint8_t>(), codes); });
}

void fast_grouped_fp4(const GroupedFp4& op, const Exec& exec) {
  clear(op);
  const std::int64_t n = op.columns();
  parallel_for(exec.threads, op.groups() * op.rows(), static_cast<double>(n), [&](std::int64_t i) {
    const std::int64_t group = i / op.rows(), r = i % op.rows();
    if (r >= kept(op, group)) return;
    const Fp4QuantRow row = row_of(op, group, r);
    std::vector<std::byte> products;
    const std::byte* input = row.input;
    if (op.silu) {
      products.resize(static_cast<std::size_t>(2 * n));
      const ActAndMulRow act{.gate = input,
                             .up = input + 2 * n,
                             .out = products.data(),
                             .next_gate = input,
                             .next_up = input + 2 * n,
                             .n = n,
                             .type = row.type,
                             .kind = ActivationKind::silu,
                             .writing = Writing::cached,
                             .round_activation = false};
      dispatch<ActAndMulRowKernel>(exec.isa, act);
      input = products.data();
    }
    dispatch<Fp4RowKernel>(exec.isa, Fp4Row{.input = input,
                                            .codes = op.output.as<std::uint8_t>() + row.first_code / 2,
                                            .scales = op.output_scales.as<std::uint8_t>() + row.scale,
                                            .blocks = row.blocks,
                                            .type = row.type,
                                            .encode_scale = row.encode_scale,
                                            .zero_by_amax = false});
  });
}

void hopper_grouped_fp4(const GroupedFp4& op, const Exec& exec) {
  clear(op);
  for_each_row(op, exec,
               [&](const Fp4QuantRow& row) { hopper_fp4_row(row, op.output.as<std::uint8_t>(), op.output_scales.as<std::uint8_t>()); });
}

}  // namespace dodona::ops
