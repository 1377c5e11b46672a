#include "ptx/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "ptx/fragments.h"
#include "quant/half.h"
#include "quant/hopper/special.h"
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

void lay_out_fragment(const std::uint32_t* const* registers, std::size_t count, int lines, void* to, std::size_t words) {
  auto* const line = static_cast<std::uint32_t*>(to);
  const auto eights = static_cast<std::size_t>(lines / 8);
  for (std::size_t r = 0; r < count; ++r)
    for (std::size_t g = 0; g < 8; ++g)
      std::memcpy(line + (8 * (r % eights) + g) * words + 4 * (r / eights), registers[r] + 4 * g, 4 * sizeof(std::uint32_t));
}

bool FragmentSource::refresh(KnownCodes& known) const {
  // At whole vectors of memory, as the registers are; no matrix of shared memory is as long.
  constexpr std::size_t vector_bytes = 64;
  const std::size_t bytes = registers_.size() * row_bytes;
  const auto begin = [&] {
    const auto at = reinterpret_cast<std::uintptr_t>(known.codes.data());
    return known.codes.data() + (vector_bytes - at % vector_bytes) % vector_bytes;
  };
  const bool kept = known.codes.size() == bytes + vector_bytes;
  if (kept && dispatch<SameRegisters>(isa_, registers_.data(), registers_.size(), begin())) return true;
  known.codes.resize(bytes + vector_bytes);
  known.stamp = 0;  // no longer what shared memory had
  for (std::size_t r = 0; r < registers_.size(); ++r) std::memcpy(begin() + r * row_bytes, registers_[r], row_bytes);
  return false;
}
void FragmentSource::lay_out(const KnownCodes&, std::byte* lines, std::size_t bytes) const {
  lay_out_fragment(registers_.data(), registers_.size(), lines_, lines, bytes / sizeof(std::uint32_t));
}

template <class Decoded>
const Decoded& Tiles::find(std::vector<Kept<Decoded>>& kept, Unit unit, const Operand& o, int lines, int k) {
  Kept<Decoded>& one = kept[o.key % kept.size()];
  if (one.type != o.type || one.unit != unit || one.lines != lines || one.k != k) one.known = {};
  if (o.source.refresh(one.known)) return one.decoded;
  one.type = o.type;
  one.unit = unit;
  one.lines = lines;
  one.k = k;
  std::array<std::byte, std::size_t{256} * line_bytes> padded;
  const auto line = static_cast<std::size_t>(k) * static_cast<std::size_t>(bytes_of(o.type));
  for (std::size_t n = 0; n < static_cast<std::size_t>(lines); ++n)
    std::memset(padded.data() + n * line_bytes + line, 0, line_bytes - line);
  o.source.lay_out(one.known, padded.data(), line_bytes);
  const int padded_k = line_bytes / bytes_of(o.type);
  one.decoded.decode(spec_of(unit, o.type), dtype_of(o.type), padded.data(), lines, padded_k, padded_k);
  return one.decoded;
}

void Tiles::add(Unit unit, const Operand& a, const Operand& b, int columns, int k, float* sums) {
  // Products commute: the sixteen rows are the lanes of a panel.
  const ops::MmaRows& right = find(right_, unit, b, columns, k);
  const ops::MmaColumns& left = find(left_, unit, a, rows, k);
  ops::accumulate(right, left, 0, k, sums, rows);
}

void add_tf32_products(const void* a, const void* b, int columns, int k, float* sums) {
  add_by_definition(tc::tf32_wgmma, DType::f32, static_cast<const std::uint32_t*>(a), DType::f32, static_cast<const std::uint32_t*>(b),
                    columns, k, sums, usual_step);
}

void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums) {
  add_by_definition(tc::half_mma, dtype_of(a_type), static_cast<const std::uint16_t*>(a), dtype_of(b_type),
                    static_cast<const std::uint16_t*>(b), columns, k, sums, half_step);
}

namespace {

template <class Code>
void add_sparse_by_definition(const tc::MmaSpec& spec, Step step, MatrixType a_type, const void* a, MatrixType b_type, const void* b,
                              const SparsePlaces& places, int k, float* sums) {
  const auto count = static_cast<std::size_t>(k / 2);
  std::array<std::size_t, SparsePlaces::most> order{};
  for (std::size_t j = 0; j < count; ++j)
    order[spec.reading == tc::MmaReading::as_they_are ? j : static_cast<std::size_t>(tc::position_of(spec, static_cast<std::int64_t>(j)))] =
        j;
  const auto factor = [&](MatrixType type, const void* codes, std::size_t at) {
    return tc::decode_factor(spec, dtype_of(type), static_cast<const Code*>(codes)[at]);
  };
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t n = 0; n < 8; ++n) {
      std::array<tc::Factor, SparsePlaces::most> left{}, right{};
      for (std::size_t j = 0; j < count; ++j) {
        left[j] = factor(a_type, a, r * count + order[j]);
        right[j] = factor(b_type, b, n * static_cast<std::size_t>(k) + places.of_row[r][order[j]]);
      }
      float& sum = sums[n * rows + r];
      const auto products = std::min(static_cast<std::size_t>(spec.products), count);
      for (std::size_t begin = 0; begin < count; begin += products)
        sum = step(spec, {left.data() + begin, products}, {right.data() + begin, products}, sum);
    }
}

/// Sums of whole numbers, exact, then taken in.
std::int32_t added(std::int32_t to, std::int64_t sum, bool saturates) {
  sum += to;
  if (saturates) sum = std::clamp<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
}

}  // namespace

SparsePlaces sparse_places(MatrixType type, int k, const std::uint32_t* metadata, std::uint32_t selector) {
  const bool pairs = type == MatrixType::tf32, bytes = bytes_of(type) == 1;
  const auto pieces = static_cast<std::uint32_t>(k / (pairs ? 2 : 4));
  SparsePlaces places;
  for (std::uint32_t row = 0; row < rows; ++row)
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      const std::uint32_t lower = row / 8;
      std::uint32_t lane = 4 * (row % 8), shift = 4 * (piece % 8);
      if (bytes) {
        lane += lower + 2 * (pieces == 8 ? selector : piece / 8);
      } else {
        lane += pieces == 4 ? selector : 2 * selector + piece / 4;
        shift = 4 * (piece % 4) + 16 * lower;
      }
      const std::uint32_t bits = metadata[lane] >> shift & 15;
      auto& to = places.of_row[row];
      if (pairs) {
        to[piece] = static_cast<std::uint8_t>(2 * piece + (bits >> 1 & 1));
      } else {
        to[2 * piece] = static_cast<std::uint8_t>(4 * piece + (bits & 3));
        to[2 * piece + 1] = static_cast<std::uint8_t>(4 * piece + (bits >> 2));
      }
    }
  return places;
}

void add_sparse_products(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, const SparsePlaces& places, int k,
                         bool half_sums, float* sums) {
  switch (bytes_of(a_type)) {
    case 4: return add_sparse_by_definition<std::uint32_t>(tc::tf32_wgmma, usual_step, a_type, a, b_type, b, places, k, sums);
    case 2:
      return add_sparse_by_definition<std::uint16_t>(tc::half_mma, half_sums ? half_step : usual_step, a_type, a, b_type, b, places, k,
                                                     sums);
    default: break;
  }
  if (unit == Unit::wgmma) return add_sparse_by_definition<std::uint8_t>(tc::fp8_wgmma, usual_step, a_type, a, b_type, b, places, k, sums);
  std::array<float, 8 * rows> fresh{};
  add_sparse_by_definition<std::uint8_t>(tc::fp8_mma_sync, usual_step, a_type, a, b_type, b, places, k, fresh.data());
  for (std::size_t at = 0; at < fresh.size(); ++at) {
    const float sum = sums[at] + fresh[at];
    sums[at] = std::isnan(sum) ? quant::hopper::canonical_nan() : sum;
  }
}

void add_sparse_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, const SparsePlaces& places, int k,
                               std::int32_t* sums, bool saturates) {
  for (int n = 0; n < 8; ++n)
    for (int r = 0; r < rows; ++r) {
      std::int64_t sum = 0;
      for (int j = 0; j < k / 2; ++j)
        sum += byte_of(a_type, a, r * k / 2 + j) *
               byte_of(b_type, b, n * k + places.of_row[static_cast<std::size_t>(r)][static_cast<std::size_t>(j)]);
      std::int32_t& to = sums[n * rows + r];
      to = added(to, sum, saturates);
    }
}

void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates) {
  for (int n = 0; n < columns; ++n)
    for (int r = 0; r < rows; ++r) {
      std::int64_t sum = 0;
      for (int j = 0; j < k; ++j) sum += byte_of(a_type, a, r * k + j) * byte_of(b_type, b, n * k + j);
      std::int32_t& to = sums[n * rows + r];
      to = added(to, sum, saturates);
    }
}

}  // namespace dodona::ptx
