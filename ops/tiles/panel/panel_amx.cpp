#include "ops/tiles/panel/panel_amx.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/work.h"
#include "quant/sizes.h"
#include "simd/amx.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

std::int64_t panels_of(const PanelProduct& p) {
  return ceil_div(p.n, panel_amx_together);
}

/// Widening columns, in units of multiplying them with sixteen rows.
constexpr std::int64_t weight_cost = 3;
/// Rows that are made ready at a time, if they are more.
constexpr std::size_t most_bytes = std::size_t{64} << 20;

/// Rows of many products beside each other, as far as memory goes.
struct Jobs {
  std::vector<PanelAmxJob> jobs;
  std::vector<WorkRun> runs;
  std::vector<std::size_t> memory;  ///< where the rows of each begin
  std::size_t bytes = 0;
  std::int64_t pieces = 0;

  static std::size_t bytes_of_lines(const PanelAmxJob& job) {
    return static_cast<std::size_t>(ceil_div(job.product->k, panel_amx_chunk) * job.a.sixteens * panel_amx_chunk_bytes);
  }
  void add(const PanelAmxJob& job) {
    const PanelProduct& p = *job.product;
    jobs.push_back(job);
    runs.push_back({ceil_div(panels_of(p), job.panels), job.panels * (job.a.sixteens + weight_cost) * ceil_div(p.k, panel_amx_step)});
    memory.push_back(bytes);
    const std::int64_t blocks = p.block > 0 ? ceil_div(p.k, p.block) : 0;
    bytes += bytes_of_lines(job) + static_cast<std::size_t>(blocks * job.a.sixteens * panel_amx_together) * sizeof(float);
    pieces += runs.back().pieces;
  }
  void run(const PanelUnit& unit, const Exec& exec) {
    if (pieces == 0) return;
    const Work work(exec, pieces, sizeof(PanelAmxScratch), bytes);
    struct Sixteen {
      const PanelAmxJob* job;
      std::int64_t index;
    };
    std::vector<Sixteen> sixteens;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      PanelAmxJob& job = jobs[i];
      std::byte* const lines = work.shared() + memory[i];
      job.a.lines = reinterpret_cast<std::uint8_t*>(lines);
      job.a.scales = reinterpret_cast<float*>(lines + bytes_of_lines(job));
      for (std::int64_t s = 0; s < job.a.sixteens; ++s) sixteens.push_back({&job, s});
    }
    parallel_for(exec.threads, static_cast<std::int64_t>(sixteens.size()), static_cast<double>(jobs[0].product->k), [&](std::int64_t i) {
      const Sixteen& sixteen = sixteens[static_cast<std::size_t>(i)];
      unit.prepare(*sixteen.job, sixteen.index);
    });
    work.split(runs, 16 * 16 * panel_amx_step / 16, [&](std::size_t job, std::int64_t first, std::int64_t last, std::byte* scratch) {
      unit.multiply(jobs[job], first, last, *reinterpret_cast<PanelAmxScratch*>(scratch));
    });
  }
};

/// Few rows take few columns with all of K, which are streams from memory: of raw ones each is a stream, and as bf16 they stay in a
/// first-level cache. Many rows wait in caches for as many as leave each thread some pieces.
struct Piece {
  std::int64_t panels, part;
};
Piece piece_of(const PanelProduct& p, std::int64_t rows, std::int64_t all_panels, int threads) {
  constexpr std::int64_t few_rows = 64, few = 4;
  if (rows <= few_rows && p.b.packed) return {few, panel_amx_chunk / 2};
  if (rows <= few_rows) return {rows <= panel_amx_together ? 1 : 2, panel_amx_chunk};
  std::int64_t panels = panel_amx_panels;
  while (threads > 1 && panels > few && all_panels < 4 * threads * panels) panels /= 2;
  return {panels, panel_amx_chunk};
}

}  // namespace

const PanelUnit* panel_unit(Isa isa) {
  if (!uses_amx(isa)) return nullptr;
  static const PanelUnit unit = dispatch<PanelAmxKernel>(isa);
  return unit.multiply != nullptr ? &unit : nullptr;  // builds of the generic tier alone have none, whatever the CPU has
}

void panel_multiply_by(const PanelUnit& unit, std::span<const PanelProduct> products, const Exec& exec) {
  std::int64_t all_panels = 0;
  for (const PanelProduct& p : products) all_panels += p.batches * panels_of(p);
  Jobs jobs;
  for (const PanelProduct& p : products) {
    if (p.m == 0 || p.n == 0) continue;
    const std::int64_t parts = ceil_div(p.m, panel_amx_rows), of_part = ceil_div(ceil_div(p.m, parts), panel_amx_together);
    const std::int64_t rows = of_part * panel_amx_together;
    for (std::int64_t batch = 0; batch < p.batches; ++batch)
      for (std::int64_t row = 0; row < p.m; row += rows) {
        const std::int64_t count = std::min(rows, p.m - row);
        if (jobs.bytes >= most_bytes) jobs.run(unit, exec), jobs = {};
        const auto [panels, part] = piece_of(p, count, all_panels, exec.threads);
        jobs.add({&p, batch, row, count, {nullptr, nullptr, ceil_div(count, panel_amx_together)}, panels, part});
      }
  }
  jobs.run(unit, exec);
}

}  // namespace dodona::ops
