// Products by a matrix unit: packing, blocking and epilogues with a model of the unit's instructions, on any machine, and with the CPU's
// own where it has them. Bits are those of vectors.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "ops/tiles/panel_i8/panel_digits_amx_lanes.h"
#include "ops/tiles/panel_i8/panel_i8_amx.h"
#include "ops/tiles/panel_i8/panel_i8_amx_lanes.h"
#include "tests/ops/helpers.h"
#include "tests/ops/tiles/tile_model.h"

namespace dodona {
namespace {

using helpers::in_mode;

template <class Tiles>
ops::I8MatrixUnit unit_of() {
  using Unit = generic::MatrixUnit<Tiles>;
  return {Unit::prepare, Unit::multiply, {1, 1, ops::i8_amx_rows}, {1, 1, ops::i8_amx_scaled_rows}, {1, 1, ops::i8_amx_scaled_rows}};
}
std::vector<std::pair<std::string, ops::I8MatrixUnit>> units() {
  return units_of<ops::I8MatrixUnit>(unit_of<ModelTiles>(), unit_of<CpuTiles>(), ops::i8_matrix_unit);
}

template <class Tiles>
ops::DigitsUnit digits_unit_of() {
  return {generic::multiply_digits_by<Tiles>, 1};
}
std::vector<std::pair<std::string, ops::DigitsUnit>> digits_units() {
  return units_of<ops::DigitsUnit>(digits_unit_of<ModelTiles>(), digits_unit_of<CpuTiles>(), ops::digits_unit);
}

// ---- products

std::uint8_t noise(std::size_t i) {
  auto x = static_cast<std::uint32_t>(i) * 2654435761u + 12345u;
  x ^= x >> 15;
  x *= 2246822519u;
  return static_cast<std::uint8_t>(x >> 13);
}
std::vector<std::uint8_t> codes(std::int64_t count, std::size_t seed) {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = noise(seed * 1000003 + i);
  return all;
}
/// Of either sign, from denormals to the largest; now and then NaN.
std::vector<std::uint8_t> e4m3_codes(std::int64_t count, std::size_t seed) {
  std::vector<std::uint8_t> all = codes(count, seed);
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((all[i] & 0x7F) == 0x7F && i % 11 != 0) all[i] = 0x38;
  return all;
}

/// All over the range of scales that panel_i8.h has for MXFP4.
std::vector<std::uint8_t> ue8m0_codes(std::int64_t count, std::size_t seed) {
  std::vector<std::uint8_t> all = codes(count, seed);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::uint8_t>(i % 5 == 0 ? 127 - 50 : i % 5 == 1 ? 127 + 50 : i % 5 == 2 ? 77 + all[i] % 101 : 124 + all[i] % 6);
  return all;
}
std::vector<std::uint8_t> scale_codes(ops::I8Format format, std::int64_t count, std::size_t seed) {
  return format == ops::I8Format::mxfp4 ? ue8m0_codes(count, seed) : e4m3_codes(count, seed);
}

/// NVFP4: of two blocks the first has the largest products, the second ones that make sums odd.
void to_large(std::vector<std::uint8_t>& codes) {
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = i / 8 % 2 == 0 || codes[i] % 8 > 2 ? 0x77 : codes[i] % 8 == 0 ? 0x71 : codes[i] % 8 == 1 ? 0x17 : 0x57;
}
/// The scale of the first of two blocks so many powers of two above that of the second, in one of two pairs; some are any number, zero,
/// denormal or NaN. With signs, sums go up and down, so that they stay small enough to show the last digits of a pair.
void to_apart(std::vector<std::uint8_t>& scales, int apart, bool signs) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (noise(i / 1024 + 5) % 8 == 0) continue;
    const bool first = i % 2 == 0, this_pair = i / 1024 % 2 == i / 2 % 2;
    const int exponent = first && this_pair ? 1 + apart : 1, mantissa = noise(7 * i) % 4 == 0 ? noise(9 * i) % 8 : 7;
    scales[i] = static_cast<std::uint8_t>((signs && i / 1024 % 2 == 1 ? 0x80 : 0) | exponent << 3 | mantissa);
  }
}

/// Of four kinds of blocks of 128: sums of two digits, of three, of floats, and of either with a NaN or two.
void to_digits(std::vector<std::uint8_t>& codes) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint8_t code = codes[i], sign = code & 0x80, kind = noise(i / 128) % 4;
    const int magnitude = kind == 0   ? 0x38 + code % 24
                          : kind == 1 ? (code % 8 == 0 ? 0x68 : code % 4)
                          : kind == 2 ? (code % 5 == 0 ? 0x01 : 0x7E)
                          : code == 9 ? 0x7F
                                      : 0x30 + code % 16;
    codes[i] = static_cast<std::uint8_t>(sign | magnitude);
  }
}

struct Shape {
  ops::I8Format format;
  std::vector<std::int64_t> rows;  ///< of the groups
  std::int64_t n, k;
  /// NVFP4: powers of two from the scale of a block to that of the one before, of rows and of columns; any, where they are negative.
  int apart = -1, columns_apart = -1;
};
std::string text(const Shape& s) {
  std::string what = "format " + std::to_string(static_cast<int>(s.format)) + ", rows";
  for (const std::int64_t rows : s.rows) what += ' ' + std::to_string(rows);
  what += ", n " + std::to_string(s.n) + ", k " + std::to_string(s.k);
  return s.apart < 0 ? what : what + ", scales " + std::to_string(s.apart) + " and " + std::to_string(s.columns_apart) + " apart";
}

/// Groups of rows with weights of their own, rows between them that belong to none.
struct Operands {
  explicit Operands(const Shape& shape) : s(shape) {
    const bool fp4 = ops::is_fp4(s.format), bytes = s.format == ops::I8Format::i8;
    for (const std::int64_t rows : s.rows) {
      first_row.push_back(all_rows);
      scale_row.push_back(all_scale_rows);
      all_rows += rows + 3;
      all_scale_rows += (rows + 127) / 128 * 128;
      const std::size_t seed = 10 * first_row.size();
      weights.push_back(codes(bytes ? s.n * s.k : s.n * s.k / 2, seed));
      if (fp4) weight_scales.push_back(scale_codes(s.format, (s.n + 127) / 128 * 128 * scale_columns(), seed + 1));
      if (s.format == ops::I8Format::e4m3_i4) {
        weight_scales.push_back(codes(s.k / 128 * s.n * 2, seed + 1));
        for (std::size_t i = 1; i < weight_scales.back().size(); i += 2) weight_scales.back()[i] = static_cast<std::uint8_t>(0x3A + i % 5);
      }
      if (s.format == ops::I8Format::qserve_groups) {
        weight_scales.push_back(codes(s.k / 128 * s.n, seed + 1));
        for (std::uint8_t& scale : weight_scales.back()) scale = static_cast<std::uint8_t>(scale % 18);
        zeros.push_back(codes(s.k / 128 * s.n, seed + 2));
      }
    }
    a = codes(fp4 ? all_rows * s.k / 2 : all_rows * s.k, 1);
    // The extremes add up farthest.
    if (!fp4)
      std::memset(a.data(), 0x80, static_cast<std::size_t>(s.k)),
          std::memset(weights[0].data(), bytes ? 0x80 : 0x88, static_cast<std::size_t>(s.k / 2));
    if (s.format == ops::I8Format::e4m3_i4) to_digits(a);
    if (s.apart >= 0) {
      to_large(a);
      for (auto& of_group : weights) to_large(of_group);
      for (auto& of_group : weight_scales) to_apart(of_group, s.columns_apart, false);
    }
    if (fp4) a_scales = scale_codes(s.format, all_scale_rows * scale_columns(), 2);
    if (s.apart >= 0) to_apart(a_scales, s.apart, true);
    row_scales = {};
    for (std::int64_t i = 0; i < all_rows; ++i) row_scales.push_back(0.01f * static_cast<float>(1 + noise(static_cast<std::size_t>(i))));
  }
  std::int64_t scale_columns() const { return (s.k / ops::i8_scale_block(s.format) + 3) / 4 * 4; }
  ops::I8Weights raw(std::size_t g) const {
    return {.codes = weights[g].data(),
            .scales = weight_scales.empty() ? nullptr : weight_scales[g].data(),
            .n = s.n,
            .k = s.k,
            .zeros = zeros.empty() ? nullptr : zeros[g].data()};
  }
  /// By the unit, or by vectors of the generic tier.
  Tensor product(const ops::I8MatrixUnit* unit, bool packing, int threads) const {
    return product_by(
        [&](const ops::I8Product& product, const Exec& exec) {
          unit != nullptr ? ops::i8_multiply_by(*unit, product, exec) : ops::i8_multiply(product, exec);
        },
        packing, threads);
  }
  /// Elements of no group stay 7.
  template <class Multiply>
  Tensor product_by(const Multiply& multiply, bool packing, int threads) const {
    const Exec exec = in_mode(Mode::fast, threads, Isa::generic);
    Tensor out(DType::f32, {all_rows, s.n});
    for (std::int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = 7;
    std::vector<std::vector<std::byte>> packed;
    std::vector<ops::I8Group> groups;
    for (std::size_t g = 0; g < s.rows.size(); ++g) {
      ops::I8Weights w = raw(g);
      if (packing) {
        packed.emplace_back(static_cast<std::size_t>(ops::i8_packed_bytes(s.format, s.n, s.k)));
        ops::i8_pack(s.format, w, packed.back().data(), exec);
        w = {.packed = reinterpret_cast<const std::uint8_t*>(packed.back().data()), .n = s.n, .k = s.k};
      }
      groups.push_back(
          {first_row[g],
           s.rows[g],
           scale_row[g],
           w,
           {.steps = {{.values = row_scales.data(), .row_stride = 1}}, .count = 1, .out = out.as<std::byte>(), .out_stride = s.n}});
    }
    const ops::I8Product product{.format = s.format,
                                 .groups = groups,
                                 .rows = all_rows,
                                 .k = s.k,
                                 .codes = a.data(),
                                 .scales = a_scales.data(),
                                 .scale_columns = scale_columns()};
    multiply(product, exec);
    return out;
  }

  Shape s;
  std::int64_t all_rows = 0, all_scale_rows = 0;
  std::vector<std::int64_t> first_row, scale_row;
  std::vector<std::vector<std::uint8_t>> weights, weight_scales, zeros;
  std::vector<std::uint8_t> a, a_scales;
  std::vector<float> row_scales;
};

TEST(MatrixUnit, EveryFormatHasTheBitsOfVectorsRawAndPackedAtEveryEdge) {
  using enum ops::I8Format;
  // About sixteens of rows, halves of them, more rows than wait together; panels that fill no four; K that fills no step, no chunk.
  const Shape shapes[] = {
      {i8, {1}, 16, 8},
      {i8, {17}, 50, 200},
      {i8, {15, 33}, 130, 520},
      {i8, {257}, 64, 1096},
      {i4, {5}, 24, 64},
      {i4, {16, 40}, 80, 648},
      {qserve, {9}, 64, 128},
      {qserve, {31, 2}, 192, 640},
      {qserve, {40}, 128, 704},
      {qserve_groups, {7}, 128, 128},
      {qserve_groups, {48}, 64, 1152},
      {nvfp4, {1}, 32, 32},
      {nvfp4, {8, 9}, 96, 544},
      {nvfp4, {16, 23, 130}, 160, 1088},
      {nvfp4, {300}, 32, 96},
      {mxfp4, {1}, 32, 32},
      {mxfp4, {3, 9}, 96, 544},
      {mxfp4, {16, 23, 130}, 160, 1120},
      {mxfp4, {64}, 192, 2080},
      // Scales with which the unit's sums are exact, and just not.
      {nvfp4, {5, 64}, 192, 2080, 0, 0},
      {nvfp4, {16, 32, 48, 80}, 128, 1184, 2, 3},
      {nvfp4, {1, 20, 64}, 160, 1056, 5, 0},
      {nvfp4, {33, 63}, 96, 1120, 0, 5},
      {nvfp4, {16, 64}, 128, 2080, 3, 3},
      {nvfp4, {40, 8}, 128, 2080, 6, 0},
      {nvfp4, {24}, 160, 2080, 0, 6},
      {nvfp4, {30}, 64, 1024, 6, 7},
  };
  for (const Shape& shape : shapes) {
    const Operands operands(shape);
    const Tensor expected = operands.product(nullptr, false, 1);
    for (const auto& [title, unit] : units())
      for (const bool packing : {false, true})
        for (const int threads : {1, 3})
          EXPECT_TRUE(helpers::same_bits(operands.product(&unit, packing, threads), expected))
              << text(shape) << (packing ? ", packed, " : ", raw, ") << title << ", threads " << threads;
  }
}

TEST(MatrixUnit, DigitsOfE4m3HaveTheBitsOfVectorsRawAndPackedAtEveryEdge) {
  constexpr auto format = ops::I8Format::e4m3_i4;
  // About sixteens of rows, which are shared out evenly; an odd panel; K that fills no chunk.
  for (const Shape& shape : {Shape{format, {1}, 16, 128}, Shape{format, {8, 5}, 50, 640}, Shape{format, {16, 17}, 33, 512},
                             Shape{format, {33, 2, 100}, 48, 1152}, Shape{format, {300}, 20, 256}}) {
    const Operands operands(shape);
    const Tensor expected = operands.product(nullptr, false, 1);
    for (const auto& [title, unit] : digits_units())
      for (const bool packing : {false, true})
        for (const int threads : {1, 3}) {
          const auto multiply = [&by = unit](const ops::I8Product& product, const Exec& exec) {
            ops::digits_multiply_by(&by, product, exec);
          };
          EXPECT_TRUE(helpers::same_bits(operands.product_by(multiply, packing, threads), expected))
              << text(shape) << (packing ? ", packed, " : ", raw, ") << title << ", threads " << threads;
        }
  }
}

TEST(MatrixUnit, LeavesNoConfigurationOfTilesBehindAndFindsTheCallersAgain) {
  const Operands operands({ops::I8Format::i8, {16}, 16, 64});
  const ops::I8MatrixUnit model = unit_of<ModelTiles>();
  operands.product(&model, false, 1);
  EXPECT_EQ(tile_state.shapes.palette, 0);
#if defined(__x86_64__)
  for (const Isa isa : available_isas())
    if (const ops::I8MatrixUnit* unit = ops::i8_matrix_unit(isa)) {
      const auto configuration = [] {
        TileShapes shapes;
        asm volatile("sttilecfg %0" : "=m"(shapes));
        return shapes;
      };
      operands.product(unit, false, 1);
      EXPECT_EQ(configuration().palette, 0);
      TileShapes callers;
      callers.set(0, 3, 20);
      {
        const generic::AmxTiles::Session session(callers);
        operands.product(unit, false, 1);
        const TileShapes after = configuration();
        EXPECT_EQ(std::memcmp(&after, &callers, sizeof after), 0);
      }
      EXPECT_EQ(configuration().palette, 0);
    }
#endif
}

// ---- the model itself

/// `tests` on the model and, where there are tiles, on the CPU: sums of random and of extreme bytes, of all shapes.
template <class Tiles, int which>
std::vector<std::uint32_t> sums_of(const TileShapes& shapes, const std::vector<std::uint8_t>& c, const std::vector<std::uint8_t>& a,
                                   const std::vector<std::uint8_t>& b) {
  std::vector<std::uint32_t> out(256);
  const typename Tiles::Session session(shapes);
  Tiles::template load<0>(c.data(), 64);
  Tiles::template load<1>(a.data(), 64);
  Tiles::template load<2>(b.data(), 64);
  if constexpr (which == 0) {
    Tiles::template dot_ss<0, 1, 2>();
  } else {
    Tiles::template dot_su<0, 1, 2>();
  }
  Tiles::template store<0>(out.data(), 64);
  return out;
}

TEST(MatrixUnit, InstructionsAddProductsOfBytesInWholeNumbersThatWrap) {
  for (const auto& [rows, columns, fours] : {std::array{16, 16, 16}, std::array{8, 16, 4}, std::array{1, 1, 1}, std::array{5, 7, 3}}) {
    TileShapes shapes;
    shapes.set(0, rows, 4 * columns);
    shapes.set(1, rows, 4 * fours);
    shapes.set(2, fours, 4 * columns);
    for (const int extreme : {0, 0x7F, 0x80, 0xFF}) {
      std::vector<std::uint8_t> a = codes(1024, 3), b = codes(1024, 4), c = codes(1024, 5);
      if (extreme != 0) std::memset(a.data(), extreme, 1024), std::memset(b.data(), extreme, 1024), std::memset(c.data(), 0x7F, 1024);
      std::vector<std::uint32_t> expected[2] = {std::vector<std::uint32_t>(256), std::vector<std::uint32_t>(256)};
      for (int m = 0; m < rows; ++m)
        for (int n = 0; n < columns; ++n)
          for (int which = 0; which < 2; ++which) {
            std::int64_t sum = 0;
            for (int k = 0; k < 4 * fours; ++k) {
              const std::uint8_t right = b[static_cast<std::size_t>(k / 4 * 64 + 4 * n + k % 4)];
              sum += static_cast<std::int8_t>(a[static_cast<std::size_t>(64 * m + k)]) *
                     (which == 0 ? int{static_cast<std::int8_t>(right)} : int{right});
            }
            std::uint32_t begin;
            std::memcpy(&begin, c.data() + 64 * m + 4 * n, sizeof begin);
            expected[which][static_cast<std::size_t>(16 * m + n)] = begin + static_cast<std::uint32_t>(sum);
          }
      EXPECT_EQ((sums_of<ModelTiles, 0>(shapes, c, a, b)), expected[0]);
      EXPECT_EQ((sums_of<ModelTiles, 1>(shapes, c, a, b)), expected[1]);
#if defined(__x86_64__)
      if (!amx_facts().in_use()) continue;
      EXPECT_EQ((sums_of<generic::AmxTiles, 0>(shapes, c, a, b)), expected[0]);
      EXPECT_EQ((sums_of<generic::AmxTiles, 1>(shapes, c, a, b)), expected[1]);
#endif
    }
  }
}

}  // namespace
}  // namespace dodona
