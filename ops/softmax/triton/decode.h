// sglang's Triton decode kernels: attention of one query token of each request to rows of a pool by slot, and their bits on an H200.
#pragma once

#include "ops/base/index_at.h"
#include "ops/softmax/attention.h"

namespace dodona::ops {

struct TritonDecode {
  Tensor q;                      ///< [B, N, Dk] bf16 or f16, inner stride 1
  Tensor k_buffer, v_buffer;     ///< [slots, Nk, Dk] and [slots, Nk, Dv], inner strides 1; of q's type, or e4m3
  Tensor kv_indptr, kv_indices;  ///< i32 [B+1]; i32 or i64 [n]
  Tensor num_kv_splits = {};     ///< i32 [B], or `splits` of them all
  Tensor o;                      ///< [B, N, Dv]
  double sm_scale = 1, cap = 0;  ///< cap: see Attention
  std::int64_t temperature = 0;  ///< not 0: scores of a request of more tokens + 1 are multiplied by log of its last position / log of it
  std::int64_t splits = 0;
  std::int64_t split_granule = 32;  ///< keys of a split are a multiple of it
  std::int64_t first_columns = 0;   ///< so many columns at the end of queries and keys are multiplied before the others
  Tensor last_keys = {};            ///< [B, Dk]: stand for the rows of the requests' last keys; may be undefined
  Tensor sinks = {};                ///< [N]: scores of no value; may be undefined

  bool in_fp8() const { return k_buffer.dtype() == DType::f8_e4m3; }

  std::int64_t group() const { return q.size(1) / std::max<std::int64_t>(1, k_buffer.size(1)); }
  std::int64_t length(std::int64_t request) const {
    const auto* const at = kv_indptr.as<const std::int32_t>() + request;
    return at[1] - at[0];
  }
  /// Slot of key j of a request.
  std::int64_t slot(std::int64_t request, std::int64_t j) const {
    return index_at(kv_indices, kv_indptr.as<const std::int32_t>()[request] + j);
  }
  const std::byte* key_row(std::int64_t request, std::int64_t j, std::int64_t head) const;
};

/// A row is the query heads of one request that share a key head.
class TritonDecodeAttention : public Attention {
 public:
  explicit TritonDecodeAttention(const TritonDecode& call);
  std::int64_t visible(std::int64_t row) const override { return call_.length(row / key_heads_); }
  QueryParts queries(std::int64_t row) const override;
  double temperature(std::int64_t row, std::int64_t query) const override;
  std::int64_t cached_keys(std::int64_t row) const override { return cached ? visible(row) : 0; }
  double sink(std::int64_t row, std::int64_t query) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;

 protected:
  TritonDecode call_;
  std::int64_t key_heads_;
};

/// Groups of heads on the tensor core, single heads in fused operations of the element type.
///
/// The keys of a request are cut into num_kv_splits[b] splits of equally many keys, a multiple of split_granule; each is gone through in
/// blocks about a running maximum and divided by its sum; splits are merged in order. Grouped: blocks of 32 keys, weights of a block added
/// by warps of eight keys. Single: blocks of 64; a score is made by lanes of eight elements, every operation rounded to the element type,
/// added up by butterflies in that type; weights stay fp32, and so do their products with the values, a chain for each of the keys' lanes.
///
/// Pools of e4m3. Grouped: keys widened to the element type, of each 32 columns those with i mod 4 in {0, 1} first; weights rounded to e4m3
/// and multiplied with the values as f16, in that order of keys, from zero; acc = fma(acc, a, products). Single: lanes of sixteen elements,
/// and scores of bf16 queries in fp32.
void triton_decode_hopper(const TritonDecode& call, const Exec& exec);

}  // namespace dodona::ops
