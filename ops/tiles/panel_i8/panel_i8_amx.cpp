#include "ops/tiles/panel_i8/panel_i8_amx.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/work.h"
#include "quant/swizzle.h"
#include "simd/amx.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

/// Decoding weights, in units of multiplying them with a row.
constexpr std::int64_t weight_cost = 32;

struct Jobs {
  std::vector<I8AmxJob> jobs;  ///< without memory
  std::vector<const I8Group*> groups;
  std::vector<WorkRun> runs;
  std::vector<std::size_t> memory;  ///< where the rows of each begin
  std::size_t bytes = 0;
  std::int64_t pieces = 0;
};
/// Panels of a piece: as many as leave each thread some pieces.
std::int64_t panels_of(const I8Product& product, int threads) {
  std::int64_t all = 0, panels = i8_amx_panels;
  for (const I8Group& group : product.groups) all += i8_panels(group.weights.n);
  while (threads > 1 && panels > 4 && all < 4 * threads * panels) panels /= 2;
  return panels;
}

/// Raw weights of FP4 are lines of a column each, of which memory gives few at a time best.
std::int64_t most_panels(const I8Product& product, const I8Group& group, std::int64_t rows) {
  constexpr std::int64_t few_rows = 96;
  if (!is_fp4(product.format) || group.weights.packed != nullptr) return i8_amx_panels;
  return rows <= few_rows ? 4 : 8;
}

/// Rows of FP4, all of whose K comes from a second-level cache for every panel.
std::int64_t most_rows_of(const I8MatrixUnit& unit, const I8Product& product) {
  constexpr std::int64_t held = 1 << 19;
  const std::int64_t most = unit.rows_of(product.format).most;
  return is_fp4(product.format) && most * product.k > held ? most / 2 : most;
}

Jobs jobs_of(const I8Product& product, std::int64_t most_rows, int threads) {
  Jobs all;
  const std::int64_t panels = panels_of(product, threads);
  for (const I8Group& group : product.groups) {
    if (group.rows == 0) continue;
    const std::int64_t parts = ceil_div(group.rows, most_rows), rows = I8AmxRows::padded(ceil_div(group.rows, parts));
    for (std::int64_t first = 0; first < group.rows; first += rows) {
      const std::int64_t count = std::min(rows, group.rows - first);
      const std::int64_t of_piece = std::min(panels, most_panels(product, group, count));
      all.jobs.push_back({product.format, &group.weights, {}, group.row + first, count, &group.epilogue, of_piece});
      all.groups.push_back(&group);
      all.runs.push_back({ceil_div(i8_panels(group.weights.n), of_piece), I8AmxRows::padded(count) + weight_cost});
      all.memory.push_back(all.bytes);
      all.bytes += I8AmxRows::bytes(product.format, count, product.k);
      all.pieces += all.runs.back().pieces;
    }
  }
  return all;
}

void prepare_rows(const I8MatrixUnit& unit, const I8Product& p, const I8Group& group, const I8AmxJob& job, const Exec& exec) {
  const std::int64_t row_bytes = is_fp4(p.format) ? p.k / 2 : p.k;
  parallel_for(exec.threads, I8AmxRows::padded(job.rows), static_cast<double>(p.k) / 16, [&](std::int64_t r) {
    I8AmxRow from{};
    if (r < job.rows) from.codes = p.codes + (job.row + r) * row_bytes;
    if (r < job.rows && is_fp4(p.format))
      from.scales =
          p.scales + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, group.scale_row + job.row - group.row + r, 0, p.scale_columns);
    unit.prepare(job, from, r);
  });
  const std::int64_t rows = I8AmxRows::padded(job.rows);
  for (std::int64_t i = 0; i < I8AmxRows::together(p.format, p.k); ++i)
    job.a.most_apart[i] = *std::max_element(job.a.apart + i * rows, job.a.apart + (i + 1) * rows);
}

}  // namespace

const I8MatrixUnit* i8_matrix_unit(Isa isa) {
  if (!uses_amx(isa)) return nullptr;
  static const I8MatrixUnit unit = dispatch<I8AmxKernel>(isa);
  return unit.multiply != nullptr ? &unit : nullptr;  // builds of the generic tier alone have none, whatever the CPU has
}

void i8_multiply_by(const I8MatrixUnit& unit, const I8Product& product, const Exec& exec) {
  Jobs all = jobs_of(product, most_rows_of(unit, product), exec.threads);
  if (all.pieces == 0) return;
  const Work work(exec, all.pieces, sizeof(I8AmxScratch), all.bytes);
  for (std::size_t i = 0; i < all.jobs.size(); ++i) {
    I8AmxJob& job = all.jobs[i];
    job.a = I8AmxRows::in(work.shared() + all.memory[i], job.format, job.rows, product.k);
    prepare_rows(unit, product, *all.groups[i], job, exec);
  }
  work.split(all.runs, static_cast<double>(product.k), [&](std::size_t run, std::int64_t first, std::int64_t last, std::byte* scratch) {
    unit.multiply(all.jobs[run], first, last, *reinterpret_cast<I8AmxScratch*>(scratch));
  });
}

}  // namespace dodona::ops
