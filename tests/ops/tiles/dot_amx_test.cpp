// Products of bf16 by a matrix unit: packing, blocking and denormals with a model of the unit's instructions, on any machine, and with the
// CPU's own where it has them. Bits are those of vectors.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ops/tiles/dot/dot_amx.h"
#include "ops/tiles/dot/dot_amx_lanes.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"
#include "tests/ops/tiles/tile_model.h"

namespace dodona {
namespace {

using helpers::in_mode;

template <class Tiles>
ops::DotUnit unit_of() {
  using Unit = generic::DotByTiles<Tiles>;
  return {Unit::prepare, Unit::multiply};
}
std::vector<std::pair<std::string, ops::DotUnit>> units() {
  return units_of<ops::DotUnit>(unit_of<ModelTiles>(), unit_of<CpuTiles>(), ops::dot_unit);
}

/// About normal, different everywhere, times 2 to a power from `low` to `high`.
void fill(const Tensor& t, std::uint32_t seed, int low = 0, int high = 0) {
  std::uint32_t x = seed * 2654435761u + 1;
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    double sum = 0;
    for (int j = 0; j < 4; ++j) x = x * 1664525u + 1013904223u, sum += static_cast<double>(x >> 8) * 0x1p-24 - 0.5;
    quant::set(t, i, std::ldexp(sum, low + static_cast<int>((x >> 4) % static_cast<std::uint32_t>(high - low + 1))));
  }
}

struct Shape {
  std::int64_t batches, m, n, k;
};
std::string text(const Shape& s) {
  return std::to_string(s.batches) + " of " + std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k);
}

/// Columns side by side along K, or rows along N.
ops::DotProduct product_of(const Shape& s, bool along_k, DType out) {
  const Tensor b = along_k ? Tensor(DType::bf16, {s.batches, s.n, s.k}).transpose(1, 2) : Tensor(DType::bf16, {s.batches, s.k, s.n});
  return {Tensor(DType::bf16, {s.batches, s.m, s.k}), b, Tensor(out, {s.batches, s.m, s.n})};
}

/// The product by every unit has the bits of vectors.
void expect_bits_of_vectors(const ops::DotProduct& p, const std::string& what) {
  // Below the tier of units.
  const ops::DotProduct vectors{p.a, p.b, Tensor(p.out.dtype(), p.out.shape())};
  ops::dot_multiply(vectors, in_mode(Mode::fast, 1, Isa::generic));
  for (const auto& [name, unit] : units())
    for (const int threads : {1, 3}) {
      const ops::DotProduct tiles{p.a, p.b, Tensor(p.out.dtype(), p.out.shape())};
      ops::dot_multiply_by(unit, tiles, in_mode(Mode::fast, threads, Isa::generic));
      for (std::int64_t i = 0; i < tiles.out.elements(); ++i)
        ASSERT_EQ(quant::get_bits(tiles.out, i), quant::get_bits(vectors.out, i)) << name << ", " << what << ", element " << i;
    }
}

TEST(DotByTiles, HasTheBitsOfVectorsAtEveryEdge) {
  // Sixteens, tiles of one to four sixteens, jobs of 256 rows, panels, pieces of sixteen, chunks of 256 k and streams of 1024.
  const std::vector<Shape> shapes{{1, 1, 1, 1},      {1, 4, 17, 31},    {2, 5, 33, 32},   {3, 16, 16, 33},
                                  {1, 17, 300, 255}, {1, 31, 40, 257},  {2, 33, 48, 300}, {1, 48, 20, 64},
                                  {1, 49, 33, 513},  {1, 64, 16, 1024}, {1, 65, 50, 290}, {1, 16, 40, 1061},
                                  {1, 33, 17, 1100}, {1, 63, 18, 2111}, {1, 273, 35, 70}, {1, 300, 270, 40}};
  for (const Shape& s : shapes)
    for (const bool along_k : {true, false}) {
      const ops::DotProduct p = product_of(s, along_k, s.n % 2 == 0 ? DType::f32 : DType::bf16);
      fill(p.a, 1), fill(p.b, 2);
      expect_bits_of_vectors(p, text(s) + (along_k ? ", along k" : ", across"));
    }
}

TEST(DotByTiles, KeepsDenormalsThatTheUnitWouldFlush) {
  for (const Shape& s : {Shape{1, 20, 40, 600}, Shape{1, 20, 40, 1200}, Shape{1, 70, 20, 600}})
    for (const bool along_k : {true, false}) {
      const ops::DotProduct p = product_of(s, along_k, DType::f32);
      // Products about the least normal number; denormal factors; and those in a late chunk alone.
      fill(p.a, 1, -70, -50), fill(p.b, 2, -70, -50);
      expect_bits_of_vectors(p, text(s) + ", small products");
      fill(p.a, 3, -133, -120), fill(p.b, 4, 0, 60);
      expect_bits_of_vectors(p, text(s) + ", denormal rows");
      fill(p.a, 5), fill(p.b, 6);
      for (std::int64_t j = 0; j < s.n; j += 3) {
        const Tensor late = p.b.slice(1, 560, 561).slice(2, j, j + 1);
        quant::set(late, 0, 0x1p-130);
      }
      expect_bits_of_vectors(p, text(s) + ", denormal columns behind others");
    }
}

TEST(DotByTiles, ZerosInfinitiesAndNansAreThoseOfVectors) {
  const Shape s{1, 20, 40, 300};
  for (const bool along_k : {true, false}) {
    const ops::DotProduct p = product_of(s, along_k, DType::f32);
    fill(p.a, 1), fill(p.b, 2);
    for (std::int64_t i = 0; i < p.a.elements(); i += 3) quant::set(p.a, i, i % 2 == 0 ? 0.0 : -0.0);
    quant::set(p.a, 2 * s.k + 7, INFINITY), quant::set(p.a, 3 * s.k + 8, -INFINITY), quant::set(p.a, 4 * s.k + 9, NAN);
    for (std::int64_t i = 0; i < s.k; ++i) quant::set(p.a, 5 * s.k + i, -0.0), quant::set(p.a, 6 * s.k + i, 0x1p127);
    expect_bits_of_vectors(p, text(s));
  }
}

}  // namespace
}  // namespace dodona
