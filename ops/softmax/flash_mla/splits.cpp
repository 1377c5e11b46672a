#include "ops/softmax/flash_mla/splits.h"

#include <algorithm>
#include <limits>

#include "core/threads.h"
#include "ops/softmax/flash_mla/tile.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Base 2, or e as the fp8 kernel has it.
struct Base {
  bool natural;
  float power(float x) const { return natural ? hw::expf(x) : hw::ex2(x); }
  /// The logarithm of `sum`, and `top`.
  float log_and(float sum, float top) const { return natural ? hw::fma(hw::lg2(sum), hw::ln_2, top) : hw::add(hw::lg2(sum), top); }
  float natural_of(float lse) const { return natural ? lse : hw::mul(lse, hw::ln_2); }
};

/// Writes the 512 sums of the row's splits to `out`. Returns the natural log-sum-exp.
float combine(std::span<const FlashMlaRow* const> splits, Base base, float* out) {
  float top = -infinity;
  for (const FlashMlaRow* split : splits) top = flash_mla_max(top, split->split_lse);
  if (top == -infinity) top = 0;
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < (splits.size() + 31) / 32 * 32; ++i)
    lanes[i % 32] = hw::add(lanes[i % 32], base.power(hw::sub(i < splits.size() ? splits[i]->split_lse : -infinity, top)));
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t lane = 0; lane < step; ++lane) lanes[lane] = hw::add(lanes[lane], lanes[lane + step]);
  const float sum = lanes[0], all = sum == 0 || sum != sum ? infinity : base.log_and(sum, top);
  std::fill_n(out, mla_latent, 0.0f);
  for (const FlashMlaRow* split : splits) {
    const float weight = base.power(hw::sub(split->split_lse, all));
    if (weight == 0 && !base.natural) continue;
    for (std::size_t d = 0; d < split->out.size(); ++d) out[d] = hw::fma(weight, split->out[d], out[d]);
  }
  return base.natural_of(all);
}

}  // namespace

void run_flash_mla(const FlashMlaRun& run, const Tensor& out, const Tensor& lse, const Exec& exec) {
  const std::int64_t requests = out.size(0), queries = out.size(1), heads = out.size(2), rows = queries * heads;
  const std::vector<std::vector<FlashMlaRange>> splits = flash_mla_splits(run.work);
  struct Task {
    std::int64_t request;
    FlashMlaRun::Rows rows;
    std::size_t split;
    std::int64_t place;
  };
  std::vector<Task> tasks;
  std::int64_t places = 0;
  std::vector<std::int64_t> first_place;  ///< of each request: results, split by split, row by row
  for (std::int64_t b = 0; b < requests; ++b) {
    first_place.push_back(places);
    for (std::size_t s = 0; s < splits[static_cast<std::size_t>(b)].size(); ++s) {
      for (const FlashMlaRun::Rows& block : run.blocks) tasks.push_back({b, block, s, places + block.first});
      places += rows;
    }
  }
  std::vector<FlashMlaRow> results(static_cast<std::size_t>(places));
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), 1e7, [&](std::int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    run.tile(task.request, task.rows, splits[static_cast<std::size_t>(task.request)][task.split],
             results.data() + static_cast<std::size_t>(task.place));
  });
  parallel_for(exec.threads, requests * rows, 1e4, [&](std::int64_t i) {
    const auto b = static_cast<std::size_t>(i / rows);
    const std::int64_t row = i % rows;
    std::vector<const FlashMlaRow*> mine;
    for (std::size_t s = 0; s < splits[b].size(); ++s)
      mine.push_back(&results[static_cast<std::size_t>(first_place[b] + static_cast<std::int64_t>(s) * rows + row)]);
    std::array<float, static_cast<std::size_t>(mla_latent)> combined;
    const float* from = mine.front()->out.data();
    float number = mine.front()->lse;
    if (mine.size() > 1) {
      number = combine(mine, Base{run.natural}, combined.data());
      from = combined.data();
    }
    for (std::int64_t d = 0; d < mla_latent; ++d) quant::set(out, i * mla_latent + d, static_cast<double>(from[d]));
    quant::set(lse, (static_cast<std::int64_t>(b) * heads + row % heads) * queries + row / heads, static_cast<double>(number));
  });
}

}  // namespace dodona::ops
