// Dot products in the order of a block of threads, on every tier, against the loops that its head describes.
#include "ops/tiles/dot/thread_dots.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>
#include <vector>

#include "quant/half.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

float by_threads(const std::uint16_t* x, const std::uint16_t* w, std::size_t k) {
  std::array<float, 128> sums{};
  for (std::size_t i = 0; i < k; ++i) {
    float& sum = sums[i % 1024 / 8];
    sum = hw::fma(quant::bf16_to_f32(x[i]), quant::bf16_to_f32(w[i]), sum);
  }
  float total = 0;
  for (std::size_t warp = 0; warp < 128; warp += 32) {
    std::array<float, 32> lanes;
    std::copy_n(sums.begin() + warp, 32, lanes.begin());
    for (const std::size_t other : {16u, 8u, 4u, 2u, 1u}) {
      const std::array<float, 32> before = lanes;
      for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = hw::add(before[lane], before[lane ^ other]);
    }
    total = hw::add(total, lanes[0]);
  }
  return total;
}

struct Draw {
  const char* name;
  std::uint16_t (*code)(std::mt19937& random);
};
const Draw draws[] = {
    {"about 1", [](std::mt19937& r) { return static_cast<std::uint16_t>((r() & 0x807F) | (0x3C00 + (r() % 16 << 7))); }},
    {"with zeros", [](std::mt19937& r) { return static_cast<std::uint16_t>(r() % 3 == 0 ? r() & 0x8000 : (r() & 0x807F) | 0x3F00); }},
    {"products about the smallest normal number",
     [](std::mt19937& r) { return static_cast<std::uint16_t>((r() & 0x807F) | (0x1F80 + (r() % 16 << 7))); }},
    {"any code", [](std::mt19937& r) { return static_cast<std::uint16_t>(r()); }},
    {"finite codes, denormals among them",
     [](std::mt19937& r) { return static_cast<std::uint16_t>(r() % 4 == 0 ? r() & 0x807F : r() & 0xBFFF); }},
    {"zeros alone", [](std::mt19937& r) { return static_cast<std::uint16_t>(r() & 0x8000); }},
};

TEST(ThreadDots, EqualTheOrderOfTheThreadsInEveryTier) {
  constexpr std::int64_t rows = 5;
  std::mt19937 random(11);
  for (const Draw& draw : draws)
    for (const std::int64_t k : {1024, 3072}) {
      std::vector<std::uint16_t> x(static_cast<std::size_t>(rows * k)), w(static_cast<std::size_t>(2 * k));
      for (auto& code : x) code = draw.code(random);
      for (auto& code : w) code = draw.code(random);
      for (const Isa isa : available_isas()) {
        std::array<float, rows> dots{};
        thread_dots(ThreadRows(x.data(), rows, k, isa), ThreadRows(w.data(), 2, k, isa), 1, dots.data(), isa);
        for (std::int64_t i = 0; i < rows; ++i) {
          const float expected = by_threads(x.data() + i * k, w.data() + k, static_cast<std::size_t>(k)),
                      got = dots[static_cast<std::size_t>(i)];
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected))
              << name(isa) << ", " << draw.name << ", k " << k << ", row " << i << ": " << got << " for " << expected;
        }
      }
    }
}

}  // namespace
}  // namespace dodona::ops
