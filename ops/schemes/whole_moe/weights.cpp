#include "ops/schemes/whole_moe/weights.h"

#include <algorithm>

#include "core/threads.h"
#include "ops/base/packed_expert.h"
#include "quant/sizes.h"
#include "quant/swizzle.h"
#include "quant/weight_shuffle.h"

namespace dodona::ops::whole_moe {

std::vector<std::int64_t> stored_rows(const MoeMatrix& matrix) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(matrix.n));
  for (std::int64_t r = 0; r < matrix.n; ++r) at[static_cast<std::size_t>(plain_row(matrix, r))] = r;
  return at;
}

const std::byte* stored_codes(const MoeMatrix& matrix, std::int64_t expert, DType type) {
  return matrix.codes.as<std::byte>() + expert * matrix.n * matrix.k * bits(type) / 8;
}

Weight weight_of(const MoeMatrix& matrix, std::int64_t expert, DType type, const Exec& exec) {
  // Rows that are put together at a time: a block of each is read in one stream, and they are written in as many.
  constexpr std::int64_t together = 32;
  const std::int64_t row_bytes = matrix.k * bits(type) / 8;
  const std::byte* const stored = stored_codes(matrix, expert, type);
  if (!matrix.block_major) return {{}, stored};
  Weight weight{Tensor::uninitialized(DType::u8, {matrix.n, row_bytes}), nullptr};
  auto* const to = weight.whole.as<std::byte>();
  parallel_for(exec.threads, quant::ceil_div(matrix.n, together), static_cast<double>(together * row_bytes) / 16, [&](std::int64_t part) {
    const std::int64_t first = part * together, count = std::min(together, matrix.n - first);
    quant::rows_from_block_major_k({stored, static_cast<std::size_t>(matrix.n * row_bytes)}, matrix.n, row_bytes, first, count,
                                   {to + first * row_bytes, static_cast<std::size_t>(count * row_bytes)});
  });
  weight.codes = to;
  return weight;
}

const std::byte* packed_codes(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows) {
  return matrix.packed.parts == nullptr ? nullptr : packed_expert(*matrix.packed.parts, expert, rows) + matrix.packed.codes_at;
}

const void* scales_of(const MoeMatrix& matrix, std::int64_t expert) {
  if (!matrix.scales.defined()) return nullptr;
  if (matrix.scales.data() == nullptr && matrix.scales.elements() > 0) return matrix.packed.parts->part(expert) + matrix.packed.scales_at;
  constexpr static std::byte none{};
  if (matrix.scales.elements() == 0) return &none;
  const std::int64_t each = matrix.scales.elements() / matrix.scales.size(0);
  return matrix.scales.as<std::byte>() + expert * each * bits(matrix.scales.dtype()) / 8;
}

Operand operand_of(const WholeMoe& moe, const MoeMatrix& matrix, const Weight& weight, std::int64_t scales_expert) {
  const DType type = code_of(moe.scheme.numbers);
  Operand columns{.type = type, .codes = weight.codes, .count = matrix.n, .k = matrix.k, .stride = matrix.k, .scales = {}, .zeros = {}};
  if (moe.scheme.numbers == MoeNumbers::fp8_blocks)
    columns.scales = {
        .data = scales_of(matrix, scales_expert), .lines = fp8_block, .k = fp8_block, .line_stride = matrix.k / fp8_block, .k_stride = 1};
  if (moe.scheme.numbers == MoeNumbers::nvfp4) columns.scales = nvfp4_scales(scales_of(matrix, scales_expert), matrix.k);
  if (!matrix.scales_in_tiles) {
    columns.scales.layout = quant::ScaleLayout::linear;
    columns.scales.line_stride = matrix.k / fp4_block, columns.scales.k_stride = 1;
  }
  return columns;
}

float factor_of(const Tensor& factors, std::int64_t expert) {
  return factors.defined() ? factors.as<float>()[expert] : 1.0f;
}

std::vector<float> first_factors(const WholeMoe& moe, std::int64_t expert, bool shuffled) {
  if (!moe.gate_factor.defined() && !moe.up_factor.defined()) return {};
  const float gate = factor_of(moe.gate_factor, expert), up = moe.factor_after_rounding ? gate : factor_of(moe.up_factor, expert);
  std::vector<float> factors(static_cast<std::size_t>(moe.first.n));
  for (std::int64_t r = 0; r < moe.first.n; ++r)
    factors[static_cast<std::size_t>(r)] = (shuffled ? plain_row(moe.first, r) : r) < moe.width() && moe.activation.gated ? up : gate;
  return factors;
}
float lone_factor(const WholeMoe& moe, std::int64_t expert) {
  return moe.factor_after_rounding ? 1.0f : factor_of(moe.up_factor, expert);
}
double factor_behind(const WholeMoe& moe, std::int64_t expert) {
  const auto up = static_cast<double>(factor_of(moe.up_factor, expert));
  return moe.activation.gated ? up / static_cast<double>(factor_of(moe.gate_factor, expert)) : up;
}
std::vector<float> second_factors(const WholeMoe& moe, std::int64_t expert) {
  if (!moe.out_factor.defined()) return {};
  return std::vector<float>(static_cast<std::size_t>(moe.second.n), factor_of(moe.out_factor, expert));
}

namespace {

const float* bias_of(const Tensor& bias, std::int64_t expert) {
  return bias.defined() ? bias.as<float>() + expert * bias.size(1) : nullptr;
}

/// Scales of a weight in tiles; `tiles` holds them where they are not stored so.
const std::uint8_t* tiled_scales(const MoeMatrix& matrix, std::int64_t expert, Tensor& tiles) {
  const auto* const stored = static_cast<const std::uint8_t*>(scales_of(matrix, expert));
  if (matrix.scales_in_tiles) return stored;
  const std::int64_t columns = matrix.k / fp4_block;
  tiles = Tensor(DType::u8, {quant::padded_size(quant::ScaleLayout::swizzled_128x4, matrix.n, columns).elements()});
  quant::swizzle_scales(quant::ScaleLayout::swizzled_128x4, {stored, static_cast<std::size_t>(matrix.n * columns)}, matrix.n, columns,
                        {tiles.as<std::uint8_t>(), static_cast<std::size_t>(tiles.elements())});
  return tiles.as<std::uint8_t>();
}

}  // namespace

const float* bias_before(const WholeMoe& moe, const Tensor& bias, std::int64_t expert) {
  return moe.scheme.biases_behind ? nullptr : bias_of(bias, expert);
}
const float* bias_behind(const WholeMoe& moe, const Tensor& bias, std::int64_t expert) {
  return moe.scheme.biases_behind ? bias_of(bias, expert) : nullptr;
}

Epilogue epilogue_of(const std::vector<float>& factors, const float* bias) {
  Epilogue epilogue{.factors = {}, .addend = {}, .keeps_denormals = true};
  const Term factor{DType::f32, factors.empty() ? nullptr : factors.data(), 0, 1};
  if (bias != nullptr) {
    epilogue.addend.a = {DType::f32, bias, 0, 1};
    epilogue.last = factor;
  } else if (factor.data != nullptr) {
    epilogue.factors = {{factor, {}}};
  }
  return epilogue;
}

I8Weights fp4_weights(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows, Tensor& tiles) {
  I8Weights weights{.n = matrix.n, .k = matrix.k};
  if (const std::byte* const packed = packed_codes(matrix, expert, rows)) {
    weights.packed = reinterpret_cast<const std::uint8_t*>(packed);
  } else {
    weights.codes = matrix.codes.as<std::uint8_t>() + expert * matrix.n * matrix.k / 2;
    weights.scales = tiled_scales(matrix, expert, tiles);
  }
  return weights;
}

Halves halves_of(const WholeMoe& moe, bool swapped, bool shuffled) {
  Halves halves{stored_rows(moe.first), moe.width(), moe.activation.gated};
  if (!shuffled)
    for (std::size_t i = 0; i < halves.at.size(); ++i) halves.at[i] = static_cast<std::int64_t>(i);
  if (swapped && halves.both) std::rotate(halves.at.begin(), halves.at.begin() + halves.width, halves.at.end());
  return halves;
}

}  // namespace dodona::ops::whole_moe
