// The tile cores, where no op asks for it yet: formats, block scales, epilogues. Each against a plain loop in the order that the header
// states, bit for bit, on every tier and with several numbers of threads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/base/work.h"
#include "ops/tiles/dot/dot.h"
#include "ops/tiles/panel/panel.h"
#include "ops/tiles/panel_i8/panel_i8.h"
#include "quant/element.h"
#include "quant/int4.h"
#include "quant/qserve.h"
#include "tests/ops/helpers.h"
#include "tests/ops/pair_sum.h"

namespace dodona {
namespace {

using helpers::in_mode;
using helpers::normal;
using helpers::pair_sum;

/// What varies from place to place without a pattern.
std::uint32_t noise(std::int64_t i) {
  auto x = static_cast<std::uint32_t>(i) * 2654435761u + 12345u;
  x ^= x >> 15;
  x *= 2246822519u;
  return x ^ (x >> 13);
}
std::vector<float> scales(std::size_t count, std::int64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 0.01f + static_cast<float>(noise(seed + static_cast<std::int64_t>(i)) % 4096) / 1000.0f;
  return values;
}
Tensor integers(DType type, const Dims& shape, std::int64_t seed) {
  Tensor tensor(type, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t range = type == DType::i4 ? 16 : 256;
    quant::set(tensor, i, static_cast<double>(static_cast<std::int64_t>(noise(seed + i)) % range - range / 2));
  }
  return tensor;
}
Tensor operand(DType type, const Dims& shape, const char* name, std::int64_t seed) {
  return type == DType::i8 || type == DType::i4 ? integers(type, shape, seed) : normal(type, shape, name);
}
float value(const Tensor& t, std::int64_t i) {
  return static_cast<float>(quant::get(t, i));
}

/// Runs `body` on every tier and with several numbers of threads; what it returns must be `expected`.
void on_every_tier(const Tensor& expected, const std::function<Tensor(const Exec&)>& body, const std::string& what) {
  for (const Isa isa : available_isas())
    for (const int threads : {1, 2, 5})
      ASSERT_TRUE(helpers::same_bits(body(in_mode(Mode::fast, threads, isa)), expected)) << what << ' ' << name(isa) << ' ' << threads;
}

struct Size {
  std::int64_t m, n, k;
};
std::string text(const Size& s) {
  return std::to_string(s.m) + ' ' + std::to_string(s.n) + ' ' + std::to_string(s.k);
}

Tensor pair_sums(const Tensor& a, const Tensor& b, DType out_type) {
  const std::int64_t batches = a.size(0), m = a.size(1), n = b.size(1), k = a.size(2);
  Tensor out(out_type, {batches, m, n});
  for (std::int64_t l = 0; l < batches; ++l)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const auto row = [&](std::int64_t e) { return value(a, (l * m + i) * k + e); };
        const auto column = [&](std::int64_t e) { return value(b, (l * n + j) * k + e); };
        quant::set(out, (l * m + i) * n + j, pair_sum(0, k, row, column));
      }
  return out;
}

ops::PanelProduct product_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::int64_t m = a.size(1), n = b.size(1), k = a.size(2);
  ops::PanelProduct product;
  product.batches = a.size(0), product.m = m, product.n = n, product.k = k;
  product.a = {a.as<std::byte>(), bytes_for(a.dtype(), k), bytes_for(a.dtype(), m * k), a.dtype()};
  product.b = {b.as<std::byte>(), bytes_for(b.dtype(), k), bytes_for(b.dtype(), n * k), b.dtype()};
  product.epilogue.out_type = out.dtype();
  product.epilogue.out = out.as<std::byte>();
  product.epilogue.out_stride = n;
  product.out_batch_stride = m * n;
  return product;
}

TEST(Panel, EveryPairOfFormatsIsThePairSumOverK) {
  constexpr DType formats[] = {DType::f8_e4m3, DType::f8_e5m2, DType::bf16, DType::f16, DType::f32, DType::i8};
  for (const DType a_type : formats)
    for (const DType b_type : formats)
      for (const Size& s : {Size{1, 5, 7}, Size{11, 49, 35}, Size{3, 33, 530}, Size{2, 20, 256}}) {
        const Tensor a = operand(a_type, {2, s.m, s.k}, "a", 1), b = operand(b_type, {2, s.n, s.k}, "b", 2);
        on_every_tier(
            pair_sums(a, b, DType::f32),
            [&](const Exec& exec) {
              Tensor out(DType::f32, {2, s.m, s.n});
              ops::panel_multiply(product_of(a, b, out), exec);
              return out;
            },
            std::string(name(a_type)) + ' ' + std::string(name(b_type)) + ' ' + text(s));
        if (HasFailure()) return;
      }
}

/// [n, k] as [k, n], rows side by side.
Tensor by_rows(const Tensor& columns) {
  const std::int64_t batches = columns.size(0), n = columns.size(1), k = columns.size(2);
  Tensor rows(columns.dtype(), {batches, k, n});
  for (std::int64_t l = 0; l < batches; ++l)
    for (std::int64_t e = 0; e < k; ++e)
      for (std::int64_t j = 0; j < n; ++j) quant::set(rows, (l * k + e) * n + j, value(columns, (l * n + j) * k + e));
  return rows;
}

TEST(Dot, AnyNumberOfRowsIsThePairSumOverKWhicheverWayColumnsLie) {
  // Rows of every way to them; the last sizes' columns are more than a second-level cache is given.
  for (const DType type : {DType::bf16, DType::f16})
    for (const Size& s :
         {Size{1, 33, 70}, Size{2, 17, 96}, Size{5, 48, 31}, Size{6, 20, 600}, Size{7, 40, 65}, Size{8, 16, 544}, Size{9, 50, 64},
          Size{17, 49, 130}, Size{33, 33, 1100}, Size{73, 18, 40}, Size{3, 600, 290}, Size{8, 300, 700}, Size{11, 600, 290}}) {
      const Tensor a = normal(DType::bf16, {2, s.m, s.k}, "a"), b = normal(type, {2, s.n, s.k}, "b"), rows = by_rows(b);
      const Tensor expected = pair_sums(a, b, DType::f32);
      for (const bool along_k : {true, false}) {
        on_every_tier(
            expected,
            [&](const Exec& exec) {
              Tensor out(DType::f32, {2, s.m, s.n});
              ops::dot_multiply(ops::DotProduct{a, along_k ? b.transpose(1, 2) : rows, out}, exec);
              return out;
            },
            std::string(name(type)) + ' ' + text(s) + (along_k ? " columns" : " rows"));
        if (HasFailure()) return;
      }
    }
}

/// Every code comes in some columns, NaNs in few enough of them that numbers are left; or no NaN does.
Tensor fp8_columns(DType type, const Dims& shape, bool nans) {
  Tensor b(type, shape);
  const std::int64_t k = shape[2];
  for (std::int64_t i = 0; i < b.elements(); ++i) {
    const std::uint32_t code = noise(i) % 256;
    const bool whole = (nans && i / k % 7 == 0) || (code & 0x7F) < 0x7C;
    b.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(whole ? code : code & 0x83);
  }
  return b;
}
/// The product with columns packed before.
Tensor with_packed_columns(const Tensor& a, const Tensor& b, DType out_type, const Exec& exec) {
  const std::int64_t n = b.size(1), k = b.size(2);
  Tensor out(out_type, {1, a.size(1), n}), packed(DType::u8, {ops::panel_packed_bytes(n, k)});
  auto product = product_of(a, b, out);
  ops::panel_pack(product.b, n, k, packed.as<std::byte>(), exec);
  product.b = ops::packed_operand(b.dtype(), packed.as<std::byte>(), k);
  ops::panel_multiply(product, exec);
  return out;
}

TEST(Panel, ManyAndFewRowsOfFp8HaveTheSameBitsWithEveryCodeNansTooRawAndPacked) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2})
    for (const Size& s : {Size{1, 64, 512}, Size{2, 70, 64}, Size{3, 16, 257}, Size{5, 130, 200}, Size{13, 100, 700}, Size{24, 17, 131},
                          Size{25, 64, 259}, Size{40, 129, 522}}) {
      const Tensor a = normal(DType::bf16, {1, s.m, s.k}, "a"), b = fp8_columns(type, {1, s.n, s.k}, s.n % 64 != 0);
      const Tensor expected = pair_sums(a, b, DType::bf16);
      const std::string what = std::string(name(type)) + ' ' + text(s);
      on_every_tier(
          expected,
          [&](const Exec& exec) {
            Tensor out(DType::bf16, {1, s.m, s.n});
            ops::panel_multiply(product_of(a, b, out), exec);
            return out;
          },
          what);
      on_every_tier(
          expected, [&](const Exec& exec) { return with_packed_columns(a, b, DType::bf16, exec); }, what + " packed");
      if (HasFailure()) return;
    }
}

/// e4m3 codes of which next to none is subnormal, as in weights that were scaled to their largest; NaNs as above, and the largest numbers.
Tensor scaled_columns(const Dims& shape, bool nans) {
  Tensor b = fp8_columns(DType::f8_e4m3, shape, nans);
  for (std::int64_t i = 0; i < b.elements(); ++i) {
    auto& code = b.as<std::uint8_t>()[i];
    if ((code & 0x78) == 0 && i % 4099 != 0) code = static_cast<std::uint8_t>(code ^ (i % 3 == 0 ? 0x7E : 0x30));
  }
  return b;
}

TEST(Panel, CodesThatAreNearlyNeverSubnormalTakeAnotherWayToTheSameBits) {
  for (const Size& s : {Size{1, 64, 512}, Size{2, 70, 64}, Size{3, 100, 330}, Size{24, 17, 131}, Size{9, 129, 522}}) {
    const Tensor a = scaled_columns({1, s.m, s.k}, s.m == 9), b = scaled_columns({1, s.n, s.k}, s.n % 64 != 0);
    const Tensor expected = pair_sums(a, b, DType::bf16);
    on_every_tier(
        expected,
        [&](const Exec& exec) {
          Tensor out(DType::bf16, {1, s.m, s.n});
          ops::panel_multiply(product_of(a, b, out), exec);
          return out;
        },
        text(s));
    on_every_tier(
        expected, [&](const Exec& exec) { return with_packed_columns(a, b, DType::bf16, exec); }, text(s) + " packed");
    if (HasFailure()) return;
  }
}

void expect_sums_of_blocks(const Size& s, const Tensor& a, const Tensor& b) {
  constexpr std::int64_t block = 128;
  const std::int64_t blocks = (s.k + block - 1) / block;
  // 1 x 128, as kernels store it with rows next to one another, and 128 x 128.
  const auto a_scales = scales(static_cast<std::size_t>(s.m * blocks), 3),
             b_scales = scales(static_cast<std::size_t>((s.n + 127) / 128 * blocks), 4);
  Tensor expected(DType::bf16, {1, s.m, s.n});
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      float acc = 0;
      for (std::int64_t g = 0; g < blocks; ++g) {
        const float sum = pair_sum(
            g * block, std::min(s.k, (g + 1) * block), [&](std::int64_t e) { return value(a, i * s.k + e); },
            [&](std::int64_t e) { return value(b, j * s.k + e); });
        const float scale = a_scales[static_cast<std::size_t>(g * s.m + i)] * b_scales[static_cast<std::size_t>(j / 128 * blocks + g)];
        acc = std::fmaf(sum, scale, acc);
      }
      quant::set(expected, i * s.n + j, acc);
    }
  for (const bool packing : {false, true})
    on_every_tier(
        expected,
        [&](const Exec& exec) {
          Tensor out(DType::bf16, {1, s.m, s.n}), packed(DType::u8, {ops::panel_packed_bytes(s.n, s.k)});
          auto product = product_of(a, b, out);
          if (packing) {
            ops::panel_pack(product.b, s.n, s.k, packed.as<std::byte>(), exec);
            product.b = ops::packed_operand(b.dtype(), packed.as<std::byte>(), s.k);
          }
          product.block = block;
          product.a_scales = {.data = a_scales.data(), .together = 1, .stride = 1, .block_stride = s.m};
          product.b_scales = {.data = b_scales.data(), .together = 128, .stride = blocks, .block_stride = 1};
          ops::panel_multiply(product, exec);
          return out;
        },
        text(s) + (packing ? " packed" : " raw"));
}

TEST(Panel, BlocksOfKAreSumsOfTheirOwnThatScalesAreMultipliedWith) {
  for (const Size& s : {Size{1, 128, 128}, Size{23, 200, 1100}, Size{7, 272, 384}, Size{131, 144, 700}, Size{5, 40, 1100},
                        Size{13, 40, 640}, Size{2, 50, 640}}) {
    expect_sums_of_blocks(s, normal(DType::f8_e4m3, {1, s.m, s.k}, "a"), normal(DType::f8_e4m3, {1, s.n, s.k}, "b"));
    expect_sums_of_blocks(s, scaled_columns({1, s.m, s.k}, false), scaled_columns({1, s.n, s.k}, s.n % 64 != 0));
    if (HasFailure()) return;
  }
}

/// sum * row scale * column scale + bias, each step rounded to fp32.
Tensor finished(const Tensor& sums, const std::vector<float>& rows, const std::vector<float>& columns, const std::vector<float>& bias,
                DType type) {
  const std::int64_t m = sums.size(-2), n = sums.size(-1);
  Tensor out(type, sums.shape());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      volatile float v = value(sums, i * n + j);
      v = v * rows[static_cast<std::size_t>(i)];
      v = v * columns[static_cast<std::size_t>(j)];
      v = v + bias[static_cast<std::size_t>(j)];
      quant::set(out, i * n + j, v);
    }
  return out;
}
ops::TileEpilogue epilogue_of(const std::vector<float>& rows, const std::vector<float>& columns, const std::vector<float>& bias,
                              const Tensor& out) {
  using Kind = ops::EpilogueStep::Kind;
  ops::TileEpilogue epilogue;
  epilogue.steps[0] = {.values = rows.data(), .row_stride = 1};
  epilogue.steps[1] = {.values = columns.data(), .column_stride = 1};
  epilogue.steps[2] = {.kind = Kind::plus, .values = bias.data(), .column_stride = 1};
  epilogue.count = 3;
  epilogue.out_type = out.dtype();
  epilogue.out = out.as<std::byte>();
  epilogue.out_stride = out.size(-1);
  return epilogue;
}

TEST(Panel, EpilogueStepsAreTakenInOrder) {
  for (const Size& s : {Size{9, 50, 96}, Size{130, 33, 64}})
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const Tensor a = normal(DType::f8_e4m3, {1, s.m, s.k}, "a"), b = normal(DType::f8_e4m3, {1, s.n, s.k}, "b");
      const auto rows = scales(static_cast<std::size_t>(s.m), 5), columns = scales(static_cast<std::size_t>(s.n), 6),
                 bias = scales(static_cast<std::size_t>(s.n), 7);
      on_every_tier(
          finished(pair_sums(a, b, DType::f32), rows, columns, bias, type),
          [&](const Exec& exec) {
            Tensor out(type, {1, s.m, s.n});
            auto product = product_of(a, b, out);
            product.epilogue = epilogue_of(rows, columns, bias, out);
            ops::panel_multiply(product, exec);
            return out;
          },
          text(s) + ' ' + std::string(name(type)));
      if (HasFailure()) return;
    }
}

// ---- integers

/// Sums of products as whole numbers.
Tensor whole_sums(const Tensor& a, const Tensor& b) {
  const std::int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  Tensor sums(DType::i32, {m, n});
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t e = 0; e < k; ++e)
        sum += static_cast<std::int32_t>(quant::get(a, i * k + e)) * static_cast<std::int32_t>(quant::get(b, j * k + e));
      sums.as<std::int32_t>()[i * n + j] = sum;
    }
  return sums;
}

TEST(PanelI8, IntegersAreSummedExactlyAndScaledAtTheEnd) {
  for (const auto& [format, type] : {std::pair{ops::I8Format::i8, DType::i8}, {ops::I8Format::i4, DType::i4}})
    for (const Size& s : {Size{1, 16, 8}, Size{2, 33, 1096}, Size{3, 50, 328}, Size{4, 48, 1024}, Size{7, 32, 200}, Size{16, 40, 520},
                          Size{29, 33, 600}, Size{64, 17, 72}, Size{65, 20, 1032}, Size{131, 80, 136}}) {
      const Tensor a = integers(DType::i8, {s.m, s.k}, 11), b = integers(type, {s.n, s.k}, 12);
      // The extremes add up farthest.
      for (std::int64_t e = 0; e < s.k; ++e) quant::set(a, e, -128), quant::set(b, e, type == DType::i4 ? -8 : -128);
      const auto rows = scales(static_cast<std::size_t>(s.m), 13), columns = scales(static_cast<std::size_t>(s.n), 14),
                 bias = scales(static_cast<std::size_t>(s.n), 15);
      const ops::I8Weights raw{.codes = b.as<std::uint8_t>(), .n = s.n, .k = s.k};
      const Tensor expected = finished(whole_sums(a, b), rows, columns, bias, DType::f32);
      for (const bool packing : {false, true})
        on_every_tier(
            expected,
            [&](const Exec& exec) {
              Tensor out(DType::f32, {s.m, s.n}), packed(DType::u8, {ops::i8_packed_bytes(format, s.n, s.k)});
              if (packing) ops::i8_pack(format, raw, packed.as<std::byte>(), exec);
              const ops::I8Group group{0, s.m, 0, packing ? ops::I8Weights{.packed = packed.as<std::uint8_t>(), .n = s.n, .k = s.k} : raw,
                                       epilogue_of(rows, columns, bias, out)};
              ops::i8_multiply({.format = format, .groups = {&group, 1}, .rows = s.m, .k = s.k, .codes = a.as<std::uint8_t>()}, exec);
              return out;
            },
            text(s) + (packing ? " packed" : " raw"));
      if (HasFailure()) return;
    }
}

TEST(PanelI8, QservesWeightsAreReadFromTheirTilesWithFewRowsAndMany) {
  for (const Size& s : {Size{1, 64, 128}, Size{2, 128, 64}, Size{3, 64, 640}, Size{4, 192, 704}, Size{5, 64, 192}, Size{15, 64, 640},
                        Size{40, 64, 576}, Size{64, 64, 192}, Size{67, 64, 128}}) {
    const std::int64_t groups = (s.k + 127) / 128;
    const Tensor a = integers(DType::i8, {s.m, s.k}, 21);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(s.n * s.k)), packed_codes(codes.size() / 2);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(noise(static_cast<std::int64_t>(i)) % 16);
    quant::pack_qserve(codes, s.n, s.k, packed_codes);
    std::vector<std::int8_t> of_groups[2], stored[2];  // scales, zeros
    for (int which = 0; which < 2; ++which) {
      for (std::int64_t i = 0; i < groups * s.n; ++i)
        of_groups[which].push_back(static_cast<std::int8_t>(which == 0 ? noise(i) % 17 + 1 : noise(i + 77) % 256));
      stored[which].resize(of_groups[which].size());
      quant::permute_qserve_scales(of_groups[which], groups, s.n, stored[which]);
    }
    for (const bool grouped : {false, true}) {
      Tensor b(DType::i8, {s.n, s.k});
      for (std::int64_t j = 0; j < s.n; ++j)
        for (std::int64_t e = 0; e < s.k; ++e) {
          const std::uint8_t code = codes[static_cast<std::size_t>(j * s.k + e)];
          const auto at = static_cast<std::size_t>(e / 128 * s.n + j);
          b.as<std::int8_t>()[j * s.k + e] =
              grouped ? quant::qserve_group_weight(code, of_groups[0][at], of_groups[1][at]) : static_cast<std::int8_t>(code);
        }
      const auto rows = scales(static_cast<std::size_t>(s.m), 23), columns = scales(static_cast<std::size_t>(s.n), 24),
                 bias = scales(static_cast<std::size_t>(s.n), 25);
      const Tensor expected = finished(whole_sums(a, b), rows, columns, bias, DType::f32);
      const ops::I8Format format = grouped ? ops::I8Format::qserve_groups : ops::I8Format::qserve;
      const ops::I8Weights raw{.codes = packed_codes.data(),
                               .scales = reinterpret_cast<const std::uint8_t*>(stored[0].data()),
                               .n = s.n,
                               .k = s.k,
                               .zeros = reinterpret_cast<const std::uint8_t*>(stored[1].data())};
      for (const bool packing : {false, true})
        on_every_tier(
            expected,
            [&](const Exec& exec) {
              Tensor out(DType::f32, {s.m, s.n}), packed(DType::u8, {ops::i8_packed_bytes(format, s.n, s.k)});
              if (packing) ops::i8_pack(format, raw, packed.as<std::byte>(), exec);
              const ops::I8Group group{0, s.m, 0, packing ? ops::I8Weights{.packed = packed.as<std::uint8_t>(), .n = s.n, .k = s.k} : raw,
                                       epilogue_of(rows, columns, bias, out)};
              ops::i8_multiply({.format = format, .groups = {&group, 1}, .rows = s.m, .k = s.k, .codes = a.as<std::uint8_t>()}, exec);
              return out;
            },
            text(s) + (grouped ? " grouped" : "") + (packing ? " packed" : " raw"));
      if (HasFailure()) return;
    }
  }
}

// ---- e4m3 by int4

/// Rows of e4m3 with whose blocks sums of integers have to do more and more: a few binades; codes of all binades; the largest number beside
/// the smallest, whose sums fp32 must round; numbers that two digits do not hold; zeros; and a NaN.
Tensor e4m3_rows(std::int64_t m, std::int64_t k, std::int64_t seed) {
  Tensor a(DType::f8_e4m3, {m, k});
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const std::uint32_t code = noise(seed + i), kind = noise(seed + i / 128 * 7 + i / k) % 16;
    const std::uint32_t few = 0x38 + code % 24, all = code % 0x7F, ends = code % 5 == 0 ? 0x01 : 0x7E,
                        wide = code % 8 == 0 ? 0x68 : code % 4;
    const std::uint32_t magnitude = kind < 6        ? few
                                    : kind < 9      ? all
                                    : kind < 11     ? ends
                                    : kind < 14     ? wide
                                    : kind < 15     ? 0
                                    : i % 128 == 77 ? 0x7F
                                                    : few;
    a.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(magnitude | (code >> 8 & 0x80));
  }
  return a;
}

TEST(PanelI8, E4m3ByInt4GivesTheChainsOfItsBlocksWhereverSumsOfIntegersStandForThem) {
  for (const Size& s : {Size{1, 16, 128}, Size{2, 33, 1152}, Size{3, 50, 512}, Size{4, 17, 1024}, Size{5, 40, 640}, Size{7, 1, 2048},
                        Size{12, 70, 896}, Size{40, 31, 384}, Size{259, 20, 512}}) {
    const std::int64_t groups = s.k / 128;
    const Tensor a = e4m3_rows(s.m, s.k, s.n), b = integers(DType::i4, {s.n, s.k}, 31);
    std::vector<std::uint16_t> of_groups(static_cast<std::size_t>(s.n * groups)), stored(of_groups.size());
    for (std::size_t i = 0; i < of_groups.size(); ++i) of_groups[i] = static_cast<std::uint16_t>(0x3C00 + noise(static_cast<int>(i)) % 512);
    quant::interleave_w4a8_scales(of_groups, s.n, groups, stored);
    Tensor sums(DType::f32, {s.m, s.n});
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        float acc = 0;
        for (std::int64_t g = 0; g < groups; ++g) {
          float chain = 0;
          for (std::int64_t e = g * 128; e < (g + 1) * 128; ++e) chain = std::fmaf(value(a, i * s.k + e), value(b, j * s.k + e), chain);
          const std::uint32_t scale = static_cast<std::uint32_t>(of_groups[static_cast<std::size_t>(j * groups + g)]) << 16;
          acc = std::fmaf(chain, std::bit_cast<float>(scale), acc);
        }
        quant::set(sums, i * s.n + j, acc);
      }
    const auto rows = scales(static_cast<std::size_t>(s.m), 33), columns = scales(static_cast<std::size_t>(s.n), 34),
               bias = scales(static_cast<std::size_t>(s.n), 35);
    const Tensor expected = finished(sums, rows, columns, bias, DType::f32);
    for (std::int64_t i = 0; i < expected.elements(); ++i)
      if (std::isnan(value(expected, i))) expected.as<std::uint32_t>()[i] = 0x7FFFFFFF;
    constexpr auto format = ops::I8Format::e4m3_i4;
    const ops::I8Weights raw{
        .codes = b.as<std::uint8_t>(), .scales = reinterpret_cast<const std::uint8_t*>(stored.data()), .n = s.n, .k = s.k};
    for (const bool packing : {false, true})
      on_every_tier(
          expected,
          [&](const Exec& exec) {
            Tensor out(DType::f32, {s.m, s.n}), packed(DType::u8, {ops::i8_packed_bytes(format, s.n, s.k)});
            if (packing) ops::i8_pack(format, raw, packed.as<std::byte>(), exec);
            const ops::I8Group group{0, s.m, 0, packing ? ops::I8Weights{.packed = packed.as<std::uint8_t>(), .n = s.n, .k = s.k} : raw,
                                     epilogue_of(rows, columns, bias, out)};
            ops::i8_multiply({.format = format, .groups = {&group, 1}, .rows = s.m, .k = s.k, .codes = a.as<std::uint8_t>()}, exec);
            return out;
          },
          text(s) + (packing ? " packed" : " raw"));
    if (HasFailure()) return;
  }
}

// ---- work

TEST(Work, EveryPieceIsDoneOnceHoweverManyWorkers) {
  const ops::WorkRun runs[] = {{5, 3}, {0, 7}, {1, 100}, {17, 1}};
  for (const int threads : {1, 2, 3, 8, 40}) {
    Exec exec = in_mode(Mode::fast, threads);
    const ops::Work work(exec, 23, 64, 100);
    std::vector<int> done[4];
    for (std::size_t i = 0; i < 4; ++i) done[i].assign(static_cast<std::size_t>(runs[i].pieces), 0);
    work.split(runs, 1e6, [&](std::size_t run, std::int64_t first, std::int64_t last, std::byte* scratch) {
      std::memset(scratch, 1, 64);
      for (std::int64_t i = first; i < last; ++i) ++done[run][static_cast<std::size_t>(i)];
    });
    for (const auto& run : done)
      for (const int count : run) EXPECT_EQ(count, 1) << threads;
    std::vector<int> taken(23);
    work.take(1e6, [&](std::int64_t piece, std::byte* scratch) {
      std::memset(scratch, 2, 64);
      ++taken[static_cast<std::size_t>(piece)];
    });
    for (const int count : taken) EXPECT_EQ(count, 1) << threads;
    std::memset(work.shared(), 3, 100);
  }
}

}  // namespace
}  // namespace dodona
