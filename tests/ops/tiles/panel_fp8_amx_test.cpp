// Products of fp8 by a matrix unit: with a model of the unit's instructions, on any machine, and with the CPU's own where it has them. Bits
// are those of vectors.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/tiles/panel/panel_amx.h"
#include "ops/tiles/panel/panel_amx_lanes.h"
#include "tests/ops/helpers.h"
#include "tests/ops/tiles/tile_model.h"

namespace dodona {
namespace {

using helpers::in_mode;

template <class Tiles>
ops::PanelUnit unit_of() {
  using Unit = generic::PanelMatrixUnit<Tiles>;
  return {Unit::prepare, Unit::multiply, 1, 1};
}
std::vector<std::pair<std::string, ops::PanelUnit>> units() {
  return units_of<ops::PanelUnit>(unit_of<ModelTiles>(), unit_of<CpuTiles>(), ops::panel_unit);
}

/// Of either sign, from the least subnormal to the largest; infinities and NaNs in every ninth line.
Tensor codes(DType type, const Dims& shape, std::uint32_t seed) {
  Tensor tensor(type, shape);
  const std::int64_t k = shape.at(-1);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    auto x = (static_cast<std::uint32_t>(i) + 1000003 * seed) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    const auto code = static_cast<std::uint8_t>(x >> 13);
    const bool special = i / k % 9 == 4 && i % 5 == 0;
    tensor.as<std::uint8_t>()[i] = special || (code & 0x7F) < 0x7C ? code : static_cast<std::uint8_t>(code & 0x83);
  }
  return tensor;
}
std::vector<float> numbers(std::int64_t count, float first) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(first + 0.37f * static_cast<float>(i * 7 % 11));
  return all;
}

struct Shape {
  std::int64_t batches, m, n, k, block;
  DType a = DType::f8_e4m3, b = DType::f8_e4m3;
};
std::string text(const Shape& s) {
  return std::to_string(s.batches) + " of " + std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + ", block " +
         std::to_string(s.block) + ", " + std::string(name(s.a)) + " by " + std::string(name(s.b));
}

/// One of some products.
struct Case {
  Case(const Shape& shape, std::uint32_t seed, bool packing)
      : s(shape),
        a(codes(s.a, {s.batches, s.m, s.k}, seed)),
        b(codes(s.b, {s.batches, s.n, s.k}, seed + 1)),
        packed(DType::u8, {ops::panel_packed_bytes(s.n, s.k)}) {
    blocks = s.block > 0 ? (s.k + s.block - 1) / s.block : 0;
    row_scales = numbers(s.m * blocks, 0.5f);
    column_scales = numbers((s.n + 39) / 40 * blocks, 0.7f);
    bias = numbers(s.n, -2.0f);
    columns = {b.as<std::byte>(), s.k, s.n * s.k, s.b};
    if (!packing) return;
    ops::panel_pack(columns, s.n, s.k, packed.as<std::byte>(), in_mode(Mode::fast, 1, Isa::generic));
    columns = ops::packed_operand(s.b, packed.as<std::byte>(), s.k);
  }
  ops::PanelProduct product(const Tensor& out) const {
    ops::PanelProduct p{.batches = s.batches, .m = s.m, .n = s.n, .k = s.k, .a = {a.as<std::byte>(), s.k, s.m * s.k, s.a}, .b = columns};
    p.block = s.block;
    p.a_scales = {row_scales.data(), 1, 1, s.m};
    p.b_scales = {column_scales.data(), 40, blocks, 1};
    p.epilogue.steps[0] = {.kind = ops::EpilogueStep::Kind::plus, .values = bias.data(), .column_stride = 1};
    p.epilogue.count = 1;
    p.epilogue.out = out.as<std::byte>();
    p.epilogue.out_stride = s.n;
    p.out_batch_stride = s.m * s.n;
    return p;
  }

  Shape s;
  Tensor a, b, packed;
  std::int64_t blocks = 0;
  std::vector<float> row_scales, column_scales, bias;
  ops::PanelOperand columns;
};

void expect_bits_of_vectors(const std::vector<Shape>& shapes, bool packing) {
  std::vector<Case> cases;
  for (const Shape& shape : shapes) cases.emplace_back(shape, 10 * static_cast<std::uint32_t>(cases.size()), packing);
  const auto outputs = [&](const ops::PanelUnit* unit, int threads) {
    std::vector<Tensor> all;
    std::vector<ops::PanelProduct> products;
    for (const Case& c : cases) {
      all.emplace_back(DType::f32, Dims{c.s.batches, c.s.m, c.s.n});
      products.push_back(c.product(all.back()));
    }
    const Exec exec = in_mode(Mode::fast, threads, Isa::generic);
    unit != nullptr ? ops::panel_multiply_by(*unit, products, exec) : ops::panel_multiply(products, exec);
    return all;
  };
  const std::vector<Tensor> expected = outputs(nullptr, 1);
  for (const auto& [title, unit] : units())
    for (const int threads : {1, 3}) {
      const std::vector<Tensor> got = outputs(&unit, threads);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        EXPECT_TRUE(helpers::same_bits(got[i], expected[i]))
            << text(shapes[i]) << (packing ? ", packed, " : ", raw, ") << title << ", threads " << threads;
      }
    }
}

TEST(PanelUnit, HasTheBitsOfVectorsRawAndPackedAtEveryEdge) {
  using enum DType;
  // About sixteens of rows and of columns, more of either than wait together; K that fills no group, no block, no part; several at once.
  const std::vector<Shape> lists[] = {
      {{1, 1, 1, 1, 0}},
      {{1, 2, 17, 31, 0}, {1, 16, 64, 33, 0}, {2, 5, 50, 257, 0}},
      {{1, 15, 70, 130, 128}, {1, 1, 128, 128, 128}, {1, 17, 16, 384, 128}, {1, 40, 130, 200, 128}},
      {{1, 33, 80, 288, 64}, {1, 9, 33, 100, 32}},
      {{2, 16, 36, 300, 0, f8_e5m2, f8_e4m3}, {1, 20, 49, 256, 128, f8_e4m3, f8_e5m2}, {1, 3, 20, 40, 0, f8_e5m2, f8_e5m2}},
      {{1, 65, 270, 290, 128}, {1, 80, 300, 270, 0}},
      {{1, 259, 40, 140, 128}},
  };
  for (const auto& shapes : lists)
    for (const bool packing : {false, true}) {
      std::vector<Shape> some;
      for (const Shape& s : shapes)
        if (!packing || s.batches == 1) some.push_back(s);
      expect_bits_of_vectors(some, packing);
    }
}

TEST(PanelUnit, EveryNumberOfRowsHasTheBitsOfVectors) {
  for (std::int64_t m = 1; m <= 40; ++m)
    for (const bool packing : {false, true}) expect_bits_of_vectors({{1, m, 30, 160, m % 2 * 128}}, packing);
}

TEST(PanelUnit, LeavesWhatItsSumsDoNotHoldToVectors) {
  const Tensor out(DType::f32, {1, 20, 20});
  const ops::PanelUnit unit = unit_of<ModelTiles>();
  const Case fp8({1, 20, 20, 64, 0}, 1, false);
  ops::PanelProduct product = fp8.product(out);
  EXPECT_TRUE(unit.takes(product));
  product.a.type = DType::bf16;  // which may be denormal
  EXPECT_FALSE(unit.takes(product));
  product = fp8.product(out);
  product.block = 48;
  EXPECT_FALSE(unit.takes(product));
  product.block = 256;
  EXPECT_FALSE(unit.takes(product));
}

TEST(PanelUnit, InstructionsSumPairsOfBf16AsTheModelDoes) {
#if defined(__x86_64__)
  if (!amx_facts().in_use()) GTEST_SKIP() << "no matrix tiles";
  const auto sums_of = []<class Tiles>(const Tensor& a, const Tensor& b) {
    const typename Tiles::Session session(generic::shapes_of_tile_sums);
    std::vector<std::uint32_t> sums(256);
    Tiles::template zero<0>();
    for (int step = 0; step < 4; ++step) {
      Tiles::template load<1>(a.as<std::uint8_t>() + 1024 * step, 64);
      Tiles::template load<2>(b.as<std::uint8_t>() + 1024 * step, 64);
      Tiles::template dot_bf16<0, 1, 2>();
    }
    Tiles::template store<0>(sums.data(), 64);
    return sums;
  };
  for (int i = 0; i < 20; ++i) {
    const Tensor a = helpers::normal(DType::bf16, {4, 512}, ("a" + std::to_string(i)).c_str());
    const Tensor b = helpers::normal(DType::bf16, {4, 512}, ("b" + std::to_string(i)).c_str());
    EXPECT_EQ(sums_of.operator()<ModelTiles>(a, b), sums_of.operator()<generic::AmxTiles>(a, b));
  }
#endif
}

}  // namespace
}  // namespace dodona
