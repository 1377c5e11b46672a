// How FlashMLA cuts its work among the SMs of a GPU: parts, and the splits of requests that they make.
//
// Source: FlashMLA csrc/smxx/get_mla_metadata.cu, csrc/python_api.cpp, csrc/extension/sm90/dense_fp8/flash_fwd_mla_metadata.cu.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::ops {

inline constexpr std::int64_t flash_mla_block = 64;  ///< tokens of a block of keys, which is a page; rows of a block of queries

/// The decode kernels.
enum class FlashMlaKernel {
  dense,      ///< caches of 16 bits
  dense_fp8,  ///< caches of e4m3; its metadata count tokens
  sparse,     ///< fp8 caches of 656 bytes a token; a request's tokens are the slots that its lists have room for
};

/// Parts of a GPU of so many SMs; 0 where the fp8 kernel has none. `rows` of each key head are those of all query tokens.
std::int64_t flash_mla_parts(FlashMlaKernel kernel, std::int64_t sm_count, std::int64_t key_heads, std::int64_t query_heads,
                             std::int64_t rows);

/// What one part of the GPU works on: from a block of one request to a block of a later one, those between as a whole.
struct FlashMlaPart {
  std::int32_t begin_request, begin_block, end_request, end_block, begin_split;
};
struct FlashMlaSchedule {
  std::vector<FlashMlaPart> parts;       ///< those with nothing to do begin at request B
  std::vector<std::int32_t> num_splits;  ///< running sums over requests, from 0
};
FlashMlaSchedule flash_mla_schedule(FlashMlaKernel kernel, std::span<const std::int32_t> lengths, std::int64_t parts);

/// A call's metadata, i32 [parts, 8] and [B+1], contiguous, and the tokens of its requests.
struct FlashMlaWork {
  FlashMlaKernel kernel;
  std::vector<std::int32_t> lengths;
  Tensor metadata, num_splits;
};
/// The schedule for as many parts as `metadata` has rows.
void write_flash_mla_schedule(const FlashMlaWork& work);

/// Blocks of one request that make a split.
struct FlashMlaRange {
  std::int32_t begin, end;
};
/// Splits of each request, in order.
std::vector<std::vector<FlashMlaRange>> flash_mla_splits(const FlashMlaWork& work);
/// The most splits of a request, by their running sums over requests.
std::int64_t most_splits(const Tensor& num_splits);
/// Throws bad_value unless the metadata cut every request into the splits that num_splits counts.
void check_flash_mla_schedule(const FlashMlaWork& work);

}  // namespace dodona::ops
