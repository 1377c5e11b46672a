#include "ops/schemes/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/rotation/hadamard_row.h"
#include "quant/hadamard.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

struct Plain {
  static auto add(auto a, auto b) { return a + b; }
  static auto sub(auto a, auto b) { return a - b; }
};
struct Flushing {
  static float add(float a, float b) { return hw::add(a, b); }
  static float sub(float a, float b) { return hw::sub(a, b); }
};

template <class Arithmetic, class T>
void butterflies(T* x, std::int64_t n, std::int64_t end_of_strides) {
  for (std::int64_t stride = 1; stride < end_of_strides; stride *= 2)
    for (std::int64_t base = 0; base < n; base += 2 * stride)
      for (std::int64_t i = base; i < base + stride; ++i) {
        const T a = x[i], b = x[i + stride];
        x[i] = Arithmetic::add(a, b);
        x[i + stride] = Arithmetic::sub(a, b);
      }
}

/// Each output a chain over the chunks in order.
template <class Arithmetic, class T>
void mix(T* x, const HadamardSize& size) {
  const std::span<const std::uint64_t> signs = quant::hadamard_signs(size.chunks);
  std::vector<T> column(signs.size()), mixed(signs.size());
  for (std::int64_t j = 0; j < size.n; ++j) {
    for (std::size_t c = 0; c < column.size(); ++c) column[c] = x[static_cast<std::int64_t>(c) * size.n + j];
    for (std::size_t row = 0; row < mixed.size(); ++row) {
      T sum = (signs[row] & 1) != 0 ? -column[0] : column[0];
      for (std::size_t c = 1; c < column.size(); ++c)
        sum = (signs[row] >> c & 1) != 0 ? Arithmetic::sub(sum, column[c]) : Arithmetic::add(sum, column[c]);
      mixed[row] = sum;
    }
    for (std::size_t c = 0; c < column.size(); ++c) x[static_cast<std::int64_t>(c) * size.n + j] = mixed[c];
  }
}

template <class Arithmetic, class T>
void transform(std::vector<T>& x, const HadamardSize& size, HadamardRule rule) {
  const bool all = rule != HadamardRule::last_pass_left_out;
  for (std::int64_t c = 0; c < size.chunks; ++c)
    butterflies<Arithmetic>(x.data() + c * size.n, size.n, all || size.chunks > 1 ? size.n : size.n / 2);
  if (size.chunks > 1 && all) mix<Arithmetic>(x.data(), size);
}

/// Index of the sum that is output i.
std::int64_t source_of(std::int64_t i, const HadamardSize& size, HadamardRule rule) {
  if (rule != HadamardRule::outputs_bit_reversed) return i;
  std::int64_t reversed = 0;
  for (std::int64_t bit = 1; bit < size.n; bit *= 2) reversed = 2 * reversed + ((i & bit) != 0 ? 1 : 0);
  return i / size.n * size.n + reversed;
}

/// Additions that an element goes through.
double depth_of(const HadamardSize& size) {
  return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(size.n)) - 1 + (size.chunks > 1 ? size.chunks - 1 : 0));
}

std::vector<float> floats_of(const HadamardCall& op, std::int64_t row, const HadamardSize& size) {
  std::vector<float> x(static_cast<std::size_t>(size.chunks * size.n));
  quant::to_f32(op.x.dtype(), row_begin(op.x, row, bits(op.x.dtype()) / 8), x.data(), op.x.size(-1));
  return x;
}

/// Rows one by one in fp32.
template <class Arithmetic>
void transform_rows(const HadamardCall& op, std::int64_t chunks, float (*scaled)(float, float), const Exec& exec) {
  const DType type = op.x.dtype();
  const std::int64_t width = op.x.size(-1);
  const HadamardSize size = hadamard_size(width, chunks);
  const auto scale = static_cast<float>(op.scale);
  parallel_for(exec.threads, row_count(op.x), depth_of(size) * static_cast<double>(chunks * size.n), [&](std::int64_t row) {
    std::vector<float> x = floats_of(op, row, size);
    transform<Arithmetic>(x, size, HadamardRule::right);
    for (std::int64_t i = 0; i < width; ++i) {
      float& y = x[static_cast<std::size_t>(i)];
      y = scaled(y, scale);
      if (std::isnan(y)) y = hw::canonical_nan();
    }
    quant::from_f32(type, x.data(), row_begin_mutable(op.out, row, bits(type) / 8), width);
  });
}

bool aligned_rows(const HadamardCall& op) {
  const int bytes = bits(op.out.dtype()) / 8;
  return op.out.contiguous() && op.out.size(-1) * bytes % 128 == 0 && reinterpret_cast<std::uintptr_t>(op.out.data()) % 64 == 0;
}

}  // namespace

HadamardSize hadamard_size(std::int64_t width, std::int64_t chunks) {
  const std::int64_t of_chunk = chunks == 1 ? (width + 7) / 8 * 8 : (width + 4 * chunks - 1) / (4 * chunks) * 4;
  return {chunks, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(of_chunk)))};
}

void hadamard_golden(const HadamardCall& op, std::int64_t chunks, HadamardRule rule, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  out.make_open();
  const std::int64_t width = op.x.size(-1);
  const HadamardSize size = hadamard_size(width, chunks);
  const double scale = static_cast<float>(op.scale), depth = depth_of(size), count = static_cast<double>(size.chunks * size.n);
  parallel_for(exec.threads, row_count(op.x), depth * count, [&](std::int64_t row) {
    const std::vector<float> elements = floats_of(op, row, size);
    std::vector<double> x(elements.begin(), elements.end());
    double most = 0;
    bool finite = true;
    for (const double value : x) {
      finite = finite && std::isfinite(value);
      if (std::isfinite(value)) most += std::fabs(value);
    }
    const bool beyond = most > static_cast<double>(std::numeric_limits<float>::max());
    transform<Plain>(x, size, rule);
    for (std::int64_t i = 0; i < width; ++i) {
      const double sum = x[static_cast<std::size_t>(source_of(i, size, rule))];
      Bounded y{sum};
      if (finite) {
        // A sum of nothing but zeros may have either sign.
        const double slack = most > 0 ? depth * f32_eps * most + count * flush_floor : 0x1p-149;
        y = scaled_f32({sum, slack, beyond}, scale, may_flush(scale));
      } else {
        y = Bounded{sum, 0.0, beyond} * scale;  // beside an infinity the finite ones may add up to the other one
      }
      out.put(row * width + i, y);
    }
  });
}

void hadamard_fast(const HadamardCall& op, std::int64_t chunks, const Exec& exec) {
  const std::int64_t width = op.x.size(-1), of_chunk = hadamard_size(width, chunks).n;
  if (chunks > 1 && of_chunk < hadamard_block)
    return transform_rows<Plain>(
        op, chunks, [](float x, float scale) { return x * scale; }, exec);
  const DType type = op.x.dtype();
  const int bytes = bits(type) / 8;
  const std::int64_t n = std::max(hadamard_block, of_chunk);
  const std::span<const std::uint64_t> signs = chunks > 1 ? quant::hadamard_signs(chunks) : std::span<const std::uint64_t>{};
  const bool streamed = worth_streaming(op.out) && aligned_rows(op) && op.out.data() != op.x.data();
  const auto cost = static_cast<double>(chunks * n);
  parallel_for_rows(exec.threads, row_count(op.x), cost, streamed, width * bytes, [&](std::int64_t row, Writing writing) {
    std::optional<Scratch> sums;
    if (chunks * n > hadamard_block) sums.emplace(exec.scratch.take(static_cast<std::size_t>(chunks * n) * sizeof(float)));
    dispatch<HadamardRowKernel>(
        exec.isa, HadamardRow{row_begin(op.x, row, bytes), row_begin_mutable(op.out, row, bytes), width, n, static_cast<float>(op.scale),
                              type, writing, next_row_begin(op.x, row, bytes), sums ? sums->as<float>() : nullptr, signs});
  });
}

void hadamard_hopper(const HadamardCall& op, std::int64_t chunks, const Exec& exec) {
  transform_rows<Flushing>(op, chunks, hw::mul, exec);
}

std::string hadamard_contract(std::int64_t chunks) {
  const std::string mixing = chunks == 1 ? ""
                                         : " Then chunks are mixed: each output a chain over the " + std::to_string(chunks) +
                                               " chunks in order, with the signs of a row of the matrix.";
  const std::string depth = chunks == 1 ? "log2 n" : "log2 n + " + std::to_string(chunks - 1);
  return "x widened to fp32, behind its end zeros up to " +
         std::string(chunks == 1 ? "n, the next power of two of at least 8. "
                                 : std::to_string(chunks) + " chunks of n, a power of two of at least 4. ") +
         "Butterflies (a, b) -> (a + b, a - b) in fp32, in the order of rising strides 1, 2, 4 ... n/2." + mixing +
         R"( The product with fl32(scale), one rounding to the type (nearest even). Budget: )" + depth +
         R"( units of 2^-24 of the sum of all |x| of the row, times |scale| (every element goes through as many additions, whose partial sums
together are never larger); 1 unit of |out| for the product; 2^-126 for each element that builds which flush denormals may lose. Rows
whose sum of finite |x| is beyond fp32 are not judged. Hopper mode: this order, denormals flushed.)";
}

}  // namespace dodona::ops
