#include "ops/moe/permute/shuffle_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor map_of(const std::vector<int>& rows) {
  Tensor map(DType::i32, {static_cast<std::int64_t>(rows.size())});
  for (std::size_t d = 0; d < rows.size(); ++d) quant::set(map, static_cast<std::int64_t>(d), rows[d]);
  return map;
}
void expect_gathered(const ops::ShuffleRows& op) {
  const std::int64_t width = op.input_tensor.size(1);
  for (std::int64_t d = 0; d < op.output_tensor.size(0); ++d) {
    const auto source = static_cast<std::int64_t>(quant::get(op.dst2src_map, d));
    for (std::int64_t c = 0; c < width; ++c)
      ASSERT_EQ(quant::get_bits(op.output_tensor, d * width + c), quant::get_bits(op.input_tensor, source * width + c)) << d << " " << c;
  }
}

TEST(ShuffleRows, RowsMayRepeatAndBeLeftOutAndKeepTheirBits) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32, DType::f8_e4m3, DType::u8})
    for (const std::int64_t width : {1, 33, 100})
      for (const Mode mode : all_modes) {
        if (mode == Mode::hopper) continue;  // these rows end between units of 16 bytes
        ops::ShuffleRows op{.input_tensor = Tensor(type, {4, width}), .dst2src_map = map_of({3, 0, 3, 3, 1}), .output_tensor = {}};
        // NaNs of every payload are among them.
        for (std::int64_t i = 0; i < 4 * width; ++i) quant::set_bits(op.input_tensor, i, 0x7F80u + 7u * static_cast<std::uint64_t>(i));
        expect_gathered(ops::run(op, in_mode(mode, 2)));
      }
}

TEST(ShuffleRows, HopperModeHasWholeUnitsOf16Bytes) {
  for (const std::int64_t width : {4, 5}) {
    const ops::ShuffleRows op{.input_tensor = filled(DType::f32, {2, width}, 1.0), .dst2src_map = map_of({1, 0}), .output_tensor = {}};
    if (width == 4) {
      expect_gathered(ops::run(op, in_mode(Mode::hopper)));
    } else {
      EXPECT_THROW(ops::run(op, in_mode(Mode::hopper)), Error);
    }
  }
}

TEST(ShuffleRows, LargeOutputsAreWrittenWhole) {
  // Large enough to be written past the caches; rows of 7169 bytes mostly lack the alignment for it.
  for (const std::int64_t width : {7168, 7169}) {
    ops::ShuffleRows op{.input_tensor = Tensor(DType::u8, {3, width}), .dst2src_map = Tensor(DType::i32, {700}), .output_tensor = {}};
    for (std::int64_t i = 0; i < 3 * width; ++i) op.input_tensor.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 >> 3);
    for (std::int64_t d = 0; d < 700; ++d) op.dst2src_map.as<std::int32_t>()[d] = static_cast<std::int32_t>(d * 5 % 3);
    const auto done = ops::run(op, in_mode(Mode::fast, 2));
    for (std::int64_t d = 0; d < 700; ++d)
      ASSERT_EQ(std::memcmp(done.output_tensor.as<char>() + d * width, op.input_tensor.as<char>() + d * 5 % 3 * width,
                            static_cast<std::size_t>(width)),
                0);
  }
}

TEST(ShuffleRows, SourcesOutsideTheInputAreRejected) {
  for (const int row : {-1, 4}) {
    ops::ShuffleRows op{.input_tensor = Tensor(DType::bf16, {4, 8}), .dst2src_map = map_of({0, row}), .output_tensor = {}};
    const Error error = error_from([&] { ops::run(op, in_mode(Mode::fast, 2)); });
    EXPECT_NE(std::string(error.what()).find("dst2src_map holds " + std::to_string(row)), std::string::npos) << error.what();
  }
}

TEST(ShuffleRows, ARowFromTheWrongPlaceFails) {
  const Op& op = registry().at("shuffle_rows");
  const Arguments inputs = oracle::generate(parse_case_line("shuffle_rows R=5 C=64 D=9"));
  Arguments arguments = inputs;
  arguments.set("dst2src_map", map_of({1, 0, 2, 3, 4, 0, 0, 1, 2}));
  op.run(arguments, in_mode(Mode::fast, 2));
  Arguments asked = inputs;
  asked.set("dst2src_map", map_of({1, 0, 2, 3, 3, 0, 0, 1, 2}));
  const auto verdict = oracle::judge(op, asked, {{"output_tensor", *arguments.find("output_tensor")}}, {});
  EXPECT_EQ(verdict.outputs[0].pattern.rfind("one row: 4", 0), 0u) << verdict.outputs[0].pattern;
}

}  // namespace
}  // namespace dodona
