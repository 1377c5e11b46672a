// How a block of a GPU's threads adds up a row, in the arithmetic of builds with fast math.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace dodona::quant::hopper {

/// A number of each thread of a warp, or of each warp of a block.
using Lanes = std::array<float, 32>;

/// Lane by lane with its partner 16, 8, 4, 2 and 1 away.
float butterfly(Lanes lanes);
/// Lane by lane with the one 1, 2, 4, 8 and 16 above: neighbours first.
float neighbours(Lanes lanes);
float in_order(const Lanes& lanes);

/// Thread i has the vectors i, i + threads and so on of a row, which it takes in order by `add`, from 0 on.
struct BlockLayout {
  std::int64_t vector, threads;
  float (*add)(float sum, std::span<const float> vector);
  float (*of_warp)(Lanes);
  float (*of_warps)(const Lanes&);
};

/// `of_warps`, where warps add up as lanes do.
inline float butterfly_of_warps(const Lanes& warps) {
  return butterfly(warps);
}

float block_sum(std::span<const float> x, const BlockLayout& layout);
/// What each thread of a block has, added up as CUB's `BlockReduce` does (warp reductions): neighbours, then warps in order.
float sum_of_threads(std::span<const float> threads);

}  // namespace dodona::quant::hopper
