#include "ops/tiles/panel_i8/panel_i8.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/work.h"
#include "ops/tiles/panel_i8/panel_digits_amx.h"
#include "ops/tiles/panel_i8/panel_i8_amx.h"
#include "quant/e4m3.h"
#include "quant/swizzle.h"
#include "quant/ue8m0.h"
#include "simd/amx.h"

namespace dodona::ops {
namespace {

using quant::align;
using quant::ceil_div;

/// Rows of one group that are multiplied together, with every panel of its weights, in pieces of as many pairs of panels but for one.
struct Job {
  const I8Group* group;
  std::int64_t first, rows;  ///< of the group
  std::int64_t pairs, pieces;

  std::int64_t panel(std::int64_t piece) const { return pairs * piece / pieces * i8_tile_panels; }
};
/// What a pair of panels costs, in units of multiplying it with a row by vectors. A unit takes two rows in the time of one.
std::int64_t cost_of(I8Format format, std::int64_t rows, bool by_unit) {
  const std::int64_t weights = format == I8Format::e4m3_i4 ? 4 : 12;
  return weights + (by_unit ? rows / 2 : rows);
}

/// Bytes of a row's chunk of K, made ready.
std::int64_t chunk_bytes(I8Format format) {
  return i8_row_bytes(format) + 8 * i8_chunk_blocks + i8_rare_bytes(format);
}

/// Of rows that a second-level cache does not hold beside weights, a chunk of K stays there for some pairs of panels, whose sums do too: as
/// many as leave each thread some pieces, and every one equally many. Other rows go pair by pair.
std::int64_t pieces_of(const I8Product& product, std::int64_t rows, std::int64_t pairs, int threads) {
  constexpr std::int64_t held = std::int64_t{512} << 10, few = 16;
  if (product.format == I8Format::e4m3_i4 || rows <= few || rows * i8_chunks(product.k) * chunk_bytes(product.format) <= held) return pairs;
  const std::int64_t least = ceil_div(pairs * i8_tile_panels, i8_most_panels);
  return std::min(pairs, align(std::max(least, pieces_wanted(threads)), threads));
}

struct Jobs {
  std::vector<Job> jobs;
  std::vector<WorkRun> runs;  ///< of the same indices
  std::int64_t pieces = 0;
  std::size_t sums = 0;  ///< floats, of the largest piece
};
bool takes(const DigitsUnit* unit, std::int64_t rows) {
  return unit != nullptr && rows >= unit->least_rows;
}
Jobs jobs_of(const I8Product& product, const DigitsUnit* unit, int threads) {
  Jobs all;
  for (const I8Group& group : product.groups) {
    if (group.rows == 0) continue;
    const std::int64_t parts = ceil_div(group.rows, i8_tile_rows);
    const std::int64_t rows = align(ceil_div(group.rows, parts), 8), pairs = ceil_div(i8_panels(group.weights.n), i8_tile_panels);
    const std::int64_t pieces = pieces_of(product, rows, pairs, threads), most_pairs = ceil_div(pairs, std::max<std::int64_t>(pieces, 1));
    all.sums = std::max(all.sums, static_cast<std::size_t>(rows * most_pairs * i8_sums_stride));
    for (std::int64_t first = 0; first < group.rows; first += rows) {
      const std::int64_t count = std::min(rows, group.rows - first);
      all.jobs.push_back({&group, first, count, pairs, pieces});
      all.runs.push_back({pieces, most_pairs * cost_of(product.format, count, takes(unit, count))});
      all.pieces += all.runs.back().pieces;
    }
  }
  return all;
}

/// Rows of A as tiles read them, for all rows of the tensor.
class Activations {
 public:
  static std::size_t bytes(I8Format format, std::int64_t rows, std::int64_t k) {
    return static_cast<std::size_t>(rows * i8_chunks(k) * chunk_bytes(format));
  }
  Activations(std::byte* memory, I8Format format, std::int64_t rows, std::int64_t k) {
    const std::int64_t all = rows * i8_chunks(k);
    first_.codes = reinterpret_cast<std::int8_t*>(memory);
    first_.corrections = reinterpret_cast<std::int32_t*>(memory + all * i8_row_bytes(format));
    first_.scales = reinterpret_cast<float*>(first_.corrections + all * i8_chunk_blocks);
    first_.chunk_rows = rows;
    first_.row_bytes = i8_row_bytes(format);
    first_.rare = reinterpret_cast<std::int8_t*>(first_.scales + all * i8_chunk_blocks);
    first_.rare_bytes = i8_rare_bytes(format);
  }
  I8Rows row(std::int64_t r) const { return first_.at(r, 0); }

 private:
  I8Rows first_{};
};

/// `scales` holds four of the row's scales every 512 bytes.
void widen_scales(I8Format format, const std::uint8_t* scales, std::int64_t k, const I8Rows& out) {
  const std::int64_t of_scale = i8_scale_block(format) / i8_block;
  for (std::int64_t block = 0; block < i8_steps(k) * 4; ++block) {
    const std::int64_t group = block / of_scale;
    const std::uint8_t code = block < k / i8_block ? scales[group / 4 * 512 + group % 4] : std::uint8_t{0};
    out.at(0, block / i8_chunk_blocks).scales[block % i8_chunk_blocks] =
        format == I8Format::mxfp4 ? quant::ue8m0_value(code) : quant::e4m3_to_f32(code);
  }
}

void prepare_rows(const I8Product& p, const Activations& activations, const Exec& exec) {
  const std::int64_t row_bytes = is_fp4(p.format) ? p.k / 2 : p.k;
  const auto prepare = [&](const I8Group& group, std::int64_t r) {
    const I8Rows out = activations.row(group.row + r);
    dispatch<I8RowKernel>(exec.isa, p.format, p.codes + (group.row + r) * row_bytes, p.k, out);
    if (is_fp4(p.format))
      widen_scales(p.format, p.scales + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, group.scale_row + r, 0, p.scale_columns),
                   p.k, out);
  };
  // Of many groups each has too few rows for a team: all of them have not.
  std::vector<std::int64_t> ends;
  for (const I8Group& group : p.groups) ends.push_back((ends.empty() ? 0 : ends.back()) + group.rows);
  parallel_for(exec.threads, ends.empty() ? 0 : ends.back(), static_cast<double>(p.k) / 16, [&](std::int64_t i) {
    const auto g = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
    prepare(p.groups[g], i - (ends[g] - p.groups[g].rows));
  });
}

/// By vectors, or e4m3 by int4 with a unit where there is one for so many rows.
void multiply_tiles(const I8Product& product, const DigitsUnit* unit, const Exec& exec) {
  const Jobs all = jobs_of(product, unit, exec.threads);
  if (all.pieces == 0) return;
  const Work work(exec, all.pieces, all.sums * sizeof(float), Activations::bytes(product.format, product.rows, product.k));
  const Activations activations(work.shared(), product.format, product.rows, product.k);
  prepare_rows(product, activations, exec);
  work.split(all.runs, static_cast<double>(product.k), [&](std::size_t run, std::int64_t first, std::int64_t last, std::byte* scratch) {
    const Job& job = all.jobs[run];
    const I8Group& group = *job.group;
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t panel = job.panel(piece);
      const I8Tile tile{.format = product.format,
                        .weights = &group.weights,
                        .first_panel = panel,
                        .panels = std::min(job.panel(piece + 1), i8_panels(group.weights.n)) - panel,
                        .a = activations.row(group.row + job.first),
                        .sums = reinterpret_cast<float*>(scratch),
                        .row = group.row + job.first,
                        .rows = job.rows,
                        .epilogue = &group.epilogue};
      takes(unit, job.rows) ? unit->multiply(tile) : dispatch<I8TileKernel>(exec.isa, tile);
    }
  });
}

}  // namespace

const DigitsUnit* digits_unit(Isa isa) {
  if (!uses_amx(isa)) return nullptr;
  static const DigitsUnit unit = dispatch<DigitsAmxKernel>(isa);
  return unit.multiply != nullptr ? &unit : nullptr;
}

void digits_multiply_by(const DigitsUnit* unit, const I8Product& product, const Exec& exec) {
  multiply_tiles(product, unit, exec);
}

void i8_multiply(const I8Product& product, const Exec& exec) {
  if (product.format == I8Format::e4m3_i4) return digits_multiply_by(digits_unit(exec.isa), product, exec);
  const I8MatrixUnit* const unit = i8_matrix_unit(exec.isa);
  if (unit == nullptr) return multiply_tiles(product, nullptr, exec);
  std::vector<I8Group> few, many;
  for (const I8Group& group : product.groups) (unit->takes(product.format, group) ? many : few).push_back(group);
  I8Product part = product;
  part.groups = few;
  multiply_tiles(part, nullptr, exec);
  part.groups = many;
  i8_multiply_by(*unit, part, exec);
}

void i8_pack(I8Format format, const I8Weights& raw, std::byte* out, const Exec& exec) {
  const std::int64_t panel_bytes = i8_panel_bytes(format, raw.k);
  parallel_for(exec.threads, i8_panels(raw.n), static_cast<double>(raw.k), [&](std::int64_t panel) {
    dispatch<I8PackKernel>(exec.isa, format, raw, panel, reinterpret_cast<std::uint8_t*>(out) + panel * panel_bytes);
  });
}

}  // namespace dodona::ops
