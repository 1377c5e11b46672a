// A model of the instructions of Intel's matrix tiles, from their definition in Intel's Software Developer's Manual, in place of
// simd/amx_tiles.h; and the units of a kernel that tests compare. Included by tests that have said which tier they are.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "simd/amx.h"
#include "simd/amx_tiles.h"

namespace dodona {

/// Which factors of tdpb**d have a sign: of the left operand, of the right one.
struct DotInstruction {
  const char* name;
  bool a_signed, b_signed;
};
inline constexpr DotInstruction tdpbssd{"tdpbssd", true, true}, tdpbsud{"tdpbsud", true, false};

struct Tile {
  std::array<std::array<std::uint8_t, 64>, 16> row{};
  std::uint32_t word(int r, int i) const {
    std::uint32_t w;
    std::memcpy(&w, row[static_cast<std::size_t>(r)].data() + 4 * i, sizeof w);
    return w;
  }
  void set_word(int r, int i, std::uint32_t w) { std::memcpy(row[static_cast<std::size_t>(r)].data() + 4 * i, &w, sizeof w); }
};

/// One thread's tiles. What the CPU would refuse fails the test.
struct TileState {
  TileShapes shapes;
  std::array<Tile, 8> tiles;

  bool valid(int t) const { return shapes.palette == 1 && t < 8 && shapes.rows[t] > 0 && shapes.row_bytes[t] > 0; }
  void zero(int t) {
    ASSERT_TRUE(valid(t)) << t;
    tiles[static_cast<std::size_t>(t)] = {};
  }
  void load(int t, const std::uint8_t* p, std::int64_t stride) {
    zero(t);
    for (int r = 0; r < shapes.rows[t]; ++r)
      std::memcpy(tiles[static_cast<std::size_t>(t)].row[static_cast<std::size_t>(r)].data(), p + r * stride, shapes.row_bytes[t]);
  }
  void store(int t, std::uint8_t* p, std::int64_t stride) const {
    ASSERT_TRUE(valid(t)) << t;
    for (int r = 0; r < shapes.rows[t]; ++r)
      std::memcpy(p + r * stride, tiles[static_cast<std::size_t>(t)].row[static_cast<std::size_t>(r)].data(), shapes.row_bytes[t]);
  }
  void check(const char* name, int c, int a, int b) const {
    ASSERT_TRUE(valid(c) && valid(a) && valid(b)) << name;
    ASSERT_TRUE(c != a && a != b && c != b) << name;
    ASSERT_EQ(shapes.rows[c], shapes.rows[a]) << name;
    ASSERT_EQ(shapes.row_bytes[a] / 4, shapes.rows[b]) << name;
    ASSERT_EQ(shapes.row_bytes[c], shapes.row_bytes[b]) << name;
    ASSERT_TRUE(shapes.row_bytes[a] % 4 == 0 && shapes.row_bytes[c] % 4 == 0) << name;
  }
  void dot(const DotInstruction& which, int c, int a, int b) {
    check(which.name, c, a, b);
    const auto byte = [](std::uint32_t word, int j, bool is_signed) {
      const auto code = static_cast<std::uint8_t>(word >> 8 * j);
      return is_signed ? std::int32_t{static_cast<std::int8_t>(code)} : std::int32_t{code};
    };
    Tile& sums = tiles[static_cast<std::size_t>(c)];
    const Tile &left = tiles[static_cast<std::size_t>(a)], &right = tiles[static_cast<std::size_t>(b)];
    for (int m = 0; m < shapes.rows[c]; ++m)
      for (int k = 0; k < shapes.row_bytes[a] / 4; ++k)
        for (int n = 0; n < shapes.row_bytes[c] / 4; ++n) {
          std::uint32_t sum = sums.word(m, n);
          for (int j = 0; j < 4; ++j)
            sum += static_cast<std::uint32_t>(byte(left.word(m, k), j, which.a_signed) * byte(right.word(k, n), j, which.b_signed));
          sums.set_word(m, n, sum);
        }
  }
  /// tdpbf16ps: sums of even k and of odd ones, each by fused steps from zero, and both together added to c. Denormals count as zeros.
  void dot_bf16(int c, int a, int b) {
    check("tdpbf16ps", c, a, b);
    const auto flushed = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; };
    const auto number = [&](std::uint32_t bits) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      return flushed(x);
    };
    Tile& sums = tiles[static_cast<std::size_t>(c)];
    const Tile &left = tiles[static_cast<std::size_t>(a)], &right = tiles[static_cast<std::size_t>(b)];
    for (int m = 0; m < shapes.rows[c]; ++m)
      for (int n = 0; n < shapes.row_bytes[c] / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < shapes.row_bytes[a] / 4; ++k) {
          const std::uint32_t x = left.word(m, k), y = right.word(k, n);
          even = flushed(std::fma(number(x << 16), number(y << 16), even));
          odd = flushed(std::fma(number(x & 0xFFFF0000), number(y & 0xFFFF0000), odd));
        }
        const float sum = flushed(number(sums.word(m, n)) + flushed(even + odd));
        std::uint32_t bits;
        std::memcpy(&bits, &sum, sizeof bits);
        sums.set_word(m, n, bits);
      }
  }
};

inline thread_local TileState tile_state;
inline const auto* bytes_at(const void* p) {
  return static_cast<const std::uint8_t*>(p);
}

/// In place of generic::AmxTiles.
struct ModelTiles {
  class Session {
   public:
    explicit Session(const TileShapes& shapes) : before_(tile_state.shapes) { tile_state = {shapes, {}}; }
    ~Session() { tile_state = {before_, {}}; }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    TileShapes before_;
  };
  template <int t>
  static void zero() {
    tile_state.zero(t);
  }
  template <int t>
  static void load(const void* p, std::int64_t stride) {
    tile_state.load(t, bytes_at(p), stride);
  }
  template <int t>
  static void store(void* p, std::int64_t stride) {
    tile_state.store(t, static_cast<std::uint8_t*>(p), stride);
  }
  template <int c, int a, int b>
  static void dot_ss() {
    tile_state.dot(tdpbssd, c, a, b);
  }
  template <int c, int a, int b>
  static void dot_su() {
    tile_state.dot(tdpbsud, c, a, b);
  }
  template <int c, int a, int b>
  static void dot_bf16() {
    tile_state.dot_bf16(c, a, b);
  }
};

#if defined(__x86_64__)
using CpuTiles = generic::AmxTiles;
#else
using CpuTiles = ModelTiles;
#endif
/// The model; and the CPU's, in vector code of the generic tier and as kernels use it, where there is one.
template <class Unit>
std::vector<std::pair<std::string, Unit>> units_of(const Unit& model, const Unit& cpu, const Unit* (*used)(Isa)) {
  std::vector<std::pair<std::string, Unit>> all{{"model", model}};
  if (amx_facts().in_use()) all.emplace_back("cpu, generic", cpu);
  for (const Isa isa : available_isas())
    if (const Unit* const unit = used(isa)) all.emplace_back("cpu, " + std::string(name(isa)), *unit);
  return all;
}

}  // namespace dodona
