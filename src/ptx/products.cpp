#include "ptx/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quant/half.h"
#include "quant/tensor_core/step.h"

namespace dodona::ptx {
namespace {

namespace tc = quant::tensor_core;

struct TypeName {
  std::string_view name;
  MatrixType type;
};
constexpr TypeName names[] = {{"f16", MatrixType::f16},   {"bf16", MatrixType::bf16}, {"tf32", MatrixType::tf32},
                              {"e4m3", MatrixType::e4m3}, {"e5m2", MatrixType::e5m2}, {"s8", MatrixType::s8},
                              {"u8", MatrixType::u8}};

DType dtype_of(MatrixType type) {
  switch (type) {
    case MatrixType::f16: return DType::f16;
    case MatrixType::bf16: return DType::bf16;
    case MatrixType::e4m3: return DType::f8_e4m3;
    case MatrixType::e5m2: return DType::f8_e5m2;
    default: return DType::f32;
  }
}

constexpr int rows = 16;

/// By the definition: kernels that come here are rare.
using Step = float (*)(const tc::MmaSpec&, std::span<const tc::Factor>, std::span<const tc::Factor>, float);
template <class Code>
void add_by_definition(const tc::MmaSpec& spec, DType a_type, const Code* a, DType b_type, const Code* b, int columns, int k, float* sums,
                       Step step) {
  std::array<std::array<tc::Factor, 32>, rows> left{};
  for (int begin = 0; begin < k; begin += spec.products) {
    const auto count = static_cast<std::size_t>(std::min(spec.products, k - begin));
    const auto decode = [&](DType type, const Code* codes, int line, std::size_t j) {
      return tc::decode_factor(spec, type, codes[line * k + begin + static_cast<int>(j)]);
    };
    for (int r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < count; ++j) left[static_cast<std::size_t>(r)][j] = decode(a_type, a, r, j);
    for (int n = 0; n < columns; ++n) {
      std::array<tc::Factor, 32> right{};
      for (std::size_t j = 0; j < count; ++j) right[j] = decode(b_type, b, n, j);
      for (int r = 0; r < rows; ++r) {
        float& sum = sums[n * rows + r];
        sum = step(spec, {left[static_cast<std::size_t>(r)].data(), count}, {right.data(), count}, sum);
      }
    }
  }
}
float usual_step(const tc::MmaSpec& spec, std::span<const tc::Factor> a, std::span<const tc::Factor> b, float accumulator) {
  return tc::mma_step(spec, a, b, accumulator);
}

/// A step whose sum is fp16: aligned as of fp32 sums, and then rounded once.
float half_step(const tc::MmaSpec& spec, std::span<const tc::Factor> a, std::span<const tc::Factor> b, float accumulator) {
  const float usual = tc::mma_step(spec, a, b, accumulator);
  if (!std::isfinite(usual)) return usual;
  int largest = spec.lowest_exponent;
  if (accumulator != 0) largest = std::max(largest, std::ilogb(accumulator));
  for (std::size_t j = 0; j < a.size(); ++j)
    if (a[j].value != 0 && b[j].value != 0) largest = std::max(largest, a[j].exponent + b[j].exponent);
  const double unit = std::ldexp(1.0, largest - spec.addend_bits);
  double sum = std::trunc(accumulator / unit);
  for (std::size_t j = 0; j < a.size(); ++j) sum += std::trunc(static_cast<double>(a[j].value) * b[j].value / unit);
  return quant::f16_to_f32(quant::f64_to_f16(sum * unit));
}

int byte_of(MatrixType type, const void* codes, int at) {
  return type == MatrixType::s8 ? static_cast<const std::int8_t*>(codes)[at] : static_cast<const std::uint8_t*>(codes)[at];
}

}  // namespace

MatrixType matrix_type(std::string_view name) {
  for (const TypeName& t : names)
    if (t.name == name) return t.type;
  return MatrixType::none;
}

namespace {

/// How many operands are kept: the fragments that a warp's loop goes round with. A prime, for registers come in powers of two.
constexpr std::size_t kept_tiles = 61;
/// Operands are decoded as lines of 64 bytes, zeros behind their numbers: whole vectors.
constexpr int line_bytes = 64;

const tc::MmaSpec& spec_of(Unit unit, MatrixType type) {
  return bytes_of(type) == 2 ? tc::half_mma : unit == Unit::wgmma ? tc::fp8_wgmma : tc::fp8_mma_sync;
}

}  // namespace

Tiles::Tiles(Isa isa) {
  for (std::size_t k = 0; k < kept_tiles; ++k) {
    left_.emplace_back(isa);
    right_.emplace_back(isa);
  }
}

template <class Decoded>
const Decoded& Tiles::find(std::vector<Kept<Decoded>>& kept, Unit unit, const Operand& o, int lines, int k) {
  const auto bytes = static_cast<std::size_t>(lines * k * bytes_of(o.type)), line = static_cast<std::size_t>(k * bytes_of(o.type));
  Kept<Decoded>& one = kept[o.key % kept.size()];
  if (one.type == o.type && one.unit == unit && one.lines == lines && one.codes.size() == bytes &&
      std::memcmp(one.codes.data(), o.codes, bytes) == 0)
    return one.decoded;
  one.type = o.type;
  one.unit = unit;
  one.lines = lines;
  const auto* const begin = static_cast<const std::byte*>(o.codes);
  one.codes.assign(begin, begin + bytes);
  std::array<std::byte, std::size_t{256} * line_bytes> padded;
  for (std::size_t n = 0; n < static_cast<std::size_t>(lines); ++n) {
    std::memcpy(padded.data() + n * line_bytes, begin + n * line, line);
    std::memset(padded.data() + n * line_bytes + line, 0, line_bytes - line);
  }
  const int padded_k = line_bytes / bytes_of(o.type);
  one.decoded.decode(spec_of(unit, o.type), dtype_of(o.type), padded.data(), lines, padded_k, padded_k);
  return one.decoded;
}

void Tiles::add(Unit unit, const Operand& a, const Operand& b, int columns, int k, float* sums) {
  if (a.type == MatrixType::tf32)
    return add_by_definition(tc::tf32_wgmma, DType::f32, static_cast<const std::uint32_t*>(a.codes), DType::f32,
                             static_cast<const std::uint32_t*>(b.codes), columns, k, sums, usual_step);
  // Products commute: the sixteen rows are the lanes of a panel.
  const ops::MmaRows& right = find(right_, unit, b, columns, k);
  const ops::MmaColumns& left = find(left_, unit, a, rows, k);
  ops::accumulate(right, left, 0, k, sums, rows);
}

void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums) {
  add_by_definition(tc::half_mma, dtype_of(a_type), static_cast<const std::uint16_t*>(a), dtype_of(b_type),
                    static_cast<const std::uint16_t*>(b), columns, k, sums, half_step);
}

void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates) {
  for (int n = 0; n < columns; ++n)
    for (int r = 0; r < rows; ++r) {
      std::int64_t sum = 0;
      for (int j = 0; j < k; ++j) sum += byte_of(a_type, a, r * k + j) * byte_of(b_type, b, n * k + j);
      std::int32_t& to = sums[n * rows + r];
      sum += to;
      if (saturates)
        sum = std::clamp<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
      to = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
    }
}

}  // namespace dodona::ptx
