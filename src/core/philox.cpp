#include "core/philox.h"

namespace dodona {

PhiloxBlock philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kBump0 = 0x9E3779B9, kBump1 = 0xBB67AE85;
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c0, product1 = kMultiplier1 * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += kBump0;
    k1 += kBump1;
  }
  return {c0, c1, c2, c3};
}

namespace {

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

void increment(PhiloxCounter& counter) {
  for (std::uint32_t& word : counter) {
    if (++word != 0) return;
  }
}

}  // namespace

PhiloxStream::PhiloxStream(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset)
    : counter_{low(offset / 4), high(offset / 4), low(subsequence), high(subsequence)},
      key_{low(seed), high(seed)},
      block_(philox4x32_10(counter_, key_)),
      lane_(static_cast<unsigned>(offset % 4)) {}

std::uint32_t PhiloxStream::next() {
  if (lane_ == 4) {
    increment(counter_);
    block_ = philox4x32_10(counter_, key_);
    lane_ = 0;
  }
  return block_[lane_++];
}

}  // namespace dodona
