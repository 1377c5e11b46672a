// Products as golden and hopper mode form them, against loops that share nothing with them.
#include "ops/sums/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "dodona/error.h"
#include "ops/sums/lines_together.h"
#include "ops/sums/products_gpu.h"
#include "quant/tensor_core/step.h"
#include "quant/ue8m0.h"
#include "tests/ops/helpers.h"

namespace dodona::ops {
namespace {

using namespace helpers;
namespace hw = quant::tensor_core;
using enum DType;

/// Random codes of a type, finite and of moderate or of any size.
Tensor codes(DType type, const Dims& shape, unsigned seed, bool wide = false) {
  Tensor tensor(type, shape);
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double sign = random() % 2 == 0 ? 1 : -1, mantissa = 1 + static_cast<double>(random() % 4096) / 4096;
    const double value = sign * std::ldexp(mantissa, wide ? static_cast<int>(random() % 14) - 6 : static_cast<int>(random() % 4) - 2);
    quant::set(tensor, i, is_float(type) ? value : static_cast<double>(static_cast<int>(random() % 256) - 128));
  }
  return tensor;
}

/// [rows, columns] of scales about 1, of either sign for f32.
Tensor scales(DType type, const Dims& shape, unsigned seed) {
  Tensor tensor(type, shape);
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    quant::set(tensor, i, std::ldexp(1 + static_cast<double>(random() % 1024) / 1024, static_cast<int>(random() % 7) - 3));
  return tensor;
}

Operand lines(const Tensor& matrix, const BlockScales& block_scales = {}, const BlockScales& zeros = {}) {
  return {.type = matrix.dtype(),
          .codes = matrix.data(),
          .count = matrix.size(0),
          .k = matrix.size(1),
          .stride = matrix.stride(0),
          .scales = block_scales,
          .zeros = zeros};
}

struct Golden {
  Tensor out;
  std::vector<double> exact, slack;

  /// Elements of an fp32 output that are not the rounding of a number within the slack.
  std::int64_t failing(const Tensor& actual) const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double value = quant::get(actual, static_cast<std::int64_t>(i));
      if (!(std::fabs(value - exact[i]) <= slack[i] + std::fabs(value) * 0x1p-24)) ++count;
    }
    return count;
  }
};

Golden golden(const std::vector<Product>& products, const Accumulator& accumulator, std::int64_t rows, std::int64_t columns) {
  Golden result{Tensor(f32, {rows, columns}), {}, {}};
  Reference reference;
  golden_products(products, accumulator, result.out, &reference, "out", in_mode(Mode::golden));
  result.exact = reference.find("out")->exact;
  result.slack = reference.find("out")->slack;
  return result;
}

Tensor hopper(const std::vector<Product>& products, const Accumulator& accumulator, std::int64_t rows, std::int64_t columns) {
  Tensor out(f32, {rows, columns});
  gpu_products(products, accumulator, out, in_mode(Mode::hopper));
  return out;
}

void expect_exact(const Golden& result, const std::function<double(std::int64_t, std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < result.out.size(0); ++i)
    for (std::int64_t j = 0; j < result.out.size(1); ++j) {
      const double value = expected(i, j);
      ASSERT_NEAR(result.exact[static_cast<std::size_t>(i * result.out.size(1) + j)], value, 1e-12 * (1 + std::fabs(value)))
          << i << ", " << j;
    }
}

double at(const Tensor& matrix, std::int64_t i, std::int64_t j) {
  return quant::get(matrix, i * matrix.size(1) + j);
}

// ---- scales of blocks

struct Blockwise {
  Tensor a, b, a_scales, b_scales;  ///< a_scales [K/128, M]: M-major

  Product product() const {
    return {lines(a, linear_scales(a_scales.transpose(0, 1), 1, 128)), lines(b, linear_scales(b_scales, 128, 128)), {}, 0};
  }
  double sum(std::int64_t i, std::int64_t j, const std::function<double(std::int64_t)>& scale) const {
    double total = 0;
    for (std::int64_t k = 0; k < a.size(1); ++k) total += at(a, i, k) * at(b, j, k) * scale(k);
    return total;
  }
  double scale(std::int64_t i, std::int64_t j, std::int64_t k) const { return at(a_scales, k / 128, i) * at(b_scales, j / 128, k / 128); }
};

Blockwise blockwise(std::int64_t m, std::int64_t n, std::int64_t k, bool wide = false) {
  return {codes(f8_e4m3, {m, k}, 1, wide), codes(f8_e4m3, {n, k}, 2, wide), scales(f32, {(k + 127) / 128, m}, 3),
          scales(f32, {(n + 127) / 128, (k + 127) / 128}, 4)};
}

TEST(Products, ScalesOf1By128And128By128AreAppliedWithinTheSum) {
  const Blockwise call = blockwise(5, 150, 300);
  const Golden result = golden({call.product()}, hopper_fp8_promoted, 5, 150);
  expect_exact(result, [&](std::int64_t i, std::int64_t j) { return call.sum(i, j, [&](std::int64_t k) { return call.scale(i, j, k); }); });
}

TEST(Products, AnInfiniteScaleLeavesOpenWhatASumMayBeZeroFor) {
  // Row 0 adds up to nothing but for what a tensor core may lose, row 1 to 128.
  Blockwise call{filled(f8_e4m3, {2, 128}, 1.0), filled(f8_e4m3, {128, 128}, 1.0),
                 filled(f32, {1, 2}, std::numeric_limits<double>::infinity()), filled(f32, {1, 1}, 1.0)};
  for (std::int64_t k = 64; k < 128; ++k) quant::set(call.a, k, -1.0);
  Tensor out(f32, {2, 128});
  Reference reference;
  const GoldenOutput golden_out(out, &reference, "out");
  golden_out.make_open();
  const Product product = call.product();
  golden_products({&product, 1}, hopper_fp8_promoted, golden_out, true, in_mode(Mode::golden));
  const ReferenceOutput& record = *reference.find("out");
  EXPECT_EQ(record.unspecified[0], 1);
  EXPECT_EQ(record.unspecified[128], 0);
  EXPECT_EQ(record.exact[128], std::numeric_limits<double>::infinity());
}

/// What the kernel does, from mma_step alone.
float promoted_by_steps(const Blockwise& call, std::int64_t i, std::int64_t j) {
  float total = 0;
  for (std::int64_t begin = 0; begin < call.a.size(1); begin += 128) {
    float part = 0;
    for (std::int64_t step = begin; step < std::min(begin + 128, call.a.size(1)); step += 32) {
      std::vector<hw::Factor> x, y;
      for (std::int64_t k = step; k < std::min(step + 32, call.a.size(1)); ++k) {
        const auto code = [&](const Tensor& t, std::int64_t row) {
          return hw::decode_factor(hw::fp8_wgmma, f8_e4m3, t.as<std::uint8_t>()[row * t.size(1) + k]);
        };
        x.push_back(code(call.a, i));
        y.push_back(code(call.b, j));
      }
      part = hw::mma_step(hw::fp8_wgmma, x, y, part);
    }
    total = std::fma(
        part, static_cast<float>(at(call.a_scales, begin / 128, i)) * static_cast<float>(at(call.b_scales, j / 128, begin / 128)), total);
  }
  return total;
}

TEST(Products, HopperModePromotesEvery128ToTheBit) {
  for (const bool wide : {false, true}) {
    const Blockwise call = blockwise(3, 140, 416, wide);
    const Tensor out = hopper({call.product()}, hopper_fp8_promoted, 3, 140);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 140; ++j) ASSERT_EQ(static_cast<float>(at(out, i, j)), promoted_by_steps(call, i, j)) << i << ", " << j;
  }
}

TEST(Products, TheBudgetOfPromotionHoldsForItAndForNoMistake) {
  for (const bool wide : {false, true}) {
    const Blockwise call = blockwise(6, 150, 1024, wide);
    const Golden result = golden({call.product()}, hopper_fp8_promoted, 6, 150);
    EXPECT_EQ(result.failing(hopper({call.product()}, hopper_fp8_promoted, 6, 150)), 0);
    // The scale of the sum's other half, of the next row, of the next block of columns; no scales of a.
    const std::function<double(std::int64_t, std::int64_t, std::int64_t)> wrong[] = {
        [&](std::int64_t i, std::int64_t j, std::int64_t k) { return call.scale(i, j, (k + 512) % 1024); },
        [&](std::int64_t i, std::int64_t j, std::int64_t k) { return call.scale((i + 1) % 6, j, k); },
        [&](std::int64_t i, std::int64_t j, std::int64_t k) { return call.scale(i, (j + 128) % 256, k); },
        [&](std::int64_t, std::int64_t j, std::int64_t k) { return at(call.b_scales, j / 128, k / 128); }};
    for (const auto& mistake : wrong) {
      const Tensor out(f32, {6, 150});
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t j = 0; j < 150; ++j)
          quant::set(out, i * 150 + j, call.sum(i, j, [&](std::int64_t k) { return mistake(i, j, k); }));
      EXPECT_GT(result.failing(out), 150) << (&mistake - wrong);
    }
  }
}

TEST(Products, ASumThatIsNeverPromotedExceedsTheBudgetOfPromotion) {
  // 448 * 448 first, then small products that 13 bits below it lose.
  const std::int64_t k = 4096;
  Tensor a = filled(f8_e4m3, {1, k}, 1.0), b = filled(f8_e4m3, {1, k}, 1.0);
  quant::set(a, 0, 256.0), quant::set(b, 0, 256.0);
  const Product product{lines(a), lines(b), {}, 0};
  const Golden promoted = golden({product}, hopper_fp8_promoted, 1, 1), never = golden({product}, hopper_fp8, 1, 1);
  const Tensor fast = hopper({product}, hopper_fp8, 1, 1), exact = hopper({product}, hopper_fp8_promoted, 1, 1);
  EXPECT_EQ(at(fast, 0, 0), 65536.0);
  EXPECT_EQ(at(exact, 0, 0), 65536.0 + 3968);
  EXPECT_EQ(promoted.failing(exact), 0);
  EXPECT_EQ(never.failing(fast), 0);
  EXPECT_EQ(promoted.failing(fast), 1);
}

TEST(Products, PowersOfTwoScaleBlocksOf32) {
  const Tensor a = codes(f8_e4m3, {3, 160}, 5), b = codes(f8_e5m2, {7, 160}, 6);
  Tensor a_scales(f8_e8m0, {3, 5}), b_scales(f8_e8m0, {7, 5});
  for (std::int64_t i = 0; i < 15; ++i) a_scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(120 + i);
  for (std::int64_t i = 0; i < 35; ++i) b_scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(134 - i % 16);
  const Golden result = golden({{lines(a, linear_scales(a_scales, 1, 32)), lines(b, linear_scales(b_scales, 1, 32)), {}, 0}},
                               {.order = Order::any, .promote_every = 32}, 3, 7);
  expect_exact(result, [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < 160; ++k) {
      const auto scale = [&](const Tensor& s, std::int64_t line) { return std::ldexp(1.0, s.as<std::uint8_t>()[line * 5 + k / 32] - 127); };
      sum += at(a, i, k) * at(b, j, k) * scale(a_scales, i) * scale(b_scales, j);
    }
    return sum;
  });
}

// ---- integers

TEST(Products, ZeroPointsAreSubtractedByGroupAndNothingIsLost) {
  const Tensor a = codes(i8, {4, 256}, 7), b = codes(u8, {9, 256}, 8), b_scales = scales(f16, {9, 2}, 9);
  Tensor zeros(u8, {9, 2});
  for (std::int64_t i = 0; i < 18; ++i) zeros.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(13 * i);
  const Product product{lines(a), lines(b, linear_scales(b_scales, 1, 128), linear_scales(zeros, 1, 128)), {}, 0};
  const Golden result = golden({product}, {.order = Order::exact, .promote_every = 128}, 4, 9);
  expect_exact(result, [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < 256; ++k) sum += at(a, i, k) * (at(b, j, k) - at(zeros, j, k / 128)) * at(b_scales, j, k / 128);
    return sum;
  });
  // Forgotten in one group, it is caught.
  const Tensor wrong = result.out.clone();
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 9; ++j) {
      double lost = 0;
      for (std::int64_t k = 128; k < 256; ++k) lost += at(a, i, k) * at(zeros, j, 1) * at(b_scales, j, 1);
      quant::set(wrong, i * 9 + j, at(result.out, i, j) + lost);
    }
  EXPECT_EQ(result.failing(result.out), 0);
  EXPECT_EQ(result.failing(wrong), 36);
}

TEST(Products, Int8SumsAreExactAndTheEpilogueGoesInItsOrder) {
  const Tensor a = codes(i8, {5, 1000}, 10), b = codes(i8, {70, 1000}, 11);
  const Tensor a_scale = scales(f32, {5}, 12), b_scale = scales(f32, {70}, 13), bias = codes(bf16, {70}, 14, true);
  Product product{lines(a), lines(b), {}, 0};
  const auto sum = [&](std::int64_t i, std::int64_t j) {
    std::int64_t total = 0;
    for (std::int64_t k = 0; k < 1000; ++k) total += a.as<std::int8_t>()[i * 1000 + k] * b.as<std::int8_t>()[j * 1000 + k];
    return total;
  };
  const Golden plain = golden({product}, int32_exact, 5, 70);
  for (const double slack : plain.slack) EXPECT_EQ(slack, 0.0);
  expect_exact(plain, [&](std::int64_t i, std::int64_t j) { return static_cast<double>(sum(i, j)); });

  product.epilogue = {.factors = {{column_term(b_scale), {}}, {row_term(a_scale), {}}}, .addend = {column_term(bias), {}}, .fused = true};
  const Tensor out = hopper({product}, int32_exact, 5, 70);
  const Golden result = golden({product}, int32_exact, 5, 70);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 70; ++j) {
      const float u = static_cast<float>(sum(i, j)) * b_scale.as<float>()[j];
      ASSERT_EQ(static_cast<float>(at(out, i, j)), std::fma(u, a_scale.as<float>()[i], static_cast<float>(quant::get(bias, j))));
    }
  expect_exact(result, [&](std::int64_t i, std::int64_t j) {
    return static_cast<double>(sum(i, j)) * b_scale.as<float>()[j] * a_scale.as<float>()[i] + quant::get(bias, j);
  });
  EXPECT_EQ(result.failing(out), 0);
  // The other order of association is as good; scales exchanged or a bias before the scales are not.
  product.epilogue.factors = {{column_term(b_scale), row_term(a_scale)}};
  product.epilogue.fused = false;
  EXPECT_EQ(result.failing(hopper({product}, int32_exact, 5, 70)), 0);
  product.epilogue = {.factors = {{column_term(b_scale), {}}, {row_term(a_scale), {}}}, .addend = {}};
  EXPECT_GT(result.failing(hopper({product}, int32_exact, 5, 70)), 200);
}

TEST(Products, AnOuterProductIsSubtracted) {
  const Tensor a = codes(i8, {3, 64}, 15), b = codes(i8, {4, 64}, 16), x = scales(f16, {4}, 17), y = scales(f16, {3}, 18);
  const Product product{lines(a), lines(b), {.factors = {}, .addend = {column_term(x), row_term(y)}, .subtract = true}, 0};
  expect_exact(golden({product}, int32_exact, 3, 4), [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < 64; ++k) sum += at(a, i, k) * at(b, j, k);
    return sum - static_cast<float>(quant::get(x, j) * quant::get(y, i));
  });
}

// ---- groups

TEST(Products, GroupsWriteTheirOwnRows) {
  const Tensor a = codes(bf16, {7, 32}, 19), b = codes(bf16, {2, 5, 32}, 20), alphas = scales(f32, {2}, 21);
  std::vector<Product> products;
  for (std::int64_t e = 0; e < 2; ++e) {
    const Tensor rows = a.slice(0, e == 0 ? 0 : 3, e == 0 ? 3 : 7);
    products.push_back({lines(rows),
                        lines(b.slice(0, e, e + 1).reshape({5, 32})),
                        {.factors = {{Term{f32, alphas.as<float>() + e}, {}}}, .addend = {}},
                        e == 0 ? 0 : 3 * 5});
  }
  const Golden result = golden(products, half_in_parts, 7, 5);
  expect_exact(result, [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    const std::int64_t e = i < 3 ? 0 : 1;
    for (std::int64_t k = 0; k < 32; ++k) sum += at(a, i, k) * quant::get(b, (e * 5 + j) * 32 + k);
    return sum * alphas.as<float>()[e];
  });
  EXPECT_EQ(result.failing(hopper(products, {.order = Order::contiguous, .unit = &hw::half_mma}, 7, 5)), 0);
}

// ---- every model of a unit

struct Model {
  const char* name;
  const hw::MmaSpec* unit;
};
constexpr Model models[] = {{"wgmma fp8", &hw::fp8_wgmma},  {"mma.sync fp8", &hw::fp8_mma_sync}, {"half", &hw::half_mma},
                            {"sm_80 half", &hw::sm80_half}, {"sm_89 fp8", &hw::sm89_fp8},        {"sm_100 fp8", &hw::sm100_fp8}};

TEST(Products, BudgetsFollowTheStepsOfEveryUnit) {
  for (const Model& model : models)
    for (const bool wide : {false, true})
      for (const std::int64_t k : {8, 45, 512, 2000}) {
        // 8-bit types in any mix, 16-bit types alone.
        const DType type = model.unit->types[0], other = bits(type) == 8 ? model.unit->types[1] : type;
        const Tensor a = codes(type, {4, k}, 22, wide), b = codes(other, {40, k}, 23, wide);
        const Product own{lines(a), lines(b), {}, 0};
        const Accumulator steps{Order::steps, model.unit}, parts{.order = Order::contiguous, .unit = model.unit, .spread = 16, .depth = 32};
        const Tensor out = hopper({own}, steps, 4, 40);
        const Golden followed = golden({own}, steps, 4, 40);
        EXPECT_EQ(followed.failing(out), 0) << model.name << " " << k;
        if (bits(type) == 16) EXPECT_EQ(golden({own}, parts, 4, 40).failing(out), 0) << model.name << " " << k;
        if (k < 512) continue;
        // A unit that keeps fewer bits does not pass.
        hw::MmaSpec coarse = *model.unit;
        coarse.addend_bits = 7;
        coarse.sum_bits = 7;
        EXPECT_GT(followed.failing(hopper({own}, {Order::steps, &coarse}, 4, 40)), 80) << model.name << " " << k;
      }
}

TEST(Products, WhatNoKernelHasIsRefusedInHopperMode) {
  const Tensor a = codes(u8, {2, 32}, 25), b = codes(u8, {2, 32}, 26);
  EXPECT_THROW(hopper({Product{lines(a), lines(b), {}, 0}}, int32_exact, 2, 2), dodona::Error);
}

TEST(Products, OperandsMayLieAcrossKInHopperMode) {
  const Tensor x = codes(bf16, {2, 32}, 27), y = codes(bf16, {2, 32}, 28), turned = x.transpose(0, 1).clone();
  Operand across = lines(x);
  across.codes = turned.data(), across.stride = 1, across.k_stride = 2;
  const Accumulator chain{.order = Order::contiguous, .unit = &hw::half_mma};
  const Tensor expected = hopper({Product{lines(x), lines(y), {}, 0}}, chain, 2, 2);
  for (const Tensor& turned_product :
       {hopper({Product{across, lines(y), {}, 0}}, chain, 2, 2), hopper({Product{lines(y), across, {}, 0}}, chain, 2, 2).transpose(0, 1)})
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(quant::get_bits(turned_product, i), quant::get_bits(expected, i));
}

TEST(Products, LinesThatAreTakenTogetherHaveTheSumsThatEachHasAlone) {
  const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-130, 0x1.fp127, -0x1.fp127};
  for (const auto& [a_type, b_type] : {std::pair{bf16, bf16}, {f16, f32}, {f32, f32}})
    for (const std::int64_t count : {2, 8, 21})
      for (const bool judged : {true, false}) {
        Tensor a = codes(a_type, {count, 75}, 31, true), b = codes(b_type, {4, 75}, 32, true);
        for (std::int64_t i = 0; i < 8; ++i) {
          quant::set(a, (i * 3 % count) * 75 + i, special[i]);
          quant::set(b, 75 + 9 * i, special[i]);
        }
        for (std::int64_t k = 0; k < 75; ++k) quant::set(b, 2 * 75 + k, 0.0);
        std::vector<Line> lines_of_a(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < lines_of_a.size(); ++i)
          decode_line(lines(a), static_cast<std::int64_t>(i), half_in_parts, lines_of_a[i]);
        for (const Isa isa : available_isas()) {
          const LinesTogether together(half_in_parts, lines_of_a, judged, isa);
          for (std::int64_t j = 0; j < 4; ++j) {
            Line column;
            decode_line(lines(b), j, half_in_parts, column);
            std::vector<Bounded> sums(lines_of_a.size());
            together.sums_with(column, sums);
            for (std::size_t i = 0; i < sums.size(); ++i) {
              const Bounded alone = sum_of(half_in_parts, lines_of_a[i], column, judged);
              EXPECT_EQ(std::isnan(alone.exact), std::isnan(sums[i].exact));
              if (!std::isnan(alone.exact)) EXPECT_EQ(alone.exact, sums[i].exact) << name(isa) << ' ' << i << ' ' << j;
              EXPECT_EQ(alone.slack, sums[i].slack) << name(isa) << ' ' << i << ' ' << j;
              EXPECT_EQ(alone.open, sums[i].open) << name(isa) << ' ' << i << ' ' << j;
            }
          }
        }
      }
}

/// What a unit loses, written as the contract has it: product by product, with an accumulator of `largest` throughout.
double lost_by_steps(const Line& a, const Line& b, const hw::MmaSpec& unit, double largest) {
  constexpr int none = -1000;
  const auto exponent_of = [](double x) { return x > 0 ? std::ilogb(x) : none; };
  double lost_positive = 0, lost_negative = 0, lost_sums = 0, sum = 0;
  const auto lost = [&] { return std::max(lost_positive, lost_negative) + lost_sums; };
  int last_exponent = -none;
  for (std::size_t begin = 0; begin < a.values.size(); begin += static_cast<std::size_t>(unit.products)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(unit.products), a.values.size());
    int largest_exponent = none;
    for (std::size_t k = begin; k < end; ++k)
      if (a.values[k] != 0 && b.values[k] != 0) largest_exponent = std::max(largest_exponent, a.exponents[k] + b.exponents[k]);
    if (largest_exponent == none) continue;
    const int least_exponent = std::max(largest_exponent, exponent_of(std::fabs(sum) - lost()));
    const double grid = std::ldexp(1.0, std::max(largest_exponent, exponent_of(largest + lost())) - unit.addend_bits);
    if (largest_exponent > last_exponent) lost_sums += std::ldexp(1.0, largest_exponent - unit.addend_bits);
    for (std::size_t k = begin; k < end; ++k) {
      const double product = a.values[k] * b.values[k];
      (product > 0 ? lost_positive : lost_negative) += std::fmod(std::fabs(product), grid);
      sum += product;
    }
    const int exponent = exponent_of(std::fabs(sum) + lost());
    if (exponent - unit.sum_bits > least_exponent - unit.addend_bits) lost_sums += std::ldexp(1.0, exponent - unit.sum_bits);
    last_exponent = largest_exponent;
  }
  return lost();
}

TEST(Products, StepsAreFollowedOfEightLinesTogetherAsOfOne) {
  for (const Model& model : models)
    for (const std::int64_t count : {1, 8, 21})
      for (const bool wide : {false, true}) {
        const DType type = model.unit->types[0], other = bits(type) == 8 ? model.unit->types[1] : type;
        Tensor a = codes(type, {count, 203}, 41, wide), b = codes(other, {3, 203}, 42, wide);
        for (std::int64_t k = 32; k < 96; ++k) quant::set(b, 203 + k, 0.0);
        quant::set(a, 5, INFINITY);
        const Accumulator steps{Order::steps, model.unit};
        std::vector<Line> lines_of_a(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < lines_of_a.size(); ++i) decode_line(lines(a), static_cast<std::int64_t>(i), steps, lines_of_a[i]);
        for (const Isa isa : available_isas())
          for (std::int64_t j = 0; j < 3; ++j) {
            Line column;
            decode_line(lines(b), j, steps, column);
            std::vector<Bounded> sums(lines_of_a.size());
            LinesTogether(steps, lines_of_a, true, isa).sums_with(column, sums);
            for (std::size_t i = 0; i < sums.size(); ++i) {
              const Line& line = lines_of_a[i];
              double sum = 0, positive = 0, negative = 0, largest = 0;
              for (std::size_t k = 0; k < line.values.size(); ++k) {
                const double product = line.values[k] * column.values[k];
                sum += product;
                (product > 0 ? positive : negative) += std::fabs(product);
                if ((k + 1) % static_cast<std::size_t>(model.unit->products) == 0 || k + 1 == line.values.size())
                  largest = std::max(largest, std::fabs(sum));
              }
              const std::string place = std::string(model.name) + ' ' + std::string(name(isa)) + ' ' + std::to_string(i);
              if (!std::isfinite(sum)) {
                EXPECT_FALSE(std::isfinite(sums[i].exact)) << place;
                continue;
              }
              const double slack = std::max(static_cast<double>(line.values.size()) * 0x1p-24 * std::max(positive, negative),
                                            lost_by_steps(line, column, *model.unit, largest));
              EXPECT_EQ(sums[i].exact, sum) << place;
              EXPECT_NEAR(sums[i].slack, slack, slack * 1e-12) << place;
            }
          }
      }
}

}  // namespace
}  // namespace dodona::ops
