#include "ops/sums/products_gpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/ftz_rows.h"
#include "ops/tiles/mma/mma.h"
#include "ops/tiles/mma/mma_fp4.h"
#include "quant/element.h"
#include "quant/hopper/special.h"
#include "quant/tensor_core/decode.h"
#include "quant/tensor_core/step.h"

namespace dodona::ops {
namespace {

// Columns, rows, and numbers of each that are decoded at a time: a panel of columns stays in the first cache while rows pass over it.
constexpr std::int64_t decoded_rows = 64, decoded_k = 256, decoded_fp4_k = 512;
/// Columns of a task, at most.
constexpr std::int64_t group = 128;
std::int64_t columns_of_task(const Product& product) {
  return product.a.type == DType::f4_e2m1 ? group : 64;
}

namespace tc = quant::tensor_core;

/// Units of the GPUs, for the types that each takes.
struct GpuUnit {
  Mode gpu;
  const tc::MmaSpec* unit;
};
constexpr GpuUnit gpu_units[] = {
    {Mode::hopper, &tc::half_mma}, {Mode::hopper, &tc::fp8_wgmma}, {Mode::blackwell, &tc::half_mma}, {Mode::blackwell, &tc::sm100_fp8},
    {Mode::ada, &tc::sm80_half},   {Mode::ada, &tc::sm89_fp8},     {Mode::ampere, &tc::sm80_half},
};
/// Of those, only a B200 multiplies e2m1.
constexpr std::array fp4_units{&tc::sm100_nvf4, &tc::sm100_mxf4_block16, &tc::sm100_mxf4};

/// Columns first <= j < first + columns of a product.
struct Task {
  const Product& product;
  std::int64_t first, columns;
  const std::vector<std::uint8_t>& a_scales;  ///< of e2m1: codes, line by line

  std::int64_t rows() const { return product.a.count; }
  std::size_t elements() const { return static_cast<std::size_t>(rows() * columns); }
};

const std::byte* line_of(const Operand& operand, std::int64_t line) {
  return static_cast<const std::byte*>(operand.codes) + line * operand.stride * bits(operand.type) / 8;
}

/// Numbers begin <= k < end.
struct Span {
  std::int64_t begin, end;
};

/// Sums of a range of K, added to `sums` [rows, columns].
using SpanSums = std::function<void(std::int64_t begin, std::int64_t end, std::vector<float>& sums)>;

/// Lines of an operand, dense along K.
struct Lines {
  std::vector<std::byte> packed;  // where the operand's are not
  const std::byte* own;
  std::int64_t stride;

  const std::byte* first() const { return packed.empty() ? own : packed.data(); }
};

template <class Code>
void pack(const Operand& operand, std::int64_t first, std::int64_t count, Code* to) {
  const Code* const from = static_cast<const Code*>(operand.codes) + first * operand.stride;
  for (std::int64_t k = 0; k < operand.k; ++k)
    for (std::int64_t line = 0; line < count; ++line) to[line * operand.k + k] = from[line * operand.stride + k * operand.k_stride];
}

Lines dense_lines(const Operand& operand, std::int64_t first, std::int64_t count) {
  if (operand.k_stride == 1) return {{}, line_of(operand, first), operand.stride};
  const int code_bytes = bits(operand.type) / 8;
  Lines lines{std::vector<std::byte>(static_cast<std::size_t>(count * operand.k * code_bytes)), nullptr, operand.k};
  if (code_bytes == 1) pack(operand, first, count, reinterpret_cast<std::uint8_t*>(lines.packed.data()));
  if (code_bytes == 2) pack(operand, first, count, reinterpret_cast<std::uint16_t*>(lines.packed.data()));
  if (code_bytes == 4) pack(operand, first, count, reinterpret_cast<std::uint32_t*>(lines.packed.data()));
  return lines;
}

SpanSums sums_of_unit(const Task& task, const tc::MmaSpec& unit, Isa isa) {
  return [&task, &unit, isa, left = dense_lines(task.product.a, 0, task.rows()),
          right = dense_lines(task.product.b, task.first, task.columns)](std::int64_t begin, std::int64_t end, std::vector<float>& sums) {
    const DType a = task.product.a.type, b = task.product.b.type;
    const std::int64_t granule = tc::granule_of(unit), most = decoded_k / granule * granule;
    for (std::int64_t k = begin; k < end; k += most) {
      const std::int64_t width = std::min(most, end - k);
      const MmaColumns columns(unit, b, right.first() + k * bits(b) / 8, task.columns, width, right.stride, isa);
      for (std::int64_t row = 0; row < task.rows(); row += decoded_rows) {
        const MmaRows rows(unit, a, left.first() + (row * left.stride + k) * bits(a) / 8, std::min(decoded_rows, task.rows() - row), width,
                           left.stride, isa);
        accumulate(rows, columns, 0, width, sums.data() + row * task.columns, task.columns);
      }
    }
  };
}

SpanSums sums_of_integers(const Task& task) {
  return [task](std::int64_t begin, std::int64_t end, std::vector<float>& sums) {
    const Operand &a = task.product.a, &b = task.product.b;
    std::vector<std::int32_t> row(static_cast<std::size_t>(task.columns));
    const auto* const column = reinterpret_cast<const std::int8_t*>(line_of(b, task.first)) + begin;
    for (std::int64_t i = 0; i < task.rows(); ++i) {
      std::fill(row.begin(), row.end(), 0);
      accumulate_i8(reinterpret_cast<const std::int8_t*>(line_of(a, i)) + begin, column, end - begin, task.columns, b.stride, row.data());
      for (std::int64_t j = 0; j < task.columns; ++j)
        sums[static_cast<std::size_t>(i * task.columns + j)] += static_cast<float>(row[static_cast<std::size_t>(j)]);
    }
  };
}

const tc::Fp4Spec* fp4_unit_of(Mode gpu, const Operand& a, const Operand& b) {
  if (gpu != Mode::blackwell || a.type != DType::f4_e2m1 || b.type != DType::f4_e2m1) return nullptr;
  for (const tc::Fp4Spec* unit : fp4_units) {
    const auto fits = [unit](const BlockScales& s) { return s && s.lines == 1 && s.type == unit->scale && s.k == unit->scale_block; };
    if (fits(a.scales) && fits(b.scales)) return unit;
  }
  return nullptr;
}

/// Scale codes of lines first <= i < first + count, line by line.
std::vector<std::uint8_t> scale_codes(const Operand& operand, std::int64_t first, std::int64_t count) {
  const BlockScales& scales = operand.scales;
  const std::int64_t blocks = (operand.k + scales.k - 1) / scales.k;
  // Neighbours along K lie side by side: whole lines, or the four of a tile.
  constexpr std::int64_t of_tile = 4;
  const bool linear = scales.layout == quant::ScaleLayout::linear;
  const std::int64_t together = !linear ? of_tile : scales.k_stride == 1 ? std::max<std::int64_t>(blocks, 1) : 1;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count * blocks));
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t block = 0; block < blocks; block += together)
      std::copy_n(static_cast<const std::uint8_t*>(scales.data) + scales.index(first + i, block * scales.k),
                  std::min(together, blocks - block), codes.begin() + i * blocks + block);
  return codes;
}

SpanSums sums_of_fp4(const Task& task, const tc::Fp4Spec& unit, Isa isa) {
  return [&task, &unit, isa, b_scales = scale_codes(task.product.b, task.first, task.columns)](std::int64_t begin, std::int64_t end,
                                                                                               std::vector<float>& sums) {
    const std::int64_t blocks = task.product.a.k / unit.scale_block;
    const auto lines = [&](const Operand& operand, std::int64_t line, std::int64_t k, const std::uint8_t* scales) {
      return Fp4Codes{reinterpret_cast<const std::uint8_t*>(line_of(operand, line)) + k / 2, operand.stride / 2,
                      scales + k / unit.scale_block, blocks};
    };
    for (std::int64_t k = begin; k < end; k += decoded_fp4_k) {
      const std::int64_t width = std::min(decoded_fp4_k, end - k);
      const Fp4Columns columns(unit, lines(task.product.b, task.first, k, b_scales.data()), task.columns, width, isa);
      for (std::int64_t row = 0; row < task.rows(); row += decoded_rows) {
        const Fp4Rows rows(unit, lines(task.product.a, row, k, task.a_scales.data() + row * blocks),
                           std::min(decoded_rows, task.rows() - row), width, isa);
        accumulate(rows, columns, 0, width, sums.data() + row * task.columns, task.columns);
      }
    }
  };
}

/// Lines as a unit reads them, and the codes of their scales.
struct Factors {
  std::int64_t k, scale_block;  ///< scale_block: numbers that share a scale; k where there are none
  std::vector<tc::Factor> factors;
  std::vector<std::uint8_t> scales;

  Factors(const Operand& operand, const tc::MmaSpec& unit, std::int64_t first, std::int64_t count, bool scaled)
      : k(operand.k), scale_block(scaled ? operand.scales.k : operand.k) {
    const Lines lines = dense_lines(operand, first, count);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t at = 0; at < k; ++at) {
        const auto code = quant::load_bits(operand.type, lines.first(), i * lines.stride + at);
        factors.push_back(tc::decode_factor(unit, operand.type, static_cast<std::uint32_t>(code)));
      }
    scales = scaled ? scale_codes(operand, first, count) : std::vector<std::uint8_t>(static_cast<std::size_t>(count), tc::ue8m0_one);
  }

  std::span<const tc::Factor> step(std::int64_t line, std::int64_t begin, std::int64_t end) const {
    return std::span(factors).subspan(static_cast<std::size_t>(line * k + begin), static_cast<std::size_t>(end - begin));
  }
  std::uint8_t scale(std::int64_t line, std::int64_t at) const {
    const std::int64_t blocks = (k + scale_block - 1) / scale_block;
    return scales[static_cast<std::size_t>(line * blocks + at / scale_block)];
  }
};

/// Step by step, for types and scales that the unit's vectors do not take.
SpanSums sums_by_definition(const Task& task, const tc::MmaSpec& unit, bool scaled) {
  const auto rows = std::make_shared<Factors>(task.product.a, unit, 0, task.rows(), scaled);
  const auto columns = std::make_shared<Factors>(task.product.b, unit, task.first, task.columns, scaled);
  return [rows, columns, &unit, count = task.columns](std::int64_t begin, std::int64_t end, std::vector<float>& sums) {
    for (std::size_t e = 0; e < sums.size(); ++e) {
      const auto i = static_cast<std::int64_t>(e) / count, j = static_cast<std::int64_t>(e) % count;
      float sum = sums[e];
      for (std::int64_t k = begin; k < end; k += unit.products) {
        const std::int64_t last = std::min(k + unit.products, end);
        sum = tc::mma_step(unit, rows->step(i, k, last), columns->step(j, k, last), sum, rows->scale(i, k), columns->scale(j, k));
      }
      sums[e] = sum;
    }
  };
}

[[noreturn]] void no_such_sum(Mode gpu) {
  throw Error(ErrorCode::unsupported, "", "", "no kernel that " + std::string(name(gpu)) + " mode knows has such a sum");
}

SpanSums span_sums(const Task& task, const Accumulator& kernel, const Exec& exec) {
  const Operand &a = task.product.a, &b = task.product.b;
  if (a.zeros || b.zeros) throw Error(ErrorCode::unsupported, "", "", "GPUs' kernels take operands without zero points");
  if (kernel.order == Order::blocks || kernel.order == Order::block_steps) {
    const tc::Fp4Spec* const unit = fp4_unit_of(exec.mode, a, b);
    if (unit == nullptr) no_such_sum(exec.mode);
    return sums_of_fp4(task, *unit, exec.isa);
  }
  if (kernel.unit != nullptr) {
    const tc::MmaSpec* const unit = exec.mode == Mode::hopper ? kernel.unit : unit_of(exec.mode, a.type, b.type);
    const bool scaled = kernel.scaling == Scaling::in_unit;
    if (unit == nullptr || (scaled && unit != &tc::sm100_fp8)) no_such_sum(exec.mode);
    if (scaled || bits(a.type) == 32) return sums_by_definition(task, *unit, scaled);
    return sums_of_unit(task, *unit, exec.isa);
  }
  const bool dense = a.k_stride == 1 && b.k_stride == 1;
  if (kernel.order == Order::exact && a.type == DType::i8 && b.type == DType::i8 && dense) return sums_of_integers(task);
  no_such_sum(exec.mode);
}

/// Of the columns of a task in one row.
using Row = std::array<float, group>;

float scale_at(const BlockScales& scales, std::int64_t line, std::int64_t k) {
  return scales ? static_cast<float>(scales.at(line, k)) : 1.0f;
}

/// As GPUs store it.
float with_canonical_nan(float x) {
  return x != x ? quant::hopper::canonical_nan() : x;
}

void multiply(const Accumulator& kernel, const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  if (!kernel.keeps_denormals) return mul_ftz(x, y, n, to, isa);
  for (std::int64_t j = 0; j < n; ++j) to[j] = with_canonical_nan(x[j] * y[j]);
}
void multiply_add(const Accumulator& kernel, const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  if (!kernel.keeps_denormals) return fma_ftz(x, y, to, n, to, isa);
  for (std::int64_t j = 0; j < n; ++j) to[j] = with_canonical_nan(std::fma(x[j], y[j], to[j]));
}

/// total += the sums of a span, with the scales of their blocks.
void add_span(const Task& task, const Accumulator& kernel, std::int64_t k, const std::vector<float>& span, std::vector<float>& total,
              Isa isa) {
  const Operand &a = task.product.a, &b = task.product.b;
  const std::int64_t n = task.columns;
  Row left, right, scaled;
  for (std::int64_t j = 0; j < n; ++j) right[static_cast<std::size_t>(j)] = scale_at(b.scales, task.first + j, k);
  for (std::int64_t i = 0; i < task.rows(); ++i) {
    std::fill_n(left.begin(), n, scale_at(a.scales, i, k));
    const float* const sum = span.data() + i * n;
    float* const row = total.data() + i * n;
    if (kernel.scaling == Scaling::by_product) {
      multiply(kernel, left.data(), right.data(), n, scaled.data(), isa);
      multiply_add(kernel, sum, scaled.data(), n, row, isa);
    } else {
      const bool back = kernel.scaling == Scaling::in_turn_back;
      multiply(kernel, sum, back ? right.data() : left.data(), n, scaled.data(), isa);
      multiply_add(kernel, scaled.data(), back ? left.data() : right.data(), n, row, isa);
    }
  }
}

/// Numbers that are summed together, ascending.
using Part = std::vector<Span>;

/// Sums of a part.
std::vector<float> sum_part(const Task& task, const Accumulator& kernel, const SpanSums& sum, const Part& part, Isa isa) {
  std::vector<float> total(task.elements(), 0.0f), promoted;
  for (const Span& span : part) {
    if (kernel.promote_every == 0) {
      sum(span.begin, span.end, total);
      continue;
    }
    for (std::int64_t begin = span.begin; begin < span.end; begin += kernel.promote_every) {
      promoted.assign(total.size(), 0.0f);
      sum(begin, std::min(begin + kernel.promote_every, span.end), promoted);
      add_span(task, kernel, begin, promoted, total, isa);
    }
  }
  return total;
}

std::vector<Part> parts_from(const std::vector<std::int64_t>& begins, std::int64_t k) {
  std::vector<Part> parts;
  for (std::size_t p = 0; p < begins.size(); ++p) parts.push_back({{begins[p], p + 1 < begins.size() ? begins[p + 1] : k}});
  return parts;
}

std::vector<Part> contiguous_parts(const Accumulator& kernel, std::int64_t k) {
  std::vector<std::int64_t> begins{0};
  const std::int64_t length = kernel.part_length(k);
  for (std::int64_t begin = length; begin < k; begin += length) begins.push_back(begin);
  return parts_from(begins, k);
}

std::vector<Part> interleaved_parts(const Accumulator& kernel, std::int64_t k) {
  std::vector<Part> parts(static_cast<std::size_t>(kernel.parts));
  for (std::int64_t begin = 0, tile = 0; begin < k; begin += kernel.tile, ++tile)
    parts[static_cast<std::size_t>(tile % kernel.parts)].push_back({begin, std::min(begin + kernel.tile, k)});
  return parts;
}

/// The parts of K that are summed apart.
std::vector<Part> parts_of(const Task& task, const Accumulator& kernel) {
  constexpr std::int64_t columns = 128;  // that share their parts
  static_assert(columns % group == 0);
  const std::int64_t k = task.product.a.k;
  if (!task.product.parts.empty()) return parts_from(task.product.parts[static_cast<std::size_t>(task.first / columns)], k);
  return kernel.chunks == Chunks::interleaved && kernel.parts > 1 ? interleaved_parts(kernel, k) : contiguous_parts(kernel, k);
}

void add(std::vector<float>& total, const std::vector<float>& part, Isa isa) {
  add_ftz(total.data(), part.data(), static_cast<std::int64_t>(total.size()), total.data(), isa);
}

/// Four sums from zero, to which the parts go in turn.
std::vector<float> sums_by_fours(const Task& task, const Accumulator& kernel, const SpanSums& sum, const std::vector<Part>& parts,
                                 Isa isa) {
  std::array<std::vector<float>, 4> fours;
  for (std::vector<float>& four : fours) four.resize(task.elements());
  for (std::size_t p = 0; p < parts.size(); ++p) add(fours[p % fours.size()], sum_part(task, kernel, sum, parts[p], isa), isa);
  for (std::size_t i = 1; i < fours.size(); ++i) add(fours[0], fours[i], isa);
  return fours[0];
}

void values_of(const Term& term, std::int64_t i, std::int64_t first, std::int64_t n, float* to);

/// Of one part, from the addend.
std::vector<float> sums_from_addend(const Task& task, const SpanSums& sum) {
  std::vector<float> total(task.elements());
  for (std::int64_t i = 0; i < task.rows(); ++i)
    values_of(task.product.epilogue.addend.a, i, task.first, task.columns, total.data() + i * task.columns);
  sum(0, task.product.a.k, total);
  return total;
}

/// Whole sums of a task, before its epilogue.
std::vector<float> sums_of(const Task& task, const Accumulator& kernel, const Exec& exec) {
  const SpanSums sum = span_sums(task, kernel, exec);
  if (task.product.epilogue.starts) return sums_from_addend(task, sum);
  std::vector<Part> parts = parts_of(task, kernel);
  if (kernel.chunk_order == ChunkOrder::by_fours && parts.size() > 1) return sums_by_fours(task, kernel, sum, parts, exec.isa);
  if (kernel.chunk_order == ChunkOrder::descending) std::reverse(parts.begin(), parts.end());
  std::vector<float> total = sum_part(task, kernel, sum, parts.front(), exec.isa);
  for (std::size_t p = 1; p < parts.size(); ++p) add(total, sum_part(task, kernel, sum, parts[p], exec.isa), exec.isa);
  return total;
}

void values_of(const Term& term, std::int64_t i, std::int64_t first, std::int64_t n, float* to) {
  if (term.data == nullptr || term.column == 0) {
    std::fill_n(to, n, static_cast<float>(term.at(i, 0)));
  } else if (term.type == DType::f32 && term.column == 1) {
    std::copy_n(static_cast<const float*>(term.data) + i * term.row + first, n, to);
  } else {
    for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<float>(term.at(i, first + j));
  }
}

/// to[j] = fl32(x[j] * y[j]), and fl32(x[j] * y[j] + z[j]), and fl32(x[j] + y[j]).
void multiply(const Epilogue& epilogue, const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  if (!epilogue.keeps_denormals) return mul_ftz(x, y, n, to, isa);
  for (std::int64_t j = 0; j < n; ++j) to[j] = with_canonical_nan(x[j] * y[j]);
}
void multiply_add(const Epilogue& epilogue, const float* x, const float* y, const float* z, std::int64_t n, float* to, Isa isa) {
  if (!epilogue.keeps_denormals) return fma_ftz(x, y, z, n, to, isa);
  for (std::int64_t j = 0; j < n; ++j) to[j] = with_canonical_nan(std::fma(x[j], y[j], z[j]));
}
void add(const Epilogue& epilogue, const float* x, const float* y, std::int64_t n, float* to, Isa isa) {
  if (!epilogue.keeps_denormals) return add_ftz(x, y, n, to, isa);
  for (std::int64_t j = 0; j < n; ++j) to[j] = with_canonical_nan(x[j] + y[j]);
}

Row values_of(const Epilogue& epilogue, const Factor& factor, std::int64_t i, std::int64_t first, std::int64_t n, Isa isa) {
  Row a, b;
  values_of(factor.a, i, first, n, a.data());
  if (factor.b.data == nullptr) return a;
  values_of(factor.b, i, first, n, b.data());
  multiply(epilogue, a.data(), b.data(), n, a.data(), isa);
  return a;
}

/// x[j] times the factors plus the addend, of (i, first + j), j < n.
void scale(const Epilogue& epilogue, float* x, std::int64_t i, std::int64_t first, std::int64_t n, Isa isa) {
  const bool adds = epilogue.addend.a.data != nullptr;
  Row addend;
  if (adds) addend = values_of(epilogue, epilogue.addend, i, first, n, isa);
  if (adds && epilogue.subtract) std::transform(addend.begin(), addend.begin() + n, addend.begin(), std::negate<>());
  for (std::size_t f = 0; f < epilogue.factors.size(); ++f) {
    const Row by = values_of(epilogue, epilogue.factors[f], i, first, n, isa);
    if (adds && epilogue.fused && f + 1 == epilogue.factors.size()) return multiply_add(epilogue, x, by.data(), addend.data(), n, x, isa);
    multiply(epilogue, x, by.data(), n, x, isa);
  }
  if (!adds) return;
  if (epilogue.narrowed)
    for (std::int64_t j = 0; j < n; ++j) x[j] = static_cast<float>(quant::round_to(*epilogue.narrowed, static_cast<double>(x[j])));
  add(epilogue, x, addend.data(), n, x, isa);
}

/// x[j] becomes what the epilogue makes of the sum (i, first + j), j < n.
void finish(const Epilogue& epilogue, float* x, std::int64_t i, std::int64_t first, std::int64_t n, Isa isa) {
  scale(epilogue, x, i, first, n, isa);
  if (epilogue.last.data == nullptr) return;
  const Row by = values_of(epilogue, {epilogue.last, {}}, i, first, n, isa);
  multiply(epilogue, x, by.data(), n, x, isa);
}

void run(const Task& task, const Accumulator& kernel, const Tensor& out, const Exec& exec) {
  std::vector<float> sums = sums_of(task, kernel, exec);
  const Product& p = task.product;
  for (std::int64_t i = 0; i < task.rows(); ++i) {
    float* const row = sums.data() + i * task.columns;
    if (!p.epilogue.starts) finish(p.epilogue, row, i, task.first, task.columns, exec.isa);
    const std::int64_t at = out.offset(p.place(i, task.first));
    quant::from_f32(out.dtype(), row, out.as<std::byte>() + at * bits(out.dtype()) / 8, task.columns);
  }
}

}  // namespace

const tc::MmaSpec* unit_of(Mode gpu, DType a, DType b) {
  const auto takes = [](const tc::MmaSpec& unit, DType type) {
    return std::find(unit.types.begin(), unit.types.end(), type) != unit.types.end();
  };
  if (bits(a) == 16 && a != b) return nullptr;  // 8-bit floats go in any mix
  for (const GpuUnit& row : gpu_units)
    if (row.gpu == gpu && takes(*row.unit, a) && takes(*row.unit, b)) return row.unit;
  return nullptr;
}

void gpu_products(std::span<const Product> products, const Accumulator& kernel, const Tensor& out, const Exec& exec) {
  std::vector<Task> tasks;
  std::vector<std::vector<std::uint8_t>> a_scales(products.size());
  double cost = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    if (fp4_unit_of(exec.mode, p.a, p.b) != nullptr) a_scales[i] = scale_codes(p.a, 0, p.a.count);
    const std::int64_t columns = columns_of_task(p);
    for (std::int64_t first = 0; p.a.count > 0 && first < p.b.count; first += columns) {
      tasks.push_back({p, first, std::min(columns, p.b.count - first), a_scales[i]});
      cost += static_cast<double>(tasks.back().elements()) * static_cast<double>(p.a.k);
    }
  }
  if (tasks.empty()) return;
  parallel_for(exec.threads, static_cast<std::int64_t>(tasks.size()), cost / static_cast<double>(tasks.size()),
               [&](std::int64_t t) { run(tasks[static_cast<std::size_t>(t)], kernel, out, exec); });
}

}  // namespace dodona::ops
