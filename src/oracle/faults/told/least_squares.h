// Numbers that fit many equations best.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace dodona::oracle {

/// Equations sum over j of terms[j] * x[j] = right, each as exact as `room` says.
class LeastSquares {
 public:
  explicit LeastSquares(std::size_t unknowns) : n_(unknowns), normal_(unknowns * unknowns), right_(unknowns) {}
  void add(const std::vector<double>& terms, double right, double room);

  struct Solution {
    std::vector<double> x;
    std::vector<double> room;  ///< how far each may be off where equations are off by theirs
  };
  /// Nothing where the equations do not tell the unknowns apart.
  std::optional<Solution> solved() const;

 private:
  std::size_t n_;
  std::vector<double> normal_, right_;
};

}  // namespace dodona::oracle
