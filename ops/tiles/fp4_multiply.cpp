#include "ops/tiles/fp4_multiply.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/threads.h"
#include "quant/e4m3.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

using quant::align;
using quant::ceil_div;

/// Rows of one group that are multiplied together, with every panel of its weights.
struct Job {
  const Fp4Group* group;
  std::int64_t first, rows;  ///< of the group
  std::int64_t tiles;        ///< pairs of panels
  std::int64_t cost;         ///< of one tile: its rows, and the reading and decoding of its weights in units of rows
};
constexpr std::int64_t weight_cost = 12;

/// So many rows that they stay in a second-level cache while all weights pass by: 1.5 bytes an element.
std::int64_t rows_together(std::int64_t k) {
  constexpr std::int64_t budget = 720 * 1024;
  return std::clamp<std::int64_t>(budget * 2 / (3 * std::max<std::int64_t>(k, 1)), 16, fp4_tile_rows);
}

std::vector<Job> jobs_of(std::span<const Fp4Group> groups) {
  std::vector<Job> jobs;
  for (const Fp4Group& group : groups) {
    if (group.rows == 0) continue;
    const std::int64_t parts = ceil_div(group.rows, rows_together(group.weights.k));
    const std::int64_t rows = align(ceil_div(group.rows, parts), 4);
    for (std::int64_t first = 0; first < group.rows; first += rows) {
      const std::int64_t count = std::min(rows, group.rows - first);
      jobs.push_back({&group, first, count, ceil_div(group.weights.n / fp4_panel_rows, fp4_tile_panels), count + weight_cost});
    }
  }
  return jobs;
}

/// Rows of A as tiles read them, for all rows of the tensor.
class Activations {
 public:
  static std::size_t bytes(std::int64_t rows, std::int64_t k) {
    // Codes, corrections and scales; 64 more let every array begin on a cache line.
    return static_cast<std::size_t>(rows * fp4_steps(k) * (fp4_step + 32) + 64);
  }
  Activations(std::byte* memory, std::int64_t rows, std::int64_t k) : steps_(fp4_steps(k)), k_(k) {
    first_.codes = reinterpret_cast<std::int8_t*>(memory);
    first_.corrections = reinterpret_cast<std::int32_t*>(memory + align(rows * steps_ * fp4_step, 64));
    first_.scales = reinterpret_cast<float*>(first_.corrections + rows * steps_ * 4);
  }
  Fp4Rows row(std::int64_t r) const {
    return {first_.codes + r * steps_ * fp4_step, first_.corrections + r * steps_ * 4, first_.scales + r * steps_ * 4};
  }
  /// `scales` holds the row's four scales of a step every 512 bytes.
  void prepare(std::int64_t r, const std::uint8_t* codes, const std::uint8_t* scales, Isa isa) const {
    const Fp4Rows out = row(r);
    dispatch<Fp4ActivationKernel>(isa, codes, k_, out);
    for (std::int64_t block = 0; block < steps_ * 4; ++block)
      out.scales[block] = block < k_ / fp4_block ? quant::e4m3_to_f32(scales[block / 4 * 512 + block % 4]) : 0.0f;
  }

 private:
  Fp4Rows first_;
  std::int64_t steps_, k_;
};

struct Product {
  std::span<const Fp4Group> groups;
  const Tensor &a, &a_scales, &out;
  const Exec& exec;
  Activations activations;
};

void prepare_rows(const Product& product) {
  const std::int64_t k = product.a.size(1) * 2;
  for (const Fp4Group& group : product.groups)
    parallel_for(product.exec.threads, group.rows, static_cast<double>(k) / 16, [&](std::int64_t r) {
      const std::int64_t at = quant::scale_offset(quant::ScaleLayout::swizzled_128x4, group.scale_row + r, 0, product.a_scales.size(1));
      product.activations.prepare(group.row + r, product.a.as<std::uint8_t>() + (group.row + r) * (k / 2),
                                  product.a_scales.as<std::uint8_t>() + at, product.exec.isa);
    });
}

void run_tile(const Product& product, const Job& job, std::int64_t tile) {
  const Fp4Weights& weights = job.group->weights;
  const std::int64_t row = job.group->row + job.first, panel = tile * fp4_tile_panels;
  const int out_bytes = bits(product.out.dtype()) / 8;
  dispatch<Fp4TileKernel>(product.exec.isa,
                          Fp4Tile{.weights = weights,
                                  .first_panel = panel,
                                  .panels = std::min(fp4_tile_panels, weights.n / fp4_panel_rows - panel),
                                  .a = product.activations.row(row),
                                  .rows = job.rows,
                                  .alpha = job.group->alpha,
                                  .out_type = product.out.dtype(),
                                  .out = product.out.as<std::byte>() + (row * weights.n + panel * fp4_panel_rows) * out_bytes,
                                  .out_stride = weights.n});
}

/// The tiles whose share of the cost begins in part `part` of `parts`, in order: each worker reads one stretch of the weights.
void run_part(const Product& product, const std::vector<Job>& jobs, std::int64_t total, std::int64_t part, std::int64_t parts) {
  const std::int64_t begin = total * part / parts, end = total * (part + 1) / parts;
  std::int64_t before = 0;
  for (const Job& job : jobs) {
    const std::int64_t first = std::clamp<std::int64_t>(ceil_div(begin - before, job.cost), 0, job.tiles);
    const std::int64_t last = std::clamp<std::int64_t>(ceil_div(end - before, job.cost), 0, job.tiles);
    for (std::int64_t tile = first; tile < last; ++tile) run_tile(product, job, tile);
    before += job.tiles * job.cost;
  }
}

}  // namespace

void fp4_multiply(std::span<const Fp4Group> groups, const Tensor& a, const Tensor& a_scales, const Tensor& out, const Exec& exec) {
  const std::vector<Job> jobs = jobs_of(groups);
  std::int64_t total = 0, tiles = 0;
  for (const Job& job : jobs) total += job.tiles * job.cost, tiles += job.tiles;
  if (tiles == 0) return;
  const std::int64_t k = a.size(1) * 2;
  const Scratch scratch = exec.scratch.take(Activations::bytes(a.size(0), k));
  const Product product{groups, a, a_scales, out, exec, Activations(scratch.as(), a.size(0), k)};
  prepare_rows(product);
  const std::int64_t parts = std::min<std::int64_t>(exec.threads, tiles);
  const double cost = static_cast<double>(total) / static_cast<double>(parts) * static_cast<double>(k);
  parallel_for(exec.threads, parts, cost, [&](std::int64_t part) { run_part(product, jobs, total, part, parts); });
}

void fp4_pack(const Fp4Weights& raw, std::byte* out, const Exec& exec) {
  parallel_for(exec.threads, raw.n / fp4_panel_rows, static_cast<double>(raw.k), [&](std::int64_t panel) {
    dispatch<Fp4PackKernel>(exec.isa, raw, panel, reinterpret_cast<std::uint8_t*>(out) + panel * fp4_panel_bytes(raw.k));
  });
}

}  // namespace dodona::ops
