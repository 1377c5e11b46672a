// A unit of attention by a matrix unit, with a model of its instructions on any machine and with the CPU's own where it has them: partial
// results have the bits of vectors.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/fast/attend_amx.h"
#include "ops/softmax/fast/attend_amx_lanes.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"
#include "tests/ops/tiles/tile_model.h"

namespace dodona {
namespace {

std::vector<std::pair<std::string, ops::AttendTiles>> units() {
  return units_of<ops::AttendTiles>({generic::AttendByTiles<ModelTiles>::run}, {generic::AttendByTiles<CpuTiles>::run}, ops::attend_tiles);
}

struct Shape {
  std::int64_t heads, key_width, value_width, keys;
  bool values_in_keys = false, causal = false;
  DType type = DType::bf16;
  ops::KeyRows rows = ops::KeyRows::elements;
  std::int64_t window = 0;  ///< not 0: so many keys a query sees, counted from the last one, the last query's being the last key
};
std::string text(const Shape& s) {
  return std::to_string(s.heads) + " queries, " + std::to_string(s.key_width) + '/' + std::to_string(s.value_width) + ", " +
         std::to_string(s.keys) + " keys" + (s.values_in_keys ? ", values in keys" : "") + (s.causal ? ", causal" : "") + ", window " +
         std::to_string(s.window) + ' ' + std::string(name(s.type)) + (s.rows == ops::KeyRows::k_cache ? ", packed" : "");
}

/// Operands of a unit.
struct Case {
  explicit Case(const Shape& shape, double size = 1.0) : s(shape) {
    const std::int64_t key_elements = s.rows == ops::KeyRows::k_cache ? ops::k_cache_row_bytes / 2 : s.key_width;
    queries = Tensor(s.type, {s.heads, s.key_width}), keys = Tensor(s.type, {s.keys, key_elements});
    values = Tensor(s.type, {s.keys, s.value_width});
    fill(queries, 1, size), fill(values, 3, 1.0);
    if (s.rows == ops::KeyRows::k_cache) {
      ops::draw_k_cache_rows(keys.as<std::byte>(), s.keys, 5, "k", 4);
    } else {
      fill(keys, 2, 1.0);
    }
    lanes = (s.heads + 15) / 16 * 16;
    for (std::int64_t h = 0; h < lanes; ++h) {
      const std::int64_t seen = s.causal && h < s.heads ? std::max<std::int64_t>(s.keys - s.heads + h + 1, 0) : s.keys;
      visible.push_back(static_cast<std::int32_t>(seen));
      const std::int64_t own = s.keys - s.heads + std::min(h, s.heads - 1) + 1;
      hidden.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(own - s.window, 0, seen)));
    }
  }
  static void fill(const Tensor& t, std::uint32_t seed, double size) {
    std::uint32_t x = seed * 2654435761u + 1;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      double sum = 0;
      for (int j = 0; j < 4; ++j) x = x * 1664525u + 1013904223u, sum += static_cast<double>(x >> 8) * 0x1p-24 - 0.5;
      quant::set(t, i, size * sum);
    }
  }

  /// m, l and o of all lanes by `run`, which is given the unit; empty where it leaves it to vectors.
  template <class Run>
  std::vector<float> partial(const Run& run) const {
    const std::int64_t element = bits(s.type) / 8, separate = s.values_in_keys ? 0 : s.value_width;
    std::vector<const std::byte*> key_rows, value_rows;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      key_rows.push_back(keys.as<const std::byte>() + j * keys.size(1) * element);
      value_rows.push_back(values.as<const std::byte>() + j * s.value_width * element);
    }
    std::vector<float> out(static_cast<std::size_t>(ops::attend_partial_floats(lanes, s.value_width)), 7.0f);
    const Tensor scratch(DType::f32, {std::max(ops::attend_scratch_floats(lanes, s.key_width, separate),
                                               ops::attend_tiles_scratch_floats(lanes, s.key_width, s.value_width))});
    // Nothing is zero that nobody wrote.
    std::memset(scratch.data(), 0xFF, static_cast<std::size_t>(scratch.elements()) * 4);
    const std::byte* const first = queries.as<const std::byte>();
    const std::int64_t split = s.key_width > 64 ? s.key_width - s.key_width % 64 - 64 : s.key_width, stride = s.key_width * element;
    ops::AttendUnit unit{};
    unit.queries = {ops::QueryPart{first, stride, split}, ops::QueryPart{first + split * element, stride, s.key_width - split}};
    unit.heads = s.heads, unit.lanes = lanes;
    unit.key_width = s.key_width, unit.value_width = s.value_width;
    unit.keys = key_rows.data(), unit.values = s.values_in_keys ? nullptr : value_rows.data();
    unit.key_count = s.keys;
    unit.visible = s.causal ? visible.data() : nullptr;
    unit.hidden = s.window > 0 ? hidden.data() : nullptr;
    unit.type = unit.query_type = unit.weight_type = s.type;
    unit.key_rows = s.rows;
    unit.weight_exponent = s.type == DType::f8_e4m3 ? 8.0f : 0.0f;
    unit.sigma = sigma;
    unit.partial = out.data(), unit.scratch = scratch.as<float>();
    EXPECT_TRUE(ops::takes_tiles(unit));
    if (!run(unit)) out.clear();
    return out;
  }
  void expect_bits_of_vectors(const std::string& what, bool by_vectors = false) const {
    const std::vector<float> expected = partial([](const ops::AttendUnit& unit) {
      dispatch<ops::AttendUnitKernel>(Isa::generic, unit);
      return true;
    });
    for (const auto& [name, tiles] : units()) {
      const std::vector<float> got = partial(tiles.run);
      if (by_vectors) {
        EXPECT_TRUE(got.empty()) << name << ", " << what;
        continue;
      }
      ASSERT_EQ(got.size(), expected.size()) << name << ", " << what;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto lane = static_cast<std::int64_t>(i) % lanes;
        if (lane >= s.heads || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
        ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
            << name << ", " << what << ", query " << lane << ", row " << static_cast<std::int64_t>(i) / lanes << ": " << got[i]
            << ", expected " << expected[i];
      }
    }
  }

  Shape s;
  Tensor queries, keys, values;
  std::int64_t lanes = 0;
  std::vector<std::int32_t> visible, hidden;
  float sigma = 0.3f;
};

TEST(AttendByTiles, HasTheBitsOfVectorsAtEveryEdge) {
  // Sixteens of queries, of keys and of columns, groups of 32, chunks of 256 and blocks of 128.
  for (const bool causal : {false, true})
    for (const Shape& s :
         {Shape{1, 16, 16, 1}, Shape{5, 32, 16, 31}, Shape{16, 192, 128, 33}, Shape{17, 48, 48, 127}, Shape{33, 192, 128, 128},
          Shape{48, 64, 32, 129}, Shape{64, 192, 128, 300}, Shape{64, 272, 80, 70}, Shape{20, 576, 512, 150}, Shape{100, 64, 32, 140}}) {
      Shape shape = s;
      shape.causal = causal;
      Case(shape).expect_bits_of_vectors(text(shape));
      shape.type = DType::f8_e4m3;
      Case(shape).expect_bits_of_vectors(text(shape));
    }
}

TEST(AttendByTiles, HasTheBitsOfVectorsInWindows) {
  for (const bool causal : {false, true})
    for (const std::int64_t window : {1, 16, 40, 129, 250})
      for (const Shape& s : {Shape{16, 64, 32, 300}, Shape{33, 192, 128, 161}, Shape{64, 48, 48, 420}, Shape{100, 64, 32, 90}}) {
        Shape shape = s;
        shape.causal = causal, shape.window = window;
        Case(shape).expect_bits_of_vectors(text(shape));
      }
}

TEST(AttendByTiles, HasTheBitsOfVectorsForMlaAndItsPackedCache) {
  for (const DType type : {DType::bf16, DType::f8_e4m3}) Case({16, 576, 512, 170, true, false, type}).expect_bits_of_vectors("mla");
  const Shape packed{20, 576, 512, 140, true, false, DType::bf16, ops::KeyRows::k_cache};
  Case(packed).expect_bits_of_vectors(text(packed));
}

TEST(AttendByTiles, FlushesDenormalsAsVectorsDo) {
  for (const double power : {-40.0, -60.0, -70.0, -126.0, -130.0}) {
    const Shape s{20, 64, 32, 300};
    // Scores far apart make weights of every size; small values, and both.
    Case far(s, 40.0);
    far.sigma = 3.0f;
    Case::fill(far.values, 4, std::ldexp(1.0, static_cast<int>(power)));
    far.expect_bits_of_vectors(text(s) + ", values about 2^" + std::to_string(power));
    Case small(s, std::ldexp(1.0, static_cast<int>(power)));
    Case::fill(small.keys, 4, std::ldexp(1.0, static_cast<int>(-126 - power)));
    small.sigma = 0x1p120f;
    small.expect_bits_of_vectors(text(s) + ", scores about 2^-126");
  }
}

TEST(AttendByTiles, InfinitiesAndNansAreThoseOfVectorsAndUnseenOnesLeftToThem) {
  for (const bool causal : {false, true}) {
    const Shape s{20, 64, 32, 150, false, causal};
    for (const double special : {double{INFINITY}, double{NAN}}) {
      Case keys(s), values(s), unseen(s);
      quant::set(keys.keys, 3 * s.key_width + 5, special);
      keys.expect_bits_of_vectors(text(s) + ", special key");
      quant::set(values.values, 3 * s.value_width + 5, special);
      // The first block has no key that some do not see where there are 20 queries and 150 keys.
      values.expect_bits_of_vectors(text(s) + ", special value");
      quant::set(unseen.values, 149 * s.value_width + 5, special);
      unseen.expect_bits_of_vectors(text(s) + ", special value that not all see", causal);
    }
  }
}

}  // namespace
}  // namespace dodona
