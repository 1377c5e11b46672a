#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ops/tiles/mma/mma.h"
#include "oracle/alternatives/families.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/tensor_core/step.h"

namespace dodona::oracle::alternatives {
namespace {

namespace hw = quant::tensor_core;

/// Chains of a strided sum: short enough that no product passes through more additions than any of the contracts allows for such orders.
constexpr std::size_t chains = 32;

float sum_of(const std::vector<float>& terms, Way way) {
  return way == Way::strided ? strided_sum(terms, chains) : reversed_sum(terms);
}

/// a [batches, m, k] times b [batches, k, n].
struct Matrices {
  Tensor a, b, out;
  std::int64_t batches, m, n, k;
};
Matrices matrices(const Tensor& a, const Tensor& b, const Tensor& out) {
  const bool batched = a.rank() == 3;
  return {a, b, out, batched ? a.size(0) : 1, a.size(-2), b.size(-1), a.size(-1)};
}

/// out = rounded(sum * scale).
void multiply_plainly(const Matrices& p, float scale, Way way) {
  const std::vector<float> a = floats(p.a), columns = floats(p.b.transpose(-1, -2));
  std::vector<float> terms(static_cast<std::size_t>(p.k));
  for (std::int64_t i = 0; i < p.batches * p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      const float* const row = a.data() + i * p.k;
      const float* const column = columns.data() + (i / p.m * p.n + j) * p.k;
      for (std::size_t k = 0; k < terms.size(); ++k) terms[k] = row[k] * column[k];
      store(p.out, i * p.n + j, sum_of(terms, way) * scale);
    }
}

/// Sums of `chunk` products each, 0 for all of them, added in fp32.
void multiply_on_tensor_cores(const Matrices& p, const hw::MmaSpec& spec, float scale, std::int64_t chunk = 0) {
  const Tensor a = p.a.clone(), columns = p.b.transpose(-1, -2).clone();
  const std::int64_t bytes = bits(a.dtype()) / 8;
  std::vector<float> sums(static_cast<std::size_t>(p.m * p.n)), part(sums.size());
  if (chunk == 0) chunk = p.k;
  for (std::int64_t batch = 0; batch < p.batches; ++batch) {
    const ops::MmaRows rows(spec, a.dtype(), a.as<std::byte>() + batch * p.m * p.k * bytes, p.m, p.k);
    const ops::MmaColumns right(spec, columns.dtype(), columns.as<std::byte>() + batch * p.n * p.k * bytes, p.n, p.k);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t k = 0; k < p.k; k += chunk) {
      std::fill(part.begin(), part.end(), 0.0f);
      ops::accumulate(rows, right, k, std::min(k + chunk, p.k), part.data(), p.n);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
    }
    for (std::size_t i = 0; i < sums.size(); ++i) store(p.out, batch * p.m * p.n + static_cast<std::int64_t>(i), sums[i] * scale);
  }
}

/// 16-bit units for two operands of one 16-bit type; none for fp32, which the contract computes in fp32.
bool multiply_halves(const Matrices& p, Way way) {
  if (way != Way::tensor_core) {
    multiply_plainly(p, 1.0f, way);
    return true;
  }
  if (p.a.dtype() == DType::f32 || p.a.dtype() != p.b.dtype() || p.k == 0) return false;
  multiply_on_tensor_cores(p, hw::half_mma, 1.0f);
  return true;
}

// ---- NVFP4

/// A row of codes and its block scales.
struct Fp4Row {
  std::vector<float> codes, scales;
  std::vector<std::uint8_t> scale_codes;
};

/// `scale_row` counts in a matrix of scales in tiles of 128 x 4.
Fp4Row fp4_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t scale_row, std::int64_t k) {
  Fp4Row row;
  for (std::int64_t i = 0; i < k; ++i) row.codes.push_back(quant::e2m1_to_f32(codes[i / 2] >> (i % 2 * 4) & 0xFu));
  for (std::int64_t b = 0; b < k / 16; ++b) {
    const std::int64_t tile = scale_row / 128 * ((k / 16 + 3) / 4) + b / 4;
    row.scale_codes.push_back(scales[tile * 512 + scale_row % 32 * 16 + scale_row % 128 / 32 * 4 + b % 4]);
    row.scales.push_back(quant::e4m3_to_f32(row.scale_codes.back()));
  }
  return row;
}

/// Blocks of 16, each an exact sum times the product of two scales.
float fp4_sum(const Fp4Row& a, const Fp4Row& b, Way way) {
  std::vector<float> blocks;
  for (std::size_t j = 0; j < a.scales.size(); ++j) {
    float dot = 0;
    for (std::size_t i = j * 16; i < (j + 1) * 16; ++i) dot += a.codes[i] * b.codes[i];
    blocks.push_back(dot * (a.scales[j] * b.scales[j]));
  }
  return sum_of(blocks, way);
}

/// A unit that takes sixteen scaled products a step and aligns each.
float fp4_tensor_core_sum(const Fp4Row& a, const Fp4Row& b) {
  const auto factor = [](float value) { return hw::Factor{value, value != 0 ? std::ilogb(value) : 0}; };
  float sum = 0;
  for (std::size_t j = 0; j < a.scales.size(); ++j) {
    std::vector<hw::Factor> left, right;
    for (std::size_t i = j * 16; i < (j + 1) * 16; ++i) {
      left.push_back(factor(a.codes[i] * a.scales[j]));
      right.push_back(factor(b.codes[i] * b.scales[j]));
    }
    sum = hw::mma_step(hw::half_mma, left, right, sum);
  }
  return sum;
}

/// The unit of a B200, step by step.
float tcgen05_sum(const Fp4Row& a, const Fp4Row& b) {
  float sum = 0;
  for (std::size_t begin = 0; begin < a.codes.size(); begin += 64) {
    std::int8_t numbers[2][64] = {};
    std::uint8_t scales[2][4] = {};
    for (std::size_t i = begin; i < std::min(begin + 64, a.codes.size()); ++i) {
      numbers[0][i - begin] = static_cast<std::int8_t>(2 * a.codes[i]);
      numbers[1][i - begin] = static_cast<std::int8_t>(2 * b.codes[i]);
      scales[0][(i - begin) / 16] = a.scale_codes[i / 16];
      scales[1][(i - begin) / 16] = b.scale_codes[i / 16];
    }
    sum = hw::fp4_step(hw::sm100_nvf4, {numbers[0], scales[0]}, {numbers[1], scales[1]}, sum);
  }
  return sum;
}

using Fp4Sum = float (*)(const Fp4Row&, const Fp4Row&);
Fp4Sum fp4_sum_of(Way way) {
  if (way == Way::tensor_core) return fp4_tensor_core_sum;
  if (way == Way::strided) return [](const Fp4Row& a, const Fp4Row& b) { return fp4_sum(a, b, Way::strided); };
  return [](const Fp4Row& a, const Fp4Row& b) { return fp4_sum(a, b, Way::reversed); };
}
/// nullptr where the recipe's kernel does not add like that: other orders than its own are other kernels.
Fp4Sum fp4_sum_of(const Call& call) {
  if (!call.is("accumulator", "tcgen05")) return fp4_sum_of(call.way);
  return call.way == Way::tensor_core ? tcgen05_sum : nullptr;
}

/// Rows of `a` with columns of one weight; `first` counts rows of the output.
void multiply_fp4(const std::vector<Fp4Row>& a, const std::vector<Fp4Row>& b, float alpha, const Tensor& out, std::int64_t first,
                  Fp4Sum sum) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) {
      store(out, (first + static_cast<std::int64_t>(i)) * out.size(1) + static_cast<std::int64_t>(j), alpha * sum(a[i], b[j]));
    }
}

std::vector<Fp4Row> fp4_rows(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t scale_row, std::int64_t rows,
                             std::int64_t k) {
  std::vector<Fp4Row> all;
  for (std::int64_t r = 0; r < rows; ++r) all.push_back(fp4_row(codes + r * k / 2, scales, scale_row + r, k));
  return all;
}

}  // namespace

bool bmm(const Call& call) {
  return multiply_halves(matrices(call.tensor("mat1"), call.tensor("mat2"), call.tensor("out")), call.way);
}
bool linear(const Call& call) {
  return multiply_halves(matrices(call.tensor("input"), call.tensor("weight").transpose(0, 1), call.tensor("output")), call.way);
}
bool matmul_persistent(const Call& call) {
  const Tensor &out = call.tensor("c"), sums(DType::f32, out.shape());
  Tensor a = call.tensor("a").clone(), b = call.tensor("b").clone();
  if (a.dtype() == DType::f32 && call.is("input_precision", "tf32"))
    for (const Tensor& operand : {a, b})
      for (std::int64_t i = 0; i < operand.elements(); ++i) operand.as<std::uint32_t>()[i] &= ~std::uint32_t{0x1FFF};
  if (!multiply_halves(matrices(a, b, sums), call.way)) return false;
  const std::vector<float> bias = call.find("bias") != nullptr ? floats(call.tensor("bias")) : std::vector<float>{};
  for (std::int64_t e = 0; e < out.elements(); ++e) {
    float value = sums.as<float>()[e];
    if (call.is("kernel", "deep_gemm")) value = rounded(out.dtype(), value);
    if (!bias.empty()) value += bias[static_cast<std::size_t>(e % out.size(1))];
    store(out, e, value);
  }
  return true;
}
bool dsv3_fused_a_gemm(const Call& call) {
  return multiply_halves(matrices(call.tensor("mat_a"), call.tensor("mat_b"), call.tensor("output")), call.way);
}
bool dsv3_router_gemm(const Call& call) {
  return multiply_halves(matrices(call.tensor("hidden_states"), call.tensor("router_weights").transpose(0, 1), call.tensor("output")),
                         call.way);
}

bool bmm_fp8(const Call& call) {
  const Matrices p = matrices(call.tensor("A"), call.tensor("B"), call.tensor("out"));
  const float scale = floats(call.tensor("A_scale"))[0] * floats(call.tensor("B_scale"))[0];
  if (call.way != Way::tensor_core) {
    multiply_plainly(p, scale, call.way);
  } else if (p.k == 0) {
    return false;
  } else {
    // What the recipe's accumulator loses, and no more.
    const bool fine = call.is("accumulator", "fp32") || call.is("accumulator", "mma_sync");
    const std::int64_t tile = std::stoll(std::get<std::string>(call.attr("block_k"))), tiles = (p.k + tile - 1) / tile,
                       split = call.integer("split_k");
    const std::int64_t chunk = call.is("accumulator", "promoted_128") ? 128 : (tiles + split - 1) / split * tile;
    multiply_on_tensor_cores(p, fine ? hw::mma_sync(p.a.dtype()) : hw::fp8_wgmma, scale, call.is("accumulator", "fp32") ? 0 : chunk);
  }
  return true;
}

namespace {

/// sums [m, n] times the scales of columns and rows, one after the other and fused with the bias, or their product first.
void store_scaled(const Call& call, const std::vector<float>& sums) {
  const Tensor& out = call.tensor("out");
  const std::vector<float> rows = floats(call.tensor("scales_a")), columns = floats(call.tensor("scales_b"));
  const std::vector<float> bias = call.find("bias") != nullptr ? floats(call.tensor("bias")) : std::vector<float>{};
  for (std::size_t e = 0; e < sums.size(); ++e) {
    const std::size_t i = e / columns.size(), j = e % columns.size();
    float value = call.way == Way::reversed ? sums[e] * (rows[i] * columns[j]) : sums[e] * columns[j];
    if (bias.empty()) {
      value = call.way == Way::reversed ? value : value * rows[i];
    } else {
      value = call.way == Way::reversed ? value + bias[j] : std::fma(value, rows[i], bias[j]);
    }
    store(out, static_cast<std::int64_t>(e), value);
  }
}

}  // namespace

bool int8_scaled_mm(const Call& call) {
  if (call.way == Way::tensor_core) return false;  // exact on any unit
  const Matrices p = matrices(call.tensor("mat_a"), call.tensor("mat_b"), call.tensor("out"));
  const std::vector<std::int64_t> a = integers(p.a), columns = integers(p.b.transpose(0, 1));
  std::vector<float> sums;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k)
        sum += a[static_cast<std::size_t>(i * p.k + k)] * columns[static_cast<std::size_t>(j * p.k + k)];
      sums.push_back(static_cast<float>(sum));
    }
  store_scaled(call, sums);
  return true;
}

namespace {

/// Weight (n, k) of QServe's kernels, without sign.
std::int64_t qserve_code(const Tensor& kernel, std::int64_t n, std::int64_t k) {
  const std::int64_t tile = n / 32 * (kernel.size(1) / 16) + k / 32;
  const std::int64_t byte = tile * 512 + n % 8 * 64 + k % 16 / 4 * 16 + k % 32 / 16 * 8 + n % 16 / 8 * 4 + k % 4;
  return kernel.as<std::uint8_t>()[byte] >> (n % 32 / 16 * 4) & 0xF;
}

/// Sums of whole numbers, as fp32.
template <class Weight>
std::vector<float> whole_sums(const Tensor& rows, std::int64_t columns, const Weight& weight) {
  const std::int64_t k = rows.size(1);
  const std::vector<std::int64_t> a = integers(rows);
  std::vector<std::int64_t> column(static_cast<std::size_t>(k));
  std::vector<float> sums(static_cast<std::size_t>(rows.size(0) * columns));
  for (std::int64_t n = 0; n < columns; ++n) {
    for (std::int64_t i = 0; i < k; ++i) column[static_cast<std::size_t>(i)] = weight(n, i);
    for (std::int64_t m = 0; m < rows.size(0); ++m) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a[static_cast<std::size_t>(m * k + i)] * column[static_cast<std::size_t>(i)];
      sums[static_cast<std::size_t>(m * columns + n)] = static_cast<float>(sum);
    }
  }
  return sums;
}

}  // namespace

bool qserve_w4a8_per_chn_gemm(const Call& call) {
  if (call.way == Way::tensor_core) return false;  // exact on any unit
  const Tensor &kernel = call.tensor("kernel"), &out = call.tensor("out_feats");
  const std::vector<float> sums =
      whole_sums(call.tensor("in_feats"), out.size(1), [&](std::int64_t n, std::int64_t k) { return qserve_code(kernel, n, k); });
  const std::vector<float> ws = floats(call.tensor("wscales")), as = floats(call.tensor("ascales")), zeros = floats(call.tensor("w_szs")),
                           totals = floats(call.tensor("a_ssums"));
  for (std::size_t e = 0; e < sums.size(); ++e) {
    const std::size_t m = e / ws.size(), n = e % ws.size();
    const float scaled = sums[e] * ws[n];
    // Neither product is fused with the difference, or the other one is.
    const float value = call.way == Way::reversed ? scaled * as[m] - zeros[n] * totals[m] : std::fma(-zeros[n], totals[m], scaled * as[m]);
    store(out, static_cast<std::int64_t>(e), value);
  }
  return true;
}

bool qserve_w4a8_per_group_gemm(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &kernel = call.tensor("kernel"), &out = call.tensor("out_feats");
  const std::vector<std::int64_t> scales = integers(call.tensor("scales_i8")), zeros = integers(call.tensor("zeros"));
  const std::int64_t columns = out.size(1);
  const std::vector<float> sums = whole_sums(call.tensor("in_feats"), columns, [&](std::int64_t n, std::int64_t k) {
    const auto at = static_cast<std::size_t>(k / 128 * columns + n / 32 * 32 + n % 8 * 4 + n % 32 / 8);
    return std::int64_t{static_cast<std::int8_t>(qserve_code(kernel, n, k) * scales[at] + zeros[at])};
  });
  const std::vector<float> ws = floats(call.tensor("wscales")), as = floats(call.tensor("ascales"));
  for (std::size_t e = 0; e < sums.size(); ++e) store(out, static_cast<std::int64_t>(e), sums[e] * (ws[e % ws.size()] * as[e / ws.size()]));
  return true;
}

bool fp8_scaled_mm(const Call& call) {
  Matrices p = matrices(call.tensor("mat_a"), call.tensor("mat_b"),
                        Tensor(DType::f32, {call.tensor("mat_a").size(0), call.tensor("mat_b").size(1)}));
  if (call.way != Way::tensor_core) {
    multiply_plainly(p, 1.0f, call.way);
  } else if (p.k == 0) {
    return false;
  } else {
    multiply_on_tensor_cores(p, call.is("accumulator", "fp32") ? hw::mma_sync(p.a.dtype()) : hw::fp8_wgmma, 1.0f);
  }
  store_scaled(call, floats(p.out));
  return true;
}

namespace {

/// Scales in memory order [lines][blocks of 128 along K].
struct BlockwiseScales {
  std::vector<float> a, b;
  std::int64_t together;  ///< columns that share one
};

/// Sums of 128 products, multiplied with one scale after the other; plus `addend`, where there is one. The first output is element
/// `first` of p.out.
void multiply_blockwise(const Matrices& p, const BlockwiseScales& scales, const std::vector<float>& addend, Way way,
                        std::int64_t first = 0) {
  const std::int64_t blocks = (p.k + 127) / 128;
  std::vector<float> totals(static_cast<std::size_t>(p.m * p.n));
  const Tensor sums(DType::f32, {p.m, p.n});
  for (std::int64_t block = 0; block < blocks; ++block) {
    // From the last block on where the order is another.
    const std::int64_t at = way == Way::tensor_core ? block : blocks - 1 - block, begin = at * 128, end = std::min(begin + 128, p.k);
    const Matrices part{p.a.slice(1, begin, end), p.b.slice(0, begin, end), sums, 1, p.m, p.n, end - begin};
    if (way == Way::tensor_core) {
      multiply_on_tensor_cores(part, hw::fp8_wgmma, 1.0f);
    } else {
      multiply_plainly(part, 1.0f, way);
    }
    const std::vector<float> values = floats(sums);
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        const auto e = static_cast<std::size_t>(i * p.n + j);
        totals[e] += values[e] * scales.a[static_cast<std::size_t>(i * blocks + at)] *
                     scales.b[static_cast<std::size_t>(j / scales.together * blocks + at)];
      }
  }
  for (std::size_t e = 0; e < totals.size(); ++e)
    store(p.out, first + static_cast<std::int64_t>(e), addend.empty() ? totals[e] : totals[e] + addend[e]);
}

/// Bytes of words, the low one first, as powers of two: the first `count` of each row.
std::vector<float> powers_in_words(const Tensor& words, std::int64_t count) {
  std::vector<float> powers;
  for (std::int64_t row = 0; row < words.size(0); ++row)
    for (std::int64_t g = 0; g < count; ++g) {
      const auto word = static_cast<std::uint32_t>(quant::get_bits(words, row * words.size(1) + g / 4));
      powers.push_back(std::ldexp(1.0f, static_cast<int>(word >> (8 * (g % 4)) & 0xFFu) - 127));
    }
  return powers;
}

/// a [m, k], b [k, n] with the scales of their blocks, [m, k/128] and [k/128, n/128].
struct BlockScaled {
  Tensor a, b, a_scales, b_scales;
};
void multiply_block_scaled(const BlockScaled& s, const Tensor& out, std::int64_t first, Way way) {
  multiply_blockwise(matrices(s.a, s.b, out), {floats(s.a_scales), floats(s.b_scales.transpose(0, 1)), 128}, {}, way, first);
}

/// Matrix `e` of a stack.
Tensor one_of(const Tensor& stack, std::int64_t e) {
  return stack.slice(0, e, e + 1).clone().reshape({stack.size(1), stack.size(2)});
}

struct Rows {
  std::int64_t first, rows;
};
/// Of each expert, by its problem size (rows at `rows_at`) or by the next one's offset.
std::vector<Rows> rows_of_experts(const Call& call, const char* offsets_name, std::int64_t m, std::size_t rows_at) {
  std::vector<std::int64_t> offsets = integers(call.tensor(offsets_name));
  const Tensor* const sizes = call.find("problem_sizes");
  const std::vector<std::int64_t> counts = sizes != nullptr ? integers(*sizes) : std::vector<std::int64_t>{};
  offsets.push_back(m);
  std::vector<Rows> rows;
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
    rows.push_back({offsets[e], counts.empty() ? offsets[e + 1] - offsets[e] : counts[3 * e + rows_at]});
  return rows;
}

bool multiply_grouped(const Call& call) {
  const Tensor &a = call.tensor("a"), &b = call.tensor("b"), &a_scales = call.tensor("scales_a"), &b_scales = call.tensor("scales_b");
  const std::vector<Rows> experts = rows_of_experts(call, "expert_offsets", a.size(0), 0);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const auto [first, rows] = experts[i];
    const auto e = static_cast<std::int64_t>(i);
    if (rows > 0)
      multiply_block_scaled({a.slice(0, first, first + rows), one_of(b, e), a_scales.slice(0, first, first + rows), one_of(b_scales, e)},
                            call.tensor("output"), first * b.size(2), call.way);
  }
  return true;
}

}  // namespace

bool fp8_blockwise_scaled_mm(const Call& call) {
  multiply_block_scaled({call.tensor("mat_a"), call.tensor("mat_b"), call.tensor("scales_a"), call.tensor("scales_b")}, call.tensor("out"),
                        0, call.way);
  return true;
}

namespace {

/// d = a b^T of one group, its first output the element `first` of d.
void multiply_deep_gemm(const Call& call, const Matrices& p, const Tensor& sfa, const Tensor& sfb, const std::vector<float>& addend,
                        std::int64_t first) {
  const auto scales = [&](const Tensor& t) { return call.flag("scale_ue8m0") ? powers_in_words(t, (p.k + 127) / 128) : floats(t); };
  multiply_blockwise(p, {scales(sfa), scales(sfb), call.integer("gran_n")}, addend, call.way, first);
}

}  // namespace

bool fp8_gemm_nt(const Call& call) {
  const Matrices p = matrices(call.tensor("a"), call.tensor("b").transpose(0, 1), call.tensor("d"));
  const std::vector<float> addend = call.find("c") != nullptr ? floats(call.tensor("c")) : std::vector<float>{};
  multiply_deep_gemm(call, p, call.tensor("sfa"), call.tensor("sfb"), addend, 0);
  return true;
}

bool m_grouped_fp8_gemm_nt_contiguous(const Call& call) {
  const std::vector<std::int64_t> indices = integers(call.tensor("m_indices"));
  const std::int64_t n = call.tensor("b").size(1);
  for (std::int64_t row = 0; row < call.tensor("a").size(0); ++row) {
    const std::int64_t g = indices[static_cast<std::size_t>(row)];
    if (g < 0) continue;
    const auto mine = [&](const char* name) { return call.tensor(name).slice(0, row, row + 1); };
    multiply_deep_gemm(call, matrices(mine("a"), one_of(call.tensor("b"), g).transpose(0, 1), call.tensor("d")), mine("sfa"),
                       one_of(call.tensor("sfb"), g), {}, row * n);
  }
  return true;
}

bool m_grouped_fp8_gemm_nt_masked(const Call& call) {
  const std::vector<std::int64_t> counts = integers(call.tensor("masked_m"));
  const std::int64_t m = call.tensor("a").size(1), n = call.tensor("b").size(1);
  for (std::int64_t g = 0; g < call.tensor("a").size(0); ++g) {
    const std::int64_t rows = counts[static_cast<std::size_t>(g)];
    if (rows == 0) continue;
    const auto mine = [&](const char* name) { return one_of(call.tensor(name), g).slice(0, 0, rows); };
    multiply_deep_gemm(call, matrices(mine("a"), one_of(call.tensor("b"), g).transpose(0, 1), call.tensor("d")), mine("sfa"),
                       one_of(call.tensor("sfb"), g), {}, g * m * n);
  }
  return true;
}

bool fp8_blockwise_scaled_grouped_mm(const Call& call) {
  return multiply_grouped(call);
}
bool es_fp8_blockwise_scaled_grouped_mm(const Call& call) {
  return multiply_grouped(call);
}

namespace {

/// What fused_moe_kernel multiplies for one block: rows of A and the weight of an expert, both as numbers of A's type.
struct MoeBlock {
  std::vector<std::int64_t> pairs;
  std::int64_t expert;
  Tensor a, b;  ///< [rows, k], [k, n]
};

/// Weights of expert `e` as [k, n]: with zero points taken off, scaled and rounded where groups have scales.
Tensor moe_weight(const Call& call, std::int64_t e) {
  const Tensor &a = call.tensor("A"), &b = call.tensor("B");
  const std::int64_t k = a.size(1), n = b.size(1), group = call.integer("block_shape_1");
  const bool four = call.flag("use_int4_w4a16"), groups = b.dtype() == DType::u8;
  const Tensor stored = b.slice(0, e, e + 1).clone(), wide(a.dtype(), {n, k});
  if (a.dtype() == b.dtype()) return stored.reshape({n, k}).transpose(0, 1);
  std::vector<float> scales, zeros;
  if (groups) scales = floats(call.tensor("B_scale").slice(0, e, e + 1));
  if (call.find("B_zp") != nullptr)
    for (const std::int64_t point : integers(call.tensor("B_zp").slice(0, e, e + 1))) zeros.push_back(static_cast<float>(point));
  const std::vector<std::int64_t> codes = integers(stored);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t at = j * k + i;
      const std::int64_t code =
          four ? (codes[static_cast<std::size_t>(at / 2)] & 0xFF) >> (i % 2 * 4) & 0xF : codes[static_cast<std::size_t>(at)];
      float value = static_cast<float>(code);
      if (groups) {
        const std::int64_t g = i / group, count = k / group;
        float zero = four ? 8.0f : 128.0f;
        if (!zeros.empty() && four)
          zero = static_cast<float>(static_cast<int>(zeros[static_cast<std::size_t>(j / 2 * count + g)]) >> (j % 2 * 4) & 0xF);
        if (!zeros.empty() && !four) zero = zeros[static_cast<std::size_t>(j * count + g)];
        value = (value - zero) * scales[static_cast<std::size_t>(j * count + g)];
      }
      store(wide, at, value);
    }
  return wide.transpose(0, 1);
}

/// Sums over begin <= k < end, [rows * n].
std::vector<float> moe_sums(const Call& call, const MoeBlock& block, std::int64_t begin, std::int64_t end) {
  const Matrices p =
      matrices(block.a.slice(1, begin, end), block.b.slice(0, begin, end), Tensor(DType::f32, {block.a.size(0), block.b.size(1)}));
  if (p.a.dtype() == DType::i8) {
    const std::vector<std::int64_t> rows = integers(p.a), columns = integers(p.b.transpose(0, 1));
    std::vector<float> sums;
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += rows[static_cast<std::size_t>(i * p.k + k)] * columns[static_cast<std::size_t>(j * p.k + k)];
        sums.push_back(static_cast<float>(sum));
      }
    return sums;
  }
  if (call.way != Way::tensor_core) {
    multiply_plainly(p, 1.0f, call.way);
  } else if (p.a.dtype() == DType::f8_e4m3) {
    const bool wide = call.integer(call.flag("swap_ab") ? "BLOCK_SIZE_N" : "BLOCK_SIZE_M") >= 64;
    multiply_on_tensor_cores(p, wide ? hw::fp8_wgmma : hw::mma_sync(p.a.dtype()), 1.0f);
  } else {
    multiply_on_tensor_cores(p, hw::half_mma, 1.0f);
  }
  return floats(p.out);
}

/// acc of a block: sums of spans with the scales of their blocks, from the last span on where the order is another.
std::vector<float> moe_accumulators(const Call& call, const MoeBlock& block) {
  const std::int64_t k = block.a.size(1), n = block.b.size(1), group = call.integer("block_shape_1"),
                     rows_together = call.integer("block_shape_0");
  const bool blocks = rows_together > 0, integral = block.a.dtype() == DType::i8;
  const std::int64_t span = blocks || integral ? call.integer("BLOCK_SIZE_K") : std::max<std::int64_t>(k, 1);
  std::vector<float> totals(static_cast<std::size_t>(block.a.size(0) * n)), a_scales, b_scales;
  if (blocks) a_scales = floats(call.tensor("A_scale")), b_scales = floats(call.tensor("B_scale").slice(0, block.expert, block.expert + 1));
  const std::int64_t spans = (k + span - 1) / span, columns = blocks ? (k + group - 1) / group : 0;
  for (std::int64_t s = 0; s < spans; ++s) {
    const std::int64_t begin = (call.way == Way::tensor_core ? s : spans - 1 - s) * span;
    const std::vector<float> sums = moe_sums(call, block, begin, std::min(begin + span, k));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::int64_t row = block.pairs[i / static_cast<std::size_t>(n)] / call.integer("top_k"), j = static_cast<std::int64_t>(i) % n;
      totals[i] += blocks ? sums[i] * a_scales[static_cast<std::size_t>(row * columns + begin / group)] *
                                b_scales[static_cast<std::size_t>(j / rows_together * columns + begin / group)]
                          : sums[i];
    }
  }
  return totals;
}

void store_moe_block(const Call& call, const MoeBlock& block) {
  const std::int64_t n = block.b.size(1), e = block.expert;
  const std::vector<float> sums = moe_accumulators(call, block), weights = floats(call.tensor("topk_weights"));
  const bool scaled = call.integer("block_shape_1") == 0 && call.find("B_scale") != nullptr;
  std::vector<float> a_scales, b_scales, bias;
  if (scaled) b_scales = floats(call.tensor("B_scale").slice(0, e, e + 1));
  if (scaled && call.find("A_scale") != nullptr) a_scales = floats(call.tensor("A_scale"));
  if (call.find("bias") != nullptr) bias = floats(call.tensor("bias").slice(0, e, e + 1));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t pair = block.pairs[i / static_cast<std::size_t>(n)], j = static_cast<std::int64_t>(i) % n;
    float value = sums[i];
    if (scaled) value *= b_scales.size() > 1 ? b_scales[static_cast<std::size_t>(j)] : b_scales[0];
    if (!a_scales.empty()) value *= a_scales.size() > 1 ? a_scales[static_cast<std::size_t>(pair / call.integer("top_k"))] : a_scales[0];
    if (!bias.empty()) value += bias[static_cast<std::size_t>(j)];
    if (call.flag("mul_routed_weight")) value *= weights[static_cast<std::size_t>(pair)];
    store(call.tensor("C"), pair * n + j, value);
  }
}

}  // namespace

bool fused_moe_kernel(const Call& call) {
  const Tensor &a = call.tensor("A"), &out = call.tensor("C");
  if (a.size(1) == 0 || (call.way == Way::tensor_core && a.dtype() == DType::i8)) return false;
  const std::vector<std::int64_t> ids = integers(call.tensor("sorted_token_ids")), experts = integers(call.tensor("expert_ids"));
  const std::int64_t block_rows = call.integer("BLOCK_SIZE_M"), pairs = call.tensor("topk_ids").elements(), n = out.size(2);
  const std::int64_t blocks = (integers(call.tensor("num_tokens_post_padded"))[0] + block_rows - 1) / block_rows;
  for (std::int64_t at = 0; at < blocks; ++at) {
    MoeBlock block{{}, experts[static_cast<std::size_t>(at)], {}, {}};
    for (std::int64_t i = at * block_rows; i < (at + 1) * block_rows; ++i)
      if (ids[static_cast<std::size_t>(i)] < pairs) block.pairs.push_back(ids[static_cast<std::size_t>(i)]);
    if (block.expert < 0)
      for (const std::int64_t pair : block.pairs)
        for (std::int64_t j = 0; j < n; ++j) store(out, pair * n + j, 0.0f);
    if (block.expert < 0 || block.pairs.empty() || n == 0) continue;
    block.a = Tensor(a.dtype(), {static_cast<std::int64_t>(block.pairs.size()), a.size(1)});
    for (std::size_t i = 0; i < block.pairs.size(); ++i) {
      const std::int64_t row = block.pairs[i] / call.integer("top_k"), to = static_cast<std::int64_t>(i);
      copy(a.slice(0, row, row + 1), block.a.slice(0, to, to + 1));
    }
    block.b = moe_weight(call, block.expert);
    store_moe_block(call, block);
  }
  return true;
}

bool cutlass_w4a8_moe_mm(const Call& call) {
  const Tensor &a = call.tensor("a"), &b = call.tensor("b"), &out = call.tensor("d");
  const std::int64_t n = b.size(1), k = a.size(1), groups = k / 128;
  const float factor = floats(call.tensor("a_scales"))[0];
  const std::vector<Rows> experts = rows_of_experts(call, "experts_offsets", a.size(0), 1);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const auto e = static_cast<std::int64_t>(i);
    if (experts[i].rows == 0) continue;
    const std::vector<std::int64_t> codes = integers(one_of(b, e));
    const std::vector<float> scales = floats(one_of(call.tensor("b_scales"), e));
    const Tensor weight(DType::f8_e4m3, {n, k});
    for (std::int64_t at = 0; at < n * k; ++at) {
      const auto nibble = static_cast<int>(codes[static_cast<std::size_t>(at / 2)] >> (at % 2 * 4) & 0xF);
      store_fp8(weight, at, static_cast<float>(nibble < 8 ? nibble : nibble - 16));
    }
    const Tensor rows = a.slice(0, experts[i].first, experts[i].first + experts[i].rows), columns = weight.transpose(0, 1);
    std::vector<float> totals(static_cast<std::size_t>(rows.size(0) * n));
    for (std::int64_t s = 0; s < groups; ++s) {
      const std::int64_t g = call.way == Way::tensor_core ? s : groups - 1 - s;
      const Matrices part =
          matrices(rows.slice(1, g * 128, (g + 1) * 128), columns.slice(0, g * 128, (g + 1) * 128), Tensor(DType::f32, {rows.size(0), n}));
      if (call.way == Way::tensor_core) {
        multiply_on_tensor_cores(part, hw::fp8_wgmma, 1.0f);
      } else {
        multiply_plainly(part, 1.0f, call.way);
      }
      const std::vector<float> sums = floats(part.out);
      for (std::size_t at = 0; at < sums.size(); ++at) {
        const std::int64_t j = static_cast<std::int64_t>(at) % n;
        totals[at] += sums[at] * scales[static_cast<std::size_t>(groups % 4 == 0 ? (g / 4 * n + j) * 4 + g % 4 : g * n + j)];
      }
    }
    for (std::size_t at = 0; at < totals.size(); ++at)
      store(out, experts[i].first * n + static_cast<std::int64_t>(at), totals[at] * factor);
  }
  return true;
}

bool cutlass_scaled_fp4_mm(const Call& call) {
  const Fp4Sum sum = fp4_sum_of(call);
  if (sum == nullptr) return false;
  const Tensor &a = call.tensor("a"), &b = call.tensor("b"), &out = call.tensor("out");
  const std::int64_t k = a.size(1) * 2;
  multiply_fp4(fp4_rows(a.as<std::uint8_t>(), call.tensor("block_scale_a").as<std::uint8_t>(), 0, a.size(0), k),
               fp4_rows(b.as<std::uint8_t>(), call.tensor("block_scale_b").as<std::uint8_t>(), 0, b.size(0), k),
               floats(call.tensor("alpha"))[0], out, 0, sum);
  return true;
}

bool mm_fp4(const Call& call) {
  const std::int64_t k = call.tensor("a").size(1) * 2, block = call.integer("block_size"), columns = k / block;
  // A row of codes, with the scale of each 16: where the tiles put it, of so many rows each.
  const auto rows_of = [&](const Tensor& codes, const Tensor& scales, bool tiles_of_8) {
    std::vector<Fp4Row> rows;
    for (std::int64_t r = 0; r < codes.size(0); ++r) {
      Fp4Row& row = rows.emplace_back();
      for (std::int64_t i = 0; i < k; ++i) {
        row.codes.push_back(quant::e2m1_to_f32(codes.as<std::uint8_t>()[r * k / 2 + i / 2] >> (i % 2 * 4) & 0xFu));
        if (i % 16 != 0) continue;
        const std::int64_t c = i / block, across = (columns + 3) / 4;
        const std::int64_t at = tiles_of_8 ? (r / 8 * across + c / 4) * 32 + r % 8 * 4 + c % 4
                                           : (r / 128 * across + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
        const std::uint8_t byte = scales.as<std::uint8_t>()[at];
        row.scales.push_back(call.flag("use_nvfp4") ? quant::e4m3_to_f32(byte) : std::ldexp(1.0f, byte - 127));
      }
    }
    return rows;
  };
  multiply_fp4(rows_of(call.tensor("a"), call.tensor("a_descale"), call.flag("use_8x4_sf_layout")),
               rows_of(call.tensor("b").transpose(0, 1), call.tensor("b_descale"), false),
               call.find("alpha") != nullptr ? floats(call.tensor("alpha"))[0] : 1.0f, call.tensor("out"), 0, fp4_sum_of(call.way));
  return true;
}

bool cutlass_fp4_group_mm(const Call& call) {
  const Fp4Sum sum = fp4_sum_of(call);
  if (sum == nullptr) return false;
  const auto whole = [&](const char* name) {
    return call.find(name) != nullptr ? integers(call.tensor(name)) : std::vector<std::int64_t>{};
  };
  const std::vector<std::int64_t> places = whole("blockscale_offsets");
  const Tensor &a = call.tensor("a_fp4"), &b = call.tensor("b_fp4"), &b_scales = call.tensor("b_blockscale");
  const std::int64_t k = a.size(1) * 2, n = b.size(1), experts = b.size(0);
  const std::vector<float> alphas = floats(call.tensor("alphas"));
  const std::vector<Rows> all = rows_of_experts(call, "expert_offsets", a.size(0), 0);
  std::int64_t scale_row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto at = static_cast<std::size_t>(e);
    const auto [first, rows] = all[at];
    if (!places.empty()) scale_row = places[at];
    if (rows > 0)
      multiply_fp4(
          fp4_rows(a.as<std::uint8_t>() + first * k / 2, call.tensor("a_blockscale").as<std::uint8_t>(), scale_row, rows, k),
          fp4_rows(b.as<std::uint8_t>() + e * n * k / 2, b_scales.as<std::uint8_t>() + e * b_scales.size(1) * b_scales.size(2), 0, n, k),
          alphas[at], call.tensor("out"), first, sum);
    scale_row += (rows + 127) / 128 * 128;
  }
  return true;
}

}  // namespace dodona::oracle::alternatives
