// Weights that are asked for while others are worked on. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "simd/inline.h"

namespace dodona::DODONA_TIER {

/// Packed weights of a piece's next chunk, which are fetched a few lines at a time while this one is multiplied: all at once they would
/// stand in each other's way. A fetch beyond the end does nothing.
class WeightsAhead {
 public:
  WeightsAhead() = default;
  /// `bytes` of each of `panels` panels, `stride` bytes apart, in so many `turns`.
  DODONA_INLINE WeightsAhead(const std::uint8_t* first, std::int64_t panels, std::int64_t stride, std::int64_t bytes, std::int64_t turns)
      : panel_(reinterpret_cast<std::uintptr_t>(first)),
        stride_(static_cast<std::uintptr_t>(stride)),
        bytes_(static_cast<std::uintptr_t>(bytes)),
        lines_(panels * ((bytes + 63) / 64)),
        each_((lines_ + turns - 1) / turns) {}
  DODONA_INLINE void fetch() {
    const std::int64_t now = each_ < lines_ ? each_ : lines_;
    lines_ -= now;
    for (std::int64_t i = 0; i < now; ++i) {
      const auto* const line = reinterpret_cast<const void*>(panel_ + at_);  // NOLINT(performance-no-int-to-ptr)
      __builtin_prefetch(line, 0, 2);
      at_ += 64;
      if (at_ >= bytes_) at_ = 0, panel_ += stride_;
    }
  }

 private:
  std::uintptr_t panel_ = 0, stride_ = 0, bytes_ = 0, at_ = 0;
  std::int64_t lines_ = 0, each_ = 0;
};

}  // namespace dodona::DODONA_TIER
