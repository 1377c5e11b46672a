// Rules of cutlass_w4a8_moe_mm: its 4-bit codes, the order of its scales, and whose rows are whose.
#include "ops/moe/grouped/cutlass_w4a8_moe_mm.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

/// Seven rows: two of expert 0, none of expert 1, four of expert 2; the last one is nobody's.
ops::CutlassW4a8MoeMm call(std::int64_t n, std::int64_t k) {
  const std::int64_t together = k % 512 == 0 ? 4 : 1;
  ops::CutlassW4a8MoeMm op;
  op.a = filled(DType::f8_e4m3, {7, k}, 1.0);
  op.b = filled(DType::i8, {3, n, k / 2}, 0x11);
  op.a_scales = filled(DType::f32, {1}, 0.5);
  op.b_scales = filled(DType::bf16, {3, k / 128 / together, n * together}, 1.0);
  op.experts_offsets = ints({3}, {0, 2, 2});
  const auto columns = static_cast<std::int32_t>(n), depth = static_cast<std::int32_t>(k);
  op.problem_sizes = ints({3, 3}, {columns, 2, depth, columns, 0, depth, columns, 4, depth});
  return op;
}

TEST(CutlassW4a8MoeMm, CodesAreTwosComplementAndTheFirstIsTheLowNibble) {
  auto op = call(1, 128);
  quant::set(op.a, 0, 3.0);
  op.b.as<std::uint8_t>()[0] = 0x78;  // -8, 7
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).d, 0), 0.5 * (3 * -8 + 7 + 126)) << name(mode);
}

TEST(CutlassW4a8MoeMm, ScalesOfARowLieFourTogetherWhereKIsAMultipleOf512) {
  for (const std::int64_t k : {256, 512, 1024}) {
    auto op = call(3, k);
    const bool four = k % 512 == 0;
    double expected = 0;
    for (std::int64_t g = 0; g < k / 128; ++g) {
      quant::set(op.b_scales, four ? (g / 4 * 3 + 2) * 4 + g % 4 : g * 3 + 2, static_cast<double>(1 << g));
      expected += 0.5 * 128 * static_cast<double>(1 << g);
    }
    for (const Mode mode : all_modes) {
      const Tensor out = ops::run(op, in_mode(mode)).d;
      EXPECT_EQ(quant::get(out, 2), quant::round_to(DType::bf16, expected)) << name(mode) << " K = " << k;
      EXPECT_EQ(quant::get(out, 1), 0.5 * static_cast<double>(k)) << name(mode) << " K = " << k;
    }
  }
}

TEST(CutlassW4a8MoeMm, EachRowHasTheWeightsOfItsExpertAndNobodysRowsAreZero) {
  auto op = call(2, 128);
  for (std::int64_t e = 0; e < 3; ++e)
    for (std::int64_t i = 0; i < 128; ++i) op.b.as<std::uint8_t>()[e * 128 + i] = static_cast<std::uint8_t>(0x11 * (e + 1));
  op.d = filled(DType::bf16, {7, 2}, 9.0);
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).d;
    const double expected[] = {64, 64, 192, 192, 192, 192, 0};
    for (std::int64_t row = 0; row < 7; ++row) EXPECT_EQ(quant::get(out, row * 2 + 1), expected[row]) << name(mode) << " row " << row;
  }
}

/// Whose weights are packed one by one, as a model has them; those without rows need none.
TEST(CutlassW4a8MoeMm, ExpertsArePackedAloneAndOnesWithRowsAreNeeded) {
  auto op = call(40, 1024);
  for (std::int64_t i = 0; i < op.b.elements(); ++i) op.b.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  for (std::int64_t i = 0; i < op.a.elements(); ++i)
    op.a.as<std::uint8_t>()[i] = static_cast<std::uint8_t>((i * 40503u >> 7 & 0x87) | 0x30);
  for (const Isa isa : available_isas()) {
    const Exec exec = in_mode(Mode::fast, 2, isa);
    const Tensor expected = ops::run(op, exec).d;
    std::vector<Prepared> alone;
    for (std::int64_t e = 0; e < 3; ++e)
      alone.push_back(ops::prepare(ops::CutlassW4a8MoeMm{.b = op.b.slice(0, e, e + 1), .b_scales = op.b_scales.slice(0, e, e + 1)}, exec));
    const Prepared::Place visited[] = {{0, &alone[0]}, {2, &alone[2]}};
    auto packed = op;
    packed.b = packed.b_scales = Tensor();
    EXPECT_TRUE(same_bits(ops::run(packed, exec, Prepared::gather(3, visited)).d, expected)) << name(isa);
    const Error error = error_from([&] { ops::run(packed, exec, Prepared::gather(3, std::span(visited).first(1))); });
    EXPECT_STREQ(error.what(), "cutlass_w4a8_moe_mm: prepared holds no weights of expert 2, which has 4 rows");
  }
}

TEST(CutlassW4a8MoeMm, ScalesThatAreNotTheWeightsAreNotPacked) {
  const auto op = call(40, 1024);
  const Error error = error_from([&] {
    ops::prepare(ops::CutlassW4a8MoeMm{.b = op.b, .b_scales = filled(DType::bf16, {3, 8, 40}, 1)}, in_mode(Mode::fast));
  });
  EXPECT_EQ(std::string(error.what()).find("cutlass_w4a8_moe_mm: b_scales has shape"), 0u) << error.what();
  EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
}

TEST(CutlassW4a8MoeMm, CallsThatDoNotFitAreOneErrorEach) {
  const auto expect = [](const std::function<void(ops::CutlassW4a8MoeMm&)>& change, const std::string& text) {
    auto op = call(2, 512);
    change(op);
    const std::string error = error_of(op);
    EXPECT_NE(error.find("cutlass_w4a8_moe_mm: " + text), std::string::npos) << error;
  };
  using Call = ops::CutlassW4a8MoeMm;
  expect([](Call& op) { op.b_scales = filled(DType::bf16, {3, 4, 2}, 1); }, "b_scales has shape [3, 4, 2], expected [3, 1, 8]");
  expect([](Call& op) { op.experts_offsets = ints({3}, {0, 3, 2}); }, "experts_offsets holds 2 at element 2, expected rising offsets");
  expect([](Call& op) { op.problem_sizes.as<std::int32_t>()[0] = 7; }, "problem_sizes holds 7 at element 0, expected N = 2");
  expect([](Call& op) { op.problem_sizes.as<std::int32_t>()[7] = 6; }, "problem_sizes gives expert 2 the 6 rows from 2");
  expect([](Call& op) { op.chunk_size = 64; }, "chunk_size must be from 128 to 128, got 64");
}

}  // namespace
}  // namespace dodona
