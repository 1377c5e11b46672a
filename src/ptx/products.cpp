#include "ptx/products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "ops/tiles/mma.h"
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

/// tf32, by the definition: kernels that use it are rare.
void add_by_definition(const tc::MmaSpec& spec, const std::uint32_t* a, const std::uint32_t* b, int columns, int k, float* sums) {
  std::array<std::array<tc::Factor, 32>, rows> left{};
  for (int begin = 0; begin < k; begin += spec.products) {
    const auto count = static_cast<std::size_t>(std::min(spec.products, k - begin));
    for (int r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < count; ++j)
        left[static_cast<std::size_t>(r)][j] = tc::decode_factor(spec, DType::f32, a[r * k + begin + static_cast<int>(j)]);
    for (int n = 0; n < columns; ++n) {
      std::array<tc::Factor, 32> right{};
      for (std::size_t j = 0; j < count; ++j) right[j] = tc::decode_factor(spec, DType::f32, b[n * k + begin + static_cast<int>(j)]);
      for (int r = 0; r < rows; ++r) {
        float& sum = sums[n * rows + r];
        sum = tc::mma_step(spec, {left[static_cast<std::size_t>(r)].data(), count}, {right.data(), count}, sum);
      }
    }
  }
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

void add_products(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums, Isa isa) {
  if (a_type == MatrixType::tf32)
    return add_by_definition(tc::tf32_wgmma, static_cast<const std::uint32_t*>(a), static_cast<const std::uint32_t*>(b), columns, k, sums);
  const tc::MmaSpec& spec = bytes_of(a_type) == 2 ? tc::half_mma : unit == Unit::wgmma ? tc::fp8_wgmma : tc::fp8_mma_sync;
  // Products commute: the sixteen rows are the lanes of a panel.
  const ops::MmaRows left(spec, dtype_of(b_type), b, columns, k, k, isa);
  const ops::MmaColumns right(spec, dtype_of(a_type), a, rows, k, k, isa);
  ops::accumulate(left, right, 0, k, sums, rows);
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
