#include "ops/rows/sums/weighted_rows.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/rows.h"
#include "ops/rows/sums/sum_rows.h"
#include "ops/rows/sums/term_sums.h"

namespace dodona::ops {
namespace {

double cost_of_token(const WeightedRows& sums) {
  return static_cast<double>(sums.slots() * sums.rows.size(1));
}

/// The rows of one token that there are, and their weights.
struct Terms {
  std::vector<std::int32_t> rows;
  std::vector<float> weights;
};
Terms terms_of(const WeightedRows& sums, std::int64_t token) {
  Terms terms;
  for (std::int64_t i = token * sums.slots(); i < (token + 1) * sums.slots(); ++i)
    if (const auto at = static_cast<std::size_t>(i); sums.row_of[at] >= 0) {
      terms.rows.push_back(static_cast<std::int32_t>(sums.row_of[at]));
      terms.weights.push_back(sums.weights[at]);
    }
  return terms;
}

/// One element's sum in fp32.
struct Sum {
  double sum = 0, magnitude = 0, lost = 0;  ///< magnitude: of the finite terms

  void add(double weight, double x) {
    const double term = weight * x;
    sum += term;
    if (std::isfinite(term)) magnitude += std::fabs(term);
    // A factor that is denormal may be flushed with all of its product.
    if (is_denormal(weight) || is_denormal(x)) lost += std::fabs(term);
  }
  Bounded scaled(double rows, double scale) const {
    const double roundings = 2.0 * rows + (scale != 1 ? 1 : 0);
    const double flushed = magnitude > 0 && magnitude < 0x1p-90 ? 2.0 * rows * flush_floor : 0.0;
    // Beside an infinity such sums may be the other one.
    const bool open = magnitude * (1.0 + roundings * f32_eps) > std::numeric_limits<float>::max() || (!std::isfinite(sum) && lost != 0);
    return {sum * scale, (magnitude * roundings * f32_eps + flushed + lost) * std::fabs(scale), open};
  }
};

/// sum + weight * x rounded to odd in double, so that a second rounding is that of the exact number.
double sum_rounded_to_odd(double sum, double product) {
  const double total = sum + product;
  if (!std::isfinite(total)) return total;
  const double back = total - sum, error = (sum - (total - back)) + (product - back);
  if (error == 0 || (std::bit_cast<std::uint64_t>(total) & 1) != 0) return total;
  return std::nextafter(total, error > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
}

}  // namespace

void WeightedRows::add(std::int64_t row, double weight) {
  row_of.push_back(row < 0 ? -1 : row);
  weights.push_back(static_cast<float>(rounded_between ? quant::round_to(rows.dtype(), weight) : weight));
}

void WeightedRows::require_rows() const {
  for (std::size_t i = 0; i < row_of.size(); ++i)
    if (row_of[i] >= rows.size(0))
      throw Error(ErrorCode::bad_value, "", rows_from,
                  "holds " + std::to_string(row_of[i]) + " at element " + std::to_string(i) + ", expected a row below " +
                      std::to_string(rows.size(0)));
}

void golden_weighted_rows(const WeightedRows& sums, const GoldenOutput& out, const Exec& exec, WeightedRowsMistake mistake) {
  const std::int64_t width = sums.rows.size(1);
  const DType type = sums.rows.dtype();
  const double scale = mistake == WeightedRowsMistake::scale_left_out ? 1.0 : static_cast<double>(sums.scale);
  parallel_for(exec.threads, sums.output.size(0), cost_of_token(sums), [&](std::int64_t t) {
    const Terms terms = terms_of(sums, t);
    std::vector<double> x(static_cast<std::size_t>(width)), rounded(x.size(), 0.0);
    std::vector<Sum> exact(x.size());
    for (std::size_t j = 0; j < terms.rows.size(); ++j) {
      quant::to_f64(type, row_begin(sums.rows, terms.rows[j], bits(type) / 8), x.data(), width);
      const double weight = mistake == WeightedRowsMistake::weights_left_out ? 1.0 : static_cast<double>(terms.weights[j]);
      for (std::size_t d = 0; d < x.size(); ++d) {
        if (sums.rounded_between) {
          rounded[d] = quant::round_to(type, sum_rounded_to_odd(rounded[d], weight * x[d]));
        } else {
          exact[d].add(weight, x[d]);
        }
      }
    }
    for (std::size_t d = 0; d < x.size(); ++d) {
      const Bounded sum = sums.rounded_between ? Bounded{rounded[d]} : exact[d].scaled(static_cast<double>(terms.rows.size()), scale);
      out.put(t * width + static_cast<std::int64_t>(d), sum);
    }
  });
}

void add_weighted_rows(const WeightedRows& sums, const Exec& exec) {
  const DType type = sums.rows.dtype();
  const int element_bytes = bits(type) / 8;
  parallel_for(exec.threads, sums.output.size(0), cost_of_token(sums), [&](std::int64_t t) {
    const Terms terms = terms_of(sums, t);
    dispatch<SumRowsKernel>(exec.isa, SumRows{.input = sums.rows.data(),
                                              .row_bytes = sums.rows.stride(0) * element_bytes,
                                              .permutation = terms.rows.data(),
                                              .factors = terms.weights.data(),
                                              .scale = sums.rounded_between ? 1.0f : sums.scale,
                                              .output = row_begin_mutable(sums.output, t, element_bytes),
                                              .count = static_cast<std::int64_t>(terms.rows.size()),
                                              .n = sums.rows.size(1),
                                              .type = type,
                                              .writing = Writing::cached,
                                              .rounded_between = sums.rounded_between});
  });
}

}  // namespace dodona::ops
