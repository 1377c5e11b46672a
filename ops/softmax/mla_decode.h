// What the MLA decode ops share: attention of all heads to one latent row per token, in a paged cache.
//
// A row of the cache is [c (512) | k_pe (64)], a query [q_nope (512) | q_pe (64)]. With L visible rows
//     z[j] = q_nope . c[j] + q_pe . k_pe[j],   p = softmax(scale * z),   out = out_scale * sum over j of p[j] * c[j].
// Query i of the Q of request b sees the first seq_lens[b] - Q + 1 + i rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"
#include "simd/tier.h"

namespace dodona::ops {

inline constexpr std::int64_t mla_latent = 512, mla_rope = 64, mla_width = mla_latent + mla_rope;

struct MlaDecode {
  Tensor q_nope, q_pe;  ///< [B, Q, N, 512] and [B, Q, N, 64], inner stride 1
  Tensor cache;         ///< [pages, P, 576], contiguous
  Tensor page_table;    ///< [B, W] i32, contiguous
  Tensor seq_lens;      ///< [B] i32, contiguous
  Tensor out;           ///< B*Q*N rows of 512 in this order, inner stride 1
  Tensor lse;           ///< f32, B*Q*N, contiguous: log2 of the sum of exp(scale * z); may be undefined
  double scale = 1, out_scale = 1;

  std::int64_t batch() const { return q_nope.size(0); }
  std::int64_t queries() const { return q_nope.size(1); }
  std::int64_t heads() const { return q_nope.size(2); }
  std::int64_t rows() const { return batch() * queries(); }
  /// Rows of the cache that row `row` = b*Q + i sees; 0 where a sequence is shorter than its queries.
  std::int64_t visible(std::int64_t row) const;
};

/// Throws bad_value when a page of a sequence is none of the cache's. Entries beyond a sequence's last page are not looked at.
void check_mla_pages(const MlaDecode& call, std::string_view table_name);
/// Throws bad_value unless `scale` is finite and positive.
void check_mla_scale(double scale, std::string_view name);

/// Where the sum of the weights is taken: over the fp32 weights, or where the contract leaves it open over the rounded ones.
enum class MlaWeightSum { unrounded, open };
void mla_decode_golden(const MlaDecode& call, MlaWeightSum sum, const Exec& exec, Reference* reference);
void mla_decode_fast(const MlaDecode& call, const Exec& exec);

double mla_decode_flops(const MlaDecode& call);
double mla_decode_bytes_read(const MlaDecode& call);

// ---- fast mode
//
// Sequences are cut into splits of mla_split keys and these into blocks of mla_block keys. Heads lie in lanes, so that a head's bits
// depend neither on how many share a vector, nor on the batch, nor on the threads:
//     s[j]  = z[j] * sigma, z one chain of fma over the row's 576 elements; sigma = fl32(scale * log2 e)
//     m     = max(m, block's s);  p[j] = exp2(s[j] - m), times 256 for e4m3;  p is rounded to the cache's type for its products alone
//     l     = fma(l, a, sum of p in the block), a = exp2(m_before - m);  o = o * a, then one chain of fma over the block's keys
// Splits are merged in order, o = sum of exp2(m_split - max m) * o_split and l likewise, and out = o * (1/l * out_scale).

inline constexpr std::int64_t mla_block = 128, mla_split = 1024;
/// Heads of one unit of work, a multiple of 16.
inline constexpr std::int64_t mla_most_heads = 64;

/// One split of one query for some heads.
struct MlaUnit {
  const std::byte *q_nope, *q_pe;           ///< first head
  std::int64_t q_nope_stride, q_pe_stride;  ///< bytes from head to head
  std::int64_t heads, lanes;                ///< lanes: heads rounded up to 16
  const std::byte* const* keys;             ///< rows of the cache
  std::int64_t key_count;
  DType type;
  float sigma;
  float* partial;  ///< m[lanes], l[lanes], o[512][lanes]
  float* scratch;  ///< mla_scratch_floats(lanes)
};
inline constexpr std::int64_t mla_partial_floats(std::int64_t lanes) {
  return (2 + mla_latent) * lanes;
}
inline constexpr std::int64_t mla_scratch_floats(std::int64_t lanes) {
  return mla_width * lanes + mla_block * mla_width + mla_block * lanes;
}
struct MlaUnitKernel {
  template <class Tier>
  static void run(const MlaUnit& unit);
};

/// All splits of one query for some heads, to its output.
struct MlaMerge {
  float* partials;      ///< of the first split; used up
  std::int64_t stride;  ///< floats from split to split
  std::int64_t splits, heads, lanes;
  DType cache_type, out_type;
  float out_scale;
  std::byte* out;
  std::int64_t out_stride;  ///< bytes from head to head
  float* lse;               ///< one per head, or nullptr
};
struct MlaMergeKernel {
  template <class Tier>
  static void run(const MlaMerge& merge);
};

}  // namespace dodona::ops
