// FlashMLA's dense decode on an H200, to the bit: its schedule, its tiles, and how splits are combined.
//
// Rows, the heads of all queries of a request, are taken 64 at a time, keys in blocks of 64 tokens, these in pairs: of a pair one warpgroup
// has the first block and the left half of the output, the other the second and the right half. With slog = fl32(scale * log2 e), per row:
//   first block:   S0 = q.k, k ascending; M = max(M, slog * max S0); s0 = 2^(M before - M); P0 = 2^fma(S0, slog, -M)
//   second block:  S1, elements 256 to 575 before 0 to 255; M, s1, P1 likewise. A pair of one block: s1 = 1 and no P1.
//   left:          O = O * s0 + T(P0) V0; then O = O * s1 + T(P1) V1
//   right:         O = O * (s1 * s0) + T(P1) V1 + T(P0 * s1) V0, in this order
// each product a chain of steps of the tensor core that goes on from the scaled accumulator. The weights are added up unrounded, four sums
// for each half. Every fp32 operation flushes denormals.
//
// Source: FlashMLA csrc/sm90/decode/dense/splitkv_mla.cu, csrc/smxx/mla_combine.cu, csrc/smxx/get_mla_metadata.cu, and the machine code of
// sgl-kernel's build.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"

namespace dodona::ops {

inline constexpr std::int64_t flash_mla_block = 64;  ///< tokens of a block of keys, which is a page; rows of a block of queries

/// What one part of the GPU works on: from a block of one request to a block of a later one, those between as a whole.
struct FlashMlaPart {
  std::int32_t begin_request, begin_block, end_request, end_block, begin_split;
};
struct FlashMlaSchedule {
  std::vector<FlashMlaPart> parts;       ///< those with nothing to do begin at request B
  std::vector<std::int32_t> num_splits;  ///< running sums over requests, from 0
};
/// Parts of a GPU of so many SMs for `rows` rows of each key head.
std::int64_t flash_mla_parts(std::int64_t sm_count, std::int64_t key_heads, std::int64_t rows);
FlashMlaSchedule flash_mla_schedule(std::span<const std::int32_t> lengths, std::int64_t parts);
/// The schedule for as many parts as `metadata` has rows, i32 [parts, 8] and [B+1], contiguous.
void write_flash_mla_schedule(const Tensor& lengths, const Tensor& metadata, const Tensor& num_splits);

struct FlashMla {
  Tensor q;                     ///< [B, Q, N, 576] bf16 or f16, inner stride 1
  Tensor cache;                 ///< [pages, 64, 1, 576], contiguous
  Tensor block_table;           ///< [B, W] i32, contiguous
  Tensor seq_lens;              ///< [B] i32, contiguous
  Tensor metadata, num_splits;  ///< i32 [parts, 8] and [B+1], contiguous
  Tensor out;                   ///< [B, Q, N, 512]
  Tensor lse;                   ///< f32 [B, N, Q]
  double scale;
  bool causal;
};

/// Throws bad_value unless the metadata cut every request into the splits that num_splits counts.
void check_flash_mla_schedule(const FlashMla& call);
void flash_mla_hopper(const FlashMla& call, const Exec& exec);

}  // namespace dodona::ops
