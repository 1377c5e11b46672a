#include "quant/hopper/block_sum.h"

#include <algorithm>

#include "quant/hopper/fast_math.h"

namespace dodona::quant::hopper {

float butterfly(Lanes lanes) {
  for (std::size_t step = 16; step > 0; step /= 2) {
    const Lanes before = lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = add(before[lane], before[lane ^ step]);
  }
  return lanes[0];
}

float neighbours(Lanes lanes) {
  for (std::size_t step = 1; step < lanes.size(); step *= 2)
    for (std::size_t lane = 0; lane + step < lanes.size(); lane += 2 * step) lanes[lane] = add(lanes[lane], lanes[lane + step]);
  return lanes[0];
}

float in_order(const Lanes& lanes) {
  float sum = lanes[0];
  for (std::size_t lane = 1; lane < lanes.size(); ++lane) sum = add(sum, lanes[lane]);
  return sum;
}

float block_sum(std::span<const float> x, const BlockLayout& layout) {
  const auto n = static_cast<std::int64_t>(x.size());
  Lanes warps{};
  for (std::int64_t first = 0; first < layout.threads; first += 32) {
    Lanes lanes{};
    for (std::int64_t lane = 0; lane < 32 && first + lane < layout.threads; ++lane)
      for (std::int64_t begin = (first + lane) * layout.vector; begin < n; begin += layout.threads * layout.vector) {
        const std::int64_t size = std::min(layout.vector, n - begin);
        float& sum = lanes[static_cast<std::size_t>(lane)];
        sum = layout.add(sum, x.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)));
      }
    warps[static_cast<std::size_t>(first / 32)] = layout.of_warp(lanes);
  }
  return layout.of_warps(warps);
}

float sum_of_threads(std::span<const float> threads) {
  const auto own = [](float, std::span<const float> sum) { return sum[0]; };
  return block_sum(threads, {1, static_cast<std::int64_t>(threads.size()), own, neighbours, in_order});
}

}  // namespace dodona::quant::hopper
