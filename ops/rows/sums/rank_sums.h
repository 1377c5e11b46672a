// Sums over the ranks of a group: what the reducing collectives share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "ops/base/bounded.h"

namespace dodona::ops {

/// How ranks add their terms, each widened to fp32.
struct RankSum {
  DType type;
  std::int64_t ranks;
  bool rounded_between = false;  ///< each sum is rounded to the type, as where it travels in it; else only the last one
  bool any_order = false;        ///< golden mode: order and the roundings between are open
  bool flushes = false;          ///< a build that flushes denormals
  bool negative_zero = true;     ///< terms of -0 alone give -0
  std::int64_t left_out = 0;     ///< so many ranks, from the end of the order: a mistake
};

/// A run of elements. Their sums begin with the terms of rank `first`; the others follow in a ring.
struct RankRun {
  const std::byte* terms;   ///< of rank 0
  std::int64_t rank_bytes;  ///< from rank to rank
  std::int64_t elements;
  std::int64_t first = 0;
};

/// Runs of a length that is worth a task; all begin with the same rank.
std::vector<RankRun> cut(const RankRun& run, DType type);

/// The sums before their last rounding to the type, with what the contract leaves open.
std::vector<Bounded> golden_sums(const RankSum& how, const RankRun& run);
/// The same on an H200.
std::vector<float> hopper_sums(const RankSum& how, const RankRun& run);
/// Rounded, to `output`.
void fast_sums(const RankSum& how, const RankRun& run, void* output, Isa isa);

}  // namespace dodona::ops
