#include "ops/tiles/mma/mma_fp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "dodona/error.h"
#include "quant/hopper/special.h"
#include "quant/tensor_core/step.h"

namespace dodona::ops {
namespace {

namespace tc = quant::tensor_core;
using tc::Fp4Spec;

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::bad_value, "tensor core", "", message);
}

std::int64_t steps_of(const Fp4Spec& spec, std::int64_t lines, std::int64_t k) {
  if (spec.products != fp4_products || spec.group != fp4_group || spec.scale_block < fp4_group || fp4_products % spec.scale_block != 0)
    fail("no model adds e2m1 products in steps of " + std::to_string(spec.products) + ", groups of " + std::to_string(spec.group) +
         " and blocks of " + std::to_string(spec.scale_block));
  if (spec.addend_bits > 35 || spec.sum_bits > 23 || spec.lowest_exponent > fp4_lowest_quick)
    fail("no model adds e2m1 products of " + std::to_string(spec.addend_bits) + " and " + std::to_string(spec.sum_bits) + " bits above 2^" +
         std::to_string(spec.lowest_exponent));
  if (lines < 0 || k < 0 || k % spec.scale_block != 0)
    fail("expected K in blocks of " + std::to_string(spec.scale_block) + ", got [" + std::to_string(lines) + ", " + std::to_string(k) +
         "]");
  return (k + fp4_products - 1) / fp4_products;
}

template <class Element>
std::unique_ptr<Element[]> room_for(std::int64_t elements) {
  return std::make_unique_for_overwrite<Element[]>(static_cast<std::size_t>(elements));
}

/// Room for `room` lines, with the scale codes of their groups.
Fp4Numbers room_for(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t lines, std::int64_t k, std::int64_t room) {
  Fp4Numbers numbers;
  numbers.steps = steps_of(spec, lines, k);
  const std::int64_t groups = numbers.steps * fp4_groups;
  const std::int64_t blocks = k / spec.scale_block, stride = operand.line_scales == 0 ? blocks : operand.line_scales;
  const std::int64_t groups_of_block = spec.scale_block / fp4_group;
  numbers.scale_codes = room_for<std::uint8_t>(lines * groups);
  for (std::int64_t line = 0; line < lines; ++line) {
    std::uint8_t* const to = numbers.scale_codes.get() + line * groups;
    const std::uint8_t* const from = operand.scales + line * stride;
    if (groups_of_block == 1) {
      std::copy_n(from, blocks, to);
    } else {
      for (std::int64_t block = 0; block < blocks; ++block) std::fill_n(to + block * groups_of_block, groups_of_block, from[block]);
    }
    std::fill(to + blocks * groups_of_block, to + groups, std::uint8_t{0});
  }
  numbers.numbers = room_for<std::uint8_t>(room * groups * fp4_group);
  numbers.corrections = room_for<std::int32_t>(room * groups);
  numbers.counting = room_for<std::int32_t>(room * groups);
  numbers.exponents = room_for<std::int32_t>(room * groups);
  numbers.significands = room_for<float>(room * groups);
  return numbers;
}

Fp4Decode decode_of(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t lines, std::int64_t k, Fp4Numbers& to) {
  return {.codes = operand.codes,
          .stride = operand.line_bytes,
          .lines = lines,
          .k = k,
          .steps = to.steps,
          .scales = to.scale_codes.get(),
          .e8m0 = spec.scale == DType::f8_e8m0,
          .numbers = to.numbers.get(),
          .corrections = to.corrections.get(),
          .counting = to.counting.get(),
          .exponents = to.exponents.get(),
          .significands = to.significands.get()};
}

// ---- steps by definition

struct Operands {
  const Fp4Spec& spec;
  const Fp4Numbers &a, &b;
  std::int64_t first_step;
};

/// Scale codes of a step of a line, a code for each block.
std::array<std::uint8_t, fp4_groups> scales_of(const Fp4Spec& spec, const Fp4Numbers& numbers, std::int64_t line, std::int64_t step) {
  std::array<std::uint8_t, fp4_groups> codes{};
  const std::int64_t first = (line * numbers.steps + step) * fp4_groups;
  const std::int64_t groups_of_block = spec.scale_block / fp4_group;
  for (std::int64_t g = 0; g < fp4_groups; g += groups_of_block)
    codes[static_cast<std::size_t>(g / groups_of_block)] = numbers.scale_codes[static_cast<std::size_t>(first + g)];
  return codes;
}

void mend(const Fp4Sums& sums, std::int64_t row, std::int64_t panel, std::int64_t from_first, unsigned lanes, const float* before,
          float* after) {
  const Operands& operands = *static_cast<const Operands*>(sums.operands);
  const std::int64_t step = operands.first_step + from_first;
  const Fp4Numbers &a = operands.a, &b = operands.b;
  const auto scales = static_cast<std::size_t>(fp4_products / operands.spec.scale_block);
  const auto a_scales = scales_of(operands.spec, a, row, step);
  const auto* const a_numbers = reinterpret_cast<const std::int8_t*>(a.numbers.get()) + (row * a.steps + step) * fp4_products;
  for (std::int64_t lane = 0; lane < mma_lanes; ++lane) {
    if ((lanes >> lane & 1u) == 0) continue;
    if (std::isnan(before[lane])) {
      after[lane] = quant::hopper::canonical_nan();
      continue;
    }
    std::array<std::int8_t, fp4_products> b_numbers{};
    const std::uint8_t* const quads = b.numbers.get() + (panel * b.steps + step) * fp4_products * mma_lanes;
    for (std::int64_t i = 0; i < fp4_products; ++i)
      b_numbers[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(quads[(i / 4 * mma_lanes + lane) * 4 + i % 4] - fp4_offset);
    const auto b_scales = scales_of(operands.spec, b, panel * mma_lanes + lane, step);
    after[lane] = tc::fp4_step(operands.spec, {{a_numbers, fp4_products}, {a_scales.data(), scales}},
                               {b_numbers, {b_scales.data(), scales}}, before[lane]);
  }
}

}  // namespace

Fp4Rows::Fp4Rows(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t rows, std::int64_t k, Isa isa)
    : spec_(spec), rows_(rows), k_(k), isa_(isa), numbers_(room_for(spec, operand, rows, k, rows)) {
  dispatch<Fp4RowsKernel>(isa, decode_of(spec, operand, rows, k, numbers_));
}

Fp4Columns::Fp4Columns(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t columns, std::int64_t k, Isa isa)
    : spec_(spec),
      columns_(columns),
      k_(k),
      numbers_(room_for(spec, operand, columns, k, (columns + mma_lanes - 1) / mma_lanes * mma_lanes)) {
  Fp4Decode panel = decode_of(spec, operand, columns, k, numbers_);
  const std::int64_t groups = numbers_.steps * fp4_groups;
  for (std::int64_t first = 0; first < columns; first += mma_lanes) {
    panel.lines = std::min<std::int64_t>(mma_lanes, columns - first);
    dispatch<Fp4PanelKernel>(isa, panel);
    panel.codes += mma_lanes * panel.stride;
    panel.scales += mma_lanes * groups;
    panel.numbers += mma_lanes * groups * fp4_group;
    panel.counting += mma_lanes * groups;
    panel.exponents += mma_lanes * groups;
    panel.significands += mma_lanes * groups;
  }
}

void accumulate(const Fp4Rows& a, const Fp4Columns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride) {
  if (a.spec_ != b.spec_ || a.k_ != b.k_) fail("the operands do not fit together");
  if (k_begin < 0 || k_begin > k_end || k_end > a.k_ || k_begin % fp4_products != 0 || (k_end % fp4_products != 0 && k_end != a.k_))
    fail("expected a range of K at multiples of " + std::to_string(fp4_products) + " up to " + std::to_string(a.k_) + ", got " +
         std::to_string(k_begin) + " to " + std::to_string(k_end));
  const std::int64_t first = k_begin / fp4_products, group = first * fp4_groups;
  const Operands operands{a.spec_, a.numbers_, b.numbers_, first};
  const Fp4Sums sums{.addend_bits = a.spec_.addend_bits,
                     .kept = -(1 << (23 - a.spec_.sum_bits)),
                     .a = reinterpret_cast<const std::int8_t*>(a.numbers_.numbers.get()) + group * fp4_group,
                     .a_corrections = a.numbers_.corrections.get() + group,
                     .a_counting = a.numbers_.counting.get() + group,
                     .a_exponents = a.numbers_.exponents.get() + group,
                     .a_significands = a.numbers_.significands.get() + group,
                     .b = b.numbers_.numbers.get() + group * fp4_group * mma_lanes,
                     .b_counting = b.numbers_.counting.get() + group * mma_lanes,
                     .b_exponents = b.numbers_.exponents.get() + group * mma_lanes,
                     .b_significands = b.numbers_.significands.get() + group * mma_lanes,
                     .a_steps = a.numbers_.steps,
                     .b_steps = b.numbers_.steps,
                     .rows = a.rows_,
                     .columns = b.columns_,
                     .steps = (k_end - k_begin + fp4_products - 1) / fp4_products,
                     .c = c,
                     .c_stride = c_stride,
                     .mend = mend,
                     .operands = &operands};
  dispatch<Fp4SumsKernel>(a.isa_, sums);
}

}  // namespace dodona::ops
