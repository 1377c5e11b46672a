#include "ops/sums/products.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "ops/sums/lines_together.h"

namespace dodona::ops {
namespace {

constexpr double largest_f32 = std::numeric_limits<float>::max();
constexpr std::int64_t most_lines = 64;  // decoded at a time

struct FactorValue {
  float value;
  bool may_flush;
};
FactorValue value_of(const Factor& factor, std::int64_t i, std::int64_t j) {
  const double a = factor.a.at(i, j), b = factor.b.at(i, j);
  const auto product = static_cast<float>(a * b);
  return {product, may_flush(a) || may_flush(b) || may_flush(product)};
}

/// Whether a finite number may be infinite in fp32, and whether it is so for every honest implementation.
bool leaves_fp32(const Bounded& x) {
  return std::isfinite(x.exact) && std::fabs(x.exact) + x.slack > largest_f32;
}
bool stays_beyond_fp32(const Bounded& x) {
  return std::fabs(x.exact) - x.slack > largest_f32;
}

Bounded with_addend(const Epilogue& epilogue, const Bounded& x, std::int64_t i, std::int64_t j) {
  const auto [value, flushable] = value_of(epilogue.addend, i, j);
  const double addend = epilogue.subtract ? -value : value;
  // Where the addend is a product, fused implementations round it not at all.
  const bool product = epilogue.addend.b.data != nullptr;
  const double rounded = flushable ? 1.0 : product ? f32_eps : 0.0;
  // A tensor core's step cuts both addends below 2^-25 of the larger one, and their sum where an addition would round it.
  const double cut = epilogue.starts ? f32_eps * (std::fabs(x.exact + addend) + std::max(std::fabs(x.exact), std::fabs(addend))) : 0.0;
  Bounded sum = rounded_f32(x + Bounded{addend, std::fabs(addend) * rounded + cut});
  sum.open = sum.open || (leaves_fp32(x) && (std::isinf(addend) || !stays_beyond_fp32(sum)));
  return sum;
}

Bounded finished(const Epilogue& epilogue, Bounded x, std::int64_t i, std::int64_t j) {
  double together = 1;
  const auto times = [&](const Factor& factor) {
    const FactorValue by = value_of(factor, i, j);
    const bool nothing_or_infinity = by.may_flush && std::isinf(x.exact);
    // What is infinite in fp32 no factor makes a number again.
    const bool overflowed = leaves_fp32(x);
    x = scaled_f32(x, by.value, by.may_flush);
    x.open = x.open || nothing_or_infinity || (overflowed && (by.may_flush || !stays_beyond_fp32(x)));
    together *= std::isfinite(by.value) ? static_cast<double>(by.value) : 0.0;
  };
  for (std::size_t n = 0; n < epilogue.factors.size(); ++n) {
    times(epilogue.factors[n]);
    // A product that the next factor makes larger may be flushed before.
    if (n + 1 < epilogue.factors.size() && may_flush(x.exact)) x = x.widened(std::fabs(x.exact));
  }
  if (epilogue.factors.size() > 1) {
    // Kernels that multiply the factors with each other first.
    if (may_flush(together)) x = x.widened(std::fabs(x.exact));
    x.open = x.open || (std::fabs(together) > largest_f32 && !stays_beyond_fp32(x));
  }
  if (epilogue.addend.a.data != nullptr) x = with_addend(epilogue, epilogue.narrowed ? rounded_to(*epilogue.narrowed, x) : x, i, j);
  if (epilogue.last.data != nullptr) times({epilogue.last, {}});
  return x;
}

}  // namespace

Term whole_term(const Tensor& scalar) {
  return {scalar.dtype(), scalar.data()};
}
Term row_term(const Tensor& vector) {
  return {vector.dtype(), vector.data(), vector.stride(0), 0};
}
Term column_term(const Tensor& vector) {
  return {vector.dtype(), vector.data(), 0, vector.stride(0)};
}

Tensor batch_of_one(const Tensor& matrix) {
  return {matrix.owner(),   matrix.data(), matrix.dtype(), {1, matrix.size(0), matrix.size(1)}, {0, matrix.stride(0), matrix.stride(1)},
          matrix.writable()};
}

std::vector<Product> batched_products(const Tensor& a, const Tensor& b, const Epilogue& epilogue) {
  const auto matrix = [](const Tensor& t, std::int64_t batch) {
    return static_cast<const std::byte*>(t.data()) + batch * t.stride(0) * bits(t.dtype()) / 8;
  };
  // A dimension of one element has any stride.
  const bool dense = a.size(2) == 1;
  std::vector<Product> products;
  for (std::int64_t l = 0; l < a.size(0); ++l)
    products.push_back({.a = {a.dtype(), matrix(a, l), a.size(1), a.size(2), a.stride(1), dense ? 1 : a.stride(2), {}, {}},
                        .b = {b.dtype(), matrix(b, l), b.size(2), b.size(1), b.stride(2), dense ? 1 : b.stride(1), {}, {}},
                        .epilogue = epilogue,
                        .first = l * a.size(1) * b.size(2)});
  return products;
}

void golden_products(std::span<const Product> products, const Accumulator& model, const GoldenOutput& out, bool judged, const Exec& exec) {
  Accumulator accumulator = model;
  // Without slack the sum is the same and wants less of its operands.
  const bool in_order = model.unit != nullptr && model.unit->reading == quant::tensor_core::MmaReading::as_they_are;
  if (!judged && model.order == Order::steps && in_order) accumulator.order = Order::any;
  for (const Product& p : products) {
    // The side with more lines is taken several lines together: products have no sides.
    const bool turned = p.a.count < lines_together && p.a.count < p.b.count;
    const Operand &lines = turned ? p.b : p.a, &columns = turned ? p.a : p.b;
    const auto put_some = [&](std::int64_t first, int threads) {
      std::vector<Line> some(static_cast<std::size_t>(std::min(most_lines, lines.count - first)));
      for (std::size_t i = 0; i < some.size(); ++i) decode_line(lines, first + static_cast<std::int64_t>(i), accumulator, some[i]);
      const LinesTogether together(accumulator, some, judged, exec.isa);
      // Some runs of columns for each thread; a run has one room for its columns.
      const std::int64_t runs = std::min(columns.count, std::max<std::int64_t>(columns.count / 16, 8 * threads));
      const std::int64_t of_run = columns.count / runs;
      const double cost = static_cast<double>(some.size()) * static_cast<double>(lines.k * of_run);
      parallel_for(threads, runs, cost, [&](std::int64_t run) {
        Line column;
        std::vector<Bounded> sums(some.size());
        for (std::int64_t j = columns.count * run / runs; j < columns.count * (run + 1) / runs; ++j) {
          decode_line(columns, j, accumulator, column);
          together.sums_with(column, sums);
          for (std::size_t i = 0; i < some.size(); ++i) {
            const std::int64_t line = first + static_cast<std::int64_t>(i), row = turned ? j : line, of_row = turned ? line : j;
            out.put(p.place(row, of_row), finished(p.epilogue, sums[i], row, of_row));
          }
        }
      });
    };
    if (columns.count == 0) continue;
    const std::int64_t blocks = (lines.count + most_lines - 1) / most_lines;
    if (turned) {
      const double cost = static_cast<double>(most_lines * columns.count * lines.k);
      parallel_for(exec.threads, blocks, cost, [&](std::int64_t block) { put_some(block * most_lines, 1); });
    } else {
      for (std::int64_t block = 0; block < blocks; ++block) put_some(block * most_lines, exec.threads);
    }
  }
}

void golden_products(std::span<const Product> products, const Accumulator& accumulator, const Tensor& out, Reference* reference,
                     std::string_view output, const Exec& exec) {
  const GoldenOutput golden(out, reference, output);
  golden.make_open();
  golden_products(products, accumulator, golden, reference != nullptr, exec);
}

}  // namespace dodona::ops
