#include "ops/tiles/dot/dot_amx.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/work.h"
#include "quant/sizes.h"
#include "simd/amx.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

/// Packed rows of the jobs that are worked on together stay within some megabytes, unless one job alone has more.
constexpr std::size_t enough_bytes = std::size_t{32} << 20;
/// Packing columns, in units of multiplying them with a row.
constexpr std::int64_t column_cost = 32;

// Measured on a Xeon (Sapphire Rapids).
/// Rows that are left to vectors, which have nothing to pack for them.
constexpr std::int64_t most_by_vectors = 3;
/// Rows that wait for memory at least as long as they are multiplied.
constexpr std::int64_t most_waiting = 64;
/// K of which columns are streams long enough for more rows than these to stay in tiles panel by panel.
constexpr std::int64_t least_of_stream = 1024, few_rows = 16;

DotColumnsAre columns_are(const DotProduct& p) {
  if (p.a.size(1) > most_waiting || dot_columns(p, 0).k_stride != 1) return DotColumnsAre::fetched_while_multiplying;
  const bool streams = p.a.size(1) <= few_rows || p.a.size(2) >= least_of_stream;
  return streams ? DotColumnsAre::streams : DotColumnsAre::fetched_while_packing;
}

std::vector<DotJob> jobs_of(const DotProduct& p, int threads) {
  const std::int64_t m = p.a.size(1), n = p.b.size(2), k = p.a.size(2), parts = ceil_div(m, dot_job_rows);
  const std::int64_t rows = ceil_div(ceil_div(m, parts), 16) * 16, size = bits(p.out.dtype()) / 8;
  const DotColumnsAre columns = columns_are(p);
  std::int64_t panels = columns == DotColumnsAre::streams ? 1 : dot_job_panels;
  while (threads > 1 && panels > 4 && p.a.size(0) * parts * ceil_div(n, 16 * panels) < 4 * threads) panels /= 2;
  std::vector<DotJob> jobs;
  for (std::int64_t batch = 0; batch < p.a.size(0); ++batch)
    for (std::int64_t row = 0; row < m; row += rows) {
      DotRows a = dot_rows(p, batch);
      a.first += row * a.stride;
      jobs.push_back({.a = a,
                      .b = dot_columns(p, batch),
                      .rows = std::min(rows, m - row),
                      .n = n,
                      .k = k,
                      .panels = panels,
                      .columns = columns,
                      .out = static_cast<std::byte*>(p.out.data()) + (batch * p.out.stride(0) + row * p.out.stride(1)) * size,
                      .out_stride = p.out.stride(1),
                      .out_type = p.out.dtype()});
    }
  return jobs;
}

/// Jobs that are worked on together.
void run(const DotUnit& unit, std::span<DotJob> jobs, const Exec& exec) {
  std::size_t packed = 0;
  std::int64_t pieces = 0, sixteens = 0;
  std::vector<WorkRun> runs;
  for (const DotJob& job : jobs) {
    packed += job.packed_bytes();
    sixteens += job.sixteens();
    runs.push_back({ceil_div(ceil_div(job.n, 16), job.panels), job.sixteens() * 16 + column_cost});
    pieces += runs.back().pieces;
  }
  const Work work(exec, pieces, sizeof(DotScratch), packed + static_cast<std::size_t>(sixteens) * sizeof(std::int32_t));
  struct Sixteen {
    const DotJob* job;
    std::int64_t index;
  };
  std::vector<Sixteen> all;
  std::byte* memory = work.shared();
  auto* least = reinterpret_cast<std::int32_t*>(memory + packed);
  for (DotJob& job : jobs) {
    job.packed = memory, job.least = least;
    memory += job.packed_bytes(), least += job.sixteens();
    for (std::int64_t i = 0; i < job.sixteens(); ++i) all.push_back({&job, i});
  }
  parallel_for(exec.threads, sixteens, static_cast<double>(jobs[0].k), [&](std::int64_t i) {
    const Sixteen& at = all[static_cast<std::size_t>(i)];
    unit.prepare(*at.job, at.index);
  });
  const double operations = static_cast<double>(jobs[0].k * jobs[0].panels);
  work.split(runs, operations, [&](std::size_t index, std::int64_t first, std::int64_t last, std::byte* scratch) {
    unit.multiply(jobs[index], first, last, *reinterpret_cast<DotScratch*>(scratch));
  });
}

}  // namespace

const DotUnit* dot_unit(Isa isa) {
  if (!uses_amx(isa)) return nullptr;
  static const DotUnit unit = dispatch<DotAmxKernel>(isa);
  return unit.multiply != nullptr ? &unit : nullptr;  // builds of the generic tier alone have none, whatever the CPU has
}

bool takes_tiles(const DotProduct& p) {
  return p.a.dtype() == DType::bf16 && p.b.dtype() == DType::bf16 && p.a.size(1) > most_by_vectors && p.a.elements() > 0 &&
         p.b.elements() > 0;
}

void dot_multiply_by(const DotUnit& unit, const DotProduct& product, const Exec& exec) {
  std::vector<DotJob> jobs = jobs_of(product, exec.threads);
  for (std::size_t first = 0, end = 0; first < jobs.size(); first = end) {
    std::size_t bytes = 0;
    while (end < jobs.size() && (end == first || bytes + jobs[end].packed_bytes() <= enough_bytes)) bytes += jobs[end++].packed_bytes();
    run(unit, std::span(jobs).subspan(first, end - first), exec);
  }
}

}  // namespace dodona::ops
