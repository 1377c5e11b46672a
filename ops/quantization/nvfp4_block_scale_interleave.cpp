#include "ops/quantization/nvfp4_block_scale_interleave.h"

#include <algorithm>
#include <cstring>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

/// How a row's place is found, rightly or by mistake.
using RowOf = std::int64_t (*)(std::int64_t row);
std::int64_t itself(std::int64_t row) {
  return row;
}
/// Mistake: rows 4 apart lie together, as those 32 apart should.
std::int64_t by_fours(std::int64_t row) {
  return row - row % 128 + row % 4 * 32 + row % 128 / 4;
}

template <RowOf row_of>
void interleave(const Nvfp4BlockScaleInterleave& op, const Exec& exec) {
  const std::int64_t rows = op.unswizzled_sf.size(-2), columns = op.unswizzled_sf.size(-1), bytes = bits(op.unswizzled_sf.dtype()) / 8;
  const std::int64_t matrix = quant::align(rows, 128) * quant::align(columns, 4);
  auto* const to = op.swizzled_sf.as<std::byte>();
  if (op.swizzled_sf.elements() > 0) std::memset(to, 0, static_cast<std::size_t>(op.swizzled_sf.elements() * bytes));
  parallel_for(exec.threads, row_count(op.unswizzled_sf), static_cast<double>(columns), [&](std::int64_t i) {
    const std::byte* const from = op.unswizzled_sf.as<const std::byte>() + i * columns * bytes;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t place = quant::scale_offset(quant::ScaleLayout::swizzled_128x4, row_of(i % rows), c, columns);
      std::memcpy(to + (i / rows * matrix + place) * bytes, from + c * bytes, static_cast<std::size_t>(bytes));
    }
  });
}

/// A tile of 128 rows and all columns, written in order: what lies in 16 elements are four columns of rows 32 apart.
template <class Element>
void interleave_tile(const Element* from, std::int64_t rows, std::int64_t columns, Element* to) {
  for (std::int64_t c = 0; c < columns; c += 4)
    for (std::int64_t r = 0; r < 32; ++r)
      for (std::int64_t at = r; at < 128; at += 32, to += 4) {
        Element four[4] = {};
        if (at < rows && c + 4 <= columns) {
          std::memcpy(four, from + at * columns + c, sizeof four);
        } else if (at < rows) {
          std::copy_n(from + at * columns + c, columns - c, four);
        }
        std::memcpy(to, four, sizeof four);
      }
}

template <class Element>
void interleave_tiles(const Nvfp4BlockScaleInterleave& op, const Exec& exec) {
  const std::int64_t rows = op.unswizzled_sf.size(-2), columns = op.unswizzled_sf.size(-1);
  const std::int64_t tiles = quant::ceil_div(rows, 128), tile = 128 * quant::align(columns, 4);
  if (op.swizzled_sf.elements() == 0) return;
  parallel_for(exec.threads, op.swizzled_sf.elements() / tile, static_cast<double>(tile), [&](std::int64_t i) {
    const std::int64_t row = i % tiles * 128;
    interleave_tile(op.unswizzled_sf.as<const Element>() + (i / tiles * rows + row) * columns, rows - row, columns,
                    op.swizzled_sf.as<Element>() + i * tile);
  });
}

void fast(const Nvfp4BlockScaleInterleave& op, const Exec& exec) {
  op.unswizzled_sf.dtype() == u8 ? interleave_tiles<std::uint8_t>(op, exec) : interleave_tiles<std::uint16_t>(op, exec);
}

template <RowOf row_of>
void golden(const Nvfp4BlockScaleInterleave& op, const Exec& exec, Reference* reference) {
  interleave<row_of>(op, exec);
  record_exact(op.swizzled_sf, reference, "swizzled_sf");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_nvfp4_block_scale_interleave() {
  return define<ops::Nvfp4BlockScaleInterleave>({
      .contract = "Copies; what pads rows to 128 and columns to 4 is 0.",
      .golden = ops::golden<ops::itself>,
      .fast = ops::fast,
      .hopper = ops::interleave<ops::itself>,
      .mistakes = {{"rows-by-fours", "rows 4 apart lie together, as rows 32 apart should", ops::golden<ops::by_fours>}},
      .cases = {"E=2 R=130 C=7", "E=1 R=33 C=12 --dtype unswizzled_sf=bf16", "E=3 R=128 C=4"},
      .bench_cases = {"E=1 R=4096 C=448", "E=32 R=7168 C=128"},
  });
}
}  // namespace dodona
