#include "quant/fp8_block.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "quant/amax.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "quant/int8.h"
#include "quant/sizes.h"

namespace dodona::quant {

namespace {

constexpr std::int64_t max_group = std::int64_t{1} << 55;

std::uint8_t code_of(float value) {
  return to_e4m3_satfinite(clamp_low_first(value, -e4m3_max, e4m3_max));
}

/// One block of a matrix: columns [column, column + width) of rows [row, row + height).
struct Block {
  std::int64_t row, column, height, width;
};

template <class Visit>
void for_each_block(std::int64_t rows, std::int64_t columns, Visit visit) {
  std::size_t index = 0;
  for (std::int64_t r = 0; r < rows; r += fp8_block_size) {
    for (std::int64_t c = 0; c < columns; c += fp8_block_size)
      visit(index++, Block{r, c, std::min(fp8_block_size, rows - r), std::min(fp8_block_size, columns - c)});
  }
}

template <class Visit>
void for_each_row(const Block& block, std::int64_t columns, Visit visit) {
  for (std::int64_t r = 0; r < block.height; ++r)
    visit(static_cast<std::size_t>((block.row + r) * columns + block.column), static_cast<std::size_t>(block.width));
}

void require_block_sizes(std::size_t x, std::size_t codes, std::size_t scales, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elements = area(rows, columns);
  require_size("x", x, elements);
  require_size("codes", codes, elements);
  require_size("scales", scales, ceil_div(rows, fp8_block_size) * ceil_div(columns, fp8_block_size));
}

void require_row_sizes(std::size_t x, std::size_t codes, std::size_t scales, std::int64_t rows, std::int64_t columns, std::int64_t group) {
  const std::int64_t elements = area(rows, columns);
  if (group <= 0 || group > max_group)
    throw Error(ErrorCode::bad_value, "", "group", "is " + std::to_string(group) + ", expected 1 or more");
  require_size("x", x, elements);
  require_size("codes", codes, elements);
  require_size("scales", scales, rows * ceil_div(columns, group));
}

/// Calls visit(group index, first element, elements) for the groups of all rows.
template <class Visit>
void for_each_group(std::int64_t rows, std::int64_t columns, std::int64_t group, Visit visit) {
  std::size_t index = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; c += group)
      visit(index++, static_cast<std::size_t>(r * columns + c), static_cast<std::size_t>(std::min(group, columns - c)));
  }
}

}  // namespace

float quantize_fp8_group(std::span<const float> x, const GroupRecipe& recipe, std::span<std::uint8_t> codes) {
  require_size("codes", codes.size(), static_cast<std::int64_t>(x.size()));
  const GroupScale scale = group_scale(amax(x), e4m3_max, recipe);
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = code_of(scaled_value(x[i], scale, recipe));
  return scale.scale;
}

float quantize_int8_group(std::span<const float> x, const GroupRecipe& recipe, std::span<std::int8_t> codes) {
  require_size("codes", codes.size(), static_cast<std::int64_t>(x.size()));
  const GroupScale scale = group_scale(amax(x), 127.0f, recipe);
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = to_int8_truncate(scaled_value(x[i], scale, recipe));
  return scale.scale;
}

void quantize_fp8_rows(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::int64_t group, const GroupRecipe& recipe,
                       std::span<std::uint8_t> codes, std::span<float> scales) {
  require_row_sizes(x.size(), codes.size(), scales.size(), rows, columns, group);
  for_each_group(rows, columns, group, [&](std::size_t index, std::size_t first, std::size_t count) {
    scales[index] = quantize_fp8_group(x.subspan(first, count), recipe, codes.subspan(first, count));
  });
}

void quantize_fp8_blocks(std::span<const float> x, std::int64_t rows, std::int64_t columns, const GroupRecipe& recipe,
                         std::span<std::uint8_t> codes, std::span<float> scales) {
  require_block_sizes(x.size(), codes.size(), scales.size(), rows, columns);
  for_each_block(rows, columns, [&](std::size_t index, const Block& block) {
    float largest = 0;
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) { largest = std::max(largest, amax(x.subspan(first, width))); });
    const GroupScale scale = group_scale(largest, e4m3_max, recipe);
    scales[index] = scale.scale;
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) {
      for (std::size_t i = first; i < first + width; ++i) codes[i] = code_of(scaled_value(x[i], scale, recipe));
    });
  });
}

void dequantize_fp8_rows(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                         std::int64_t group, std::span<float> x) {
  require_row_sizes(x.size(), codes.size(), scales.size(), rows, columns, group);
  for_each_group(rows, columns, group, [&](std::size_t index, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) x[i] = e4m3_to_f32(codes[i]) * scales[index];
  });
}

void dequantize_fp8_blocks(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                           std::span<float> x) {
  require_block_sizes(x.size(), codes.size(), scales.size(), rows, columns);
  for_each_block(rows, columns, [&](std::size_t index, const Block& block) {
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) {
      for (std::size_t i = first; i < first + width; ++i) x[i] = e4m3_to_f32(codes[i]) * scales[index];
    });
  });
}

void dequantize_fp8_blocks_bf16(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                                std::span<std::uint16_t> x) {
  require_block_sizes(x.size(), codes.size(), scales.size(), rows, columns);
  for_each_block(rows, columns, [&](std::size_t index, const Block& block) {
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) {
      for (std::size_t i = first; i < first + width; ++i) x[i] = f32_to_bf16(e4m3_to_f32(codes[i]) * scales[index]);
    });
  });
}

void requantize_weight_ue8m0(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                             std::span<std::uint8_t> out_codes, std::span<float> out_scales) {
  require_block_sizes(out_codes.size(), codes.size(), scales.size(), rows, columns);
  require_size("out_scales", out_scales.size(), static_cast<std::int64_t>(scales.size()));
  constexpr GroupRecipe recipe{1e-4f, ScaleForm::reciprocal, ScaleRule::ceil_log2};
  std::vector<float> values(static_cast<std::size_t>(fp8_block_size * fp8_block_size));
  for_each_block(rows, columns, [&](std::size_t index, const Block& block) {
    std::size_t count = 0;
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) {
      for (std::size_t i = first; i < first + width; ++i) values[count++] = bf16_to_f32(f32_to_bf16(e4m3_to_f32(codes[i]) * scales[index]));
    });
    const GroupScale scale = group_scale(amax(std::span(values).first(count)), e4m3_max, recipe);
    out_scales[index] = scale.scale;
    count = 0;
    for_each_row(block, columns, [&](std::size_t first, std::size_t width) {
      for (std::size_t i = first; i < first + width; ++i) out_codes[i] = to_e4m3_framework(values[count++] * scale.operand);
    });
  });
}

}  // namespace dodona::quant
