// Rows of queries as FlashInfer's fa2 kernels carry them from tile to tile on an H200, to the bit. Ragged prefill and paged MLA have this
// in common: tiles and what is hidden in them are theirs.
//
// fp32 with fast-math: denormals flushed, exp2 and log2 the hardware's. sigma = sm_scale * log2 e. Of a tile's scores z, -inf where a key
// is not seen, of q . k on the tensor core:
//   m'   = max(m, max z);  u = m' * sigma, at least -FLT_MAX;  a = ex2(fma(m, sigma, -u));  p = ex2(fma(z, sigma, -u)), rounded to the type
//   d    = d * a, and on from there the tensor core's sum of p * 1, 16 keys a step; d begins at 1, which the first a takes away
//   o    = o * a, and on from there the tensor core's sum of p * v
// At last m = m * sigma, lse = lg2(d) + m, and out = o * rcp(d), o * 0 where no key was seen.
//
// Source: include/flashinfer/attention/prefill.cuh and mla.cuh, update_mdo_states and what follows it, as nvcc 13 compiles them with
// -use_fast_math.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/isa.h"

namespace dodona::ops {

class OnlineRows {
 public:
  /// `sums`: threads' groups that each add up the weights of their part of a tile's keys, 1 or 2.
  OnlineRows(DType type, std::int64_t rows, std::int64_t value_width, std::int64_t sums, float sigma, Isa isa);

  /// A tile: scores [rows, keys], which become weights, and codes of the values, [value_width, keys].
  void add(std::vector<float>& scores, std::int64_t keys, const std::uint16_t* values);
  /// No further tiles.
  void close();
  /// The states of warps that had keys of their own, closed, as one.
  static OnlineRows merged(const std::vector<OnlineRows>& warps);
  /// Scores of no value, of each row, of a closed state; -inf: none.
  void add_sinks(const std::vector<float>& sinks);

  /// Whether no number was among the row's scores.
  bool empty(std::int64_t row) const;
  float lse(std::int64_t row) const;
  float out(std::int64_t row, std::int64_t column) const;

 private:
  struct Row {
    float top, sum[2], factor;
  };

  DType type_;
  std::int64_t width_, sums_;
  float sigma_;
  Isa isa_;
  std::vector<Row> rows_;
  std::vector<float> outs_;
};

}  // namespace dodona::ops
