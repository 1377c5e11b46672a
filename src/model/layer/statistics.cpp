#include "model/layer/statistics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "quant/element.h"

namespace dodona::model {

Statistics statistics(const Tensor& tensor) {
  Statistics result;
  double sum = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  std::int64_t finite = 0;
  const std::int64_t n = tensor.elements(), columns = tensor.rank() > 0 ? tensor.size(-1) : 1;
  if (n == 0) return result;
  std::vector<double> row(static_cast<std::size_t>(columns));
  for (std::int64_t begin = 0; begin < n; begin += columns) {
    const auto* base = tensor.as<std::byte>() + bytes_for(tensor.dtype(), tensor.offset(begin));
    if (columns == 1 || tensor.stride(-1) == 1) {
      quant::to_f64(tensor.dtype(), base, row.data(), columns);
    } else {
      for (std::int64_t i = 0; i < columns; ++i) row[static_cast<std::size_t>(i)] = quant::get(tensor, begin + i);
    }
    for (const double value : row) {
      if (!std::isfinite(value)) {
        ++result.not_finite;
        continue;
      }
      least = value <= least ? value : least;
      most = value >= most ? value : most;
      sum += value * value;
      ++finite;
    }
  }
  if (finite == 0) return result;
  result.min = least;
  result.max = most;
  result.rms = std::sqrt(sum / static_cast<double>(finite));
  return result;
}

}  // namespace dodona::model
