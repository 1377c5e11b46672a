#include "ops/softmax/merge_partial.h"
#include "ops/base/row_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::MergeHeads;

template <class Lanes>
DODONA_INLINE void merge_row(const MergeHeads& block, std::int64_t head, float share_a, float share_b) {
  const void* a = static_cast<const char*>(block.v_a) + head * block.stride_a;
  const void* b = static_cast<const char*>(block.v_b) + head * block.stride_b;
  void* v = static_cast<char*>(block.v_merged) + head * block.stride_v;
  const f32x16 p = f32x16::splat(share_a), q = f32x16::splat(share_b);
  std::int64_t d = 0;
  for (; d + 16 <= block.width; d += 16)
    Lanes::store(fma(Lanes::load(at<Lanes>(a, d)), p, Lanes::load(at<Lanes>(b, d)) * q), at<Lanes>(v, d));
  if (const std::int64_t left = block.width - d; left > 0) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(a, d), left), y = Lanes::load_partial(at<Lanes>(b, d), left);
    Lanes::store_partial(fma(x, p, y * q), at<Lanes>(v, d), left);
  }
}

template <class Lanes>
DODONA_INLINE void clear_row(const MergeHeads& block, std::int64_t head) {
  void* v = static_cast<char*>(block.v_merged) + head * block.stride_v;
  for (std::int64_t d = 0; d < block.width; d += 16) Lanes::store_partial(f32x16::zero(), at<Lanes>(v, d), block.width - d);
}

template <class Lanes>
DODONA_INLINE void merge_heads(const MergeHeads& block) {
  const f32x16 infinity = f32x16::splat(__builtin_inff());
  const auto side = [&](const float* s) {
    const f32x16 x = f32x16::load_partial(s, block.heads);
    return block.natural ? select(x == infinity, -infinity, x) : x;
  };
  const f32x16 s_a = side(block.s_a), s_b = side(block.s_b), top = max(s_a, s_b);
  const auto weight = [&](f32x16 s) { return block.natural ? exp(s - top) : exp2(s - top); };
  const f32x16 w_a = weight(s_a), w_b = weight(s_b), sum = w_a + w_b;
  f32x16 s = top + (block.natural ? log(sum) : log2(sum));
  std::uint32_t cleared = 0;
  if (block.empty_is_zero) {
    const mask16 empty = (s_a == -infinity) & (s_b == -infinity);
    s = select(empty, -infinity, s);
    cleared = empty.bits();
  }
  canonical_nan(s).store_partial(block.s_merged, block.heads);
  float share_a[16], share_b[16];
  (w_a / sum).store(share_a);
  (w_b / sum).store(share_b);
  for (std::int64_t head = 0; head < block.heads; ++head) {
    if ((cleared >> head & 1u) != 0) {
      clear_row<Lanes>(block, head);
    } else {
      merge_row<Lanes>(block, head, share_a[head], share_b[head]);
    }
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void MergeKernel::run(const MergeHeads& block) {
  using namespace DODONA_TIER;
  with_lanes(block.type, [&](auto lanes) { merge_heads<decltype(lanes)>(block); });
}
template void MergeKernel::run<tier::DODONA_TIER>(const MergeHeads&);

}  // namespace dodona::ops
