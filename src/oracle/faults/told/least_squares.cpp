#include "oracle/faults/told/least_squares.h"

#include <cmath>

namespace dodona::oracle {

void LeastSquares::add(const std::vector<double>& terms, double right, double room) {
  const double weight = 1 / (room * room);
  for (std::size_t i = 0; i < n_; ++i) {
    const double scaled = weight * terms[i];
    right_[i] += scaled * right;
    for (std::size_t j = 0; j <= i; ++j) normal_[i * n_ + j] += scaled * terms[j];
  }
}

std::optional<LeastSquares::Solution> LeastSquares::solved() const {
  // The normal equations by Cholesky's factors, each unknown in its own unit.
  std::vector<double> unit(n_), lower(n_ * n_);
  for (std::size_t i = 0; i < n_; ++i) {
    if (!(normal_[i * n_ + i] > 0)) return std::nullopt;
    unit[i] = 1 / std::sqrt(normal_[i * n_ + i]);
  }
  constexpr double least_pivot = 1e-10;
  for (std::size_t i = 0; i < n_; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = normal_[i * n_ + j] * unit[i] * unit[j];
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n_ + k] * lower[j * n_ + k];
      if (i == j && !(sum > least_pivot)) return std::nullopt;
      lower[i * n_ + j] = i == j ? std::sqrt(sum) : sum / lower[j * n_ + j];
    }
  const auto forward = [&](std::vector<double>& y) {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t k = 0; k < i; ++k) y[i] -= lower[i * n_ + k] * y[k];
      y[i] /= lower[i * n_ + i];
    }
  };
  Solution found{std::vector<double>(n_), std::vector<double>(n_)};
  std::vector<double>& x = found.x;
  for (std::size_t i = 0; i < n_; ++i) x[i] = right_[i] * unit[i];
  forward(x);
  for (std::size_t i = n_; i-- > 0;) {
    for (std::size_t k = i + 1; k < n_; ++k) x[i] -= lower[k * n_ + i] * x[k];
    x[i] /= lower[i * n_ + i];
  }
  for (std::size_t i = 0; i < n_; ++i) {
    std::vector<double> column(n_);
    column[i] = 1;
    forward(column);
    double sum = 0;
    for (std::size_t k = i; k < n_; ++k) sum += column[k] * column[k];
    found.room[i] = std::sqrt(sum) * unit[i];
    x[i] *= unit[i];
  }
  return found;
}

}  // namespace dodona::oracle
