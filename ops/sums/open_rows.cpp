#include "ops/sums/open_rows.h"

#include <cmath>

#include "core/threads.h"

namespace dodona::ops {
namespace {

void magnitudes(const Line& line, std::vector<double>& values) {
  values.resize(line.k);
  for (std::size_t k = 0; k < line.k; ++k) {
    const double number = line.integers.empty() ? line.values[k] : line.integers[k] * line.unit;
    values[k] = std::fabs(line.scales.empty() ? number : number * line.scales[k / line.block]);
  }
}

struct OpenNumber {
  std::size_t k;
  double open;
};

}  // namespace

std::vector<double> open_products(const double* open, std::int64_t rows, const Operand& b, const Exec& exec) {
  std::vector<double> sums(static_cast<std::size_t>(rows * b.count), 0.0);
  std::vector<std::vector<OpenNumber>> numbers(static_cast<std::size_t>(rows));
  double work = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < b.k; ++k)
      if (open[i * b.k + k] > 0)
        numbers[static_cast<std::size_t>(i)].push_back({static_cast<std::size_t>(k), open[i * b.k + k]}), work += 1;
  if (work == 0) return sums;
  const double rounded = 1.0 + 4.0 * static_cast<double>(b.k) * f32_eps;
  constexpr std::int64_t together = 16;
  parallel_for(exec.threads, (b.count + together - 1) / together, together * (work + static_cast<double>(b.k)), [&](std::int64_t group) {
    Line line;
    std::vector<double> column;
    for (std::int64_t j = group * together; j < std::min(b.count, (group + 1) * together); ++j) {
      decode_line(b, j, fp32_in_any_order, line);
      magnitudes(line, column);
      for (std::int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (const OpenNumber& number : numbers[static_cast<std::size_t>(i)])
          if (column[number.k] > 0) sum += number.open * column[number.k];
        sums[static_cast<std::size_t>(i * b.count + j)] = sum * rounded;
      }
    }
  });
  return sums;
}

}  // namespace dodona::ops
