// The judge `distribution`: are these draws of that distribution? For outputs whose stream is not known, so that no token can be replayed.
//
// Every test has a bound on how often it rejects draws that are right, for any number of them and any distribution; together they reject
// with at most the stated rate:
//   impossible   a draw of probability 0: never among right draws
//   cells        N * KL(frequencies || probabilities) over tokens, the rarest pooled: P(>= t) <= e^-t (e t / (K-1))^(K-1) for t > K-1
//   runs         counts of stretches of the vocabulary, halves, quarters and so on down to single tokens: P(N * KL >= t) <= 2 e^-t each
//   pairs        how often draws 2i and 2i+1 are equal: likewise. Right draws are independent; frequencies do not see a stream that repeats
// Sources: R. Agrawal, "Finite-sample concentration of the multinomial in relative entropy" (2020), theorem 1; H. Chernoff (1952).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// One test: how far its statistic reached, and from where on it rejects.
struct DrawsTest {
  std::string_view name;
  double statistic = 0, limit = 0;
  bool rejects = false;
  std::string worst;  ///< what reached that far
};

struct DrawsVerdict {
  std::int64_t draws = 0;
  std::int64_t impossible = 0;  ///< of probability 0
  std::vector<DrawsTest> tests;
  double alarm_rate = 0;
  bool passes() const;
};

/// `probabilities` add up to 1; draws are positions in them, any other number is impossible.
DrawsVerdict judge_draws(std::span<const double> probabilities, std::span<const std::int64_t> draws, double alarm_rate = 1e-9);
std::string to_string(const DrawsVerdict& verdict);

/// The exact distribution of the token of output row `row`, as the op's contract has it of its arguments. Throws Error: `unsupported` for
/// an op that draws nothing.
std::vector<double> distribution_of(const Op& op, const Arguments& inputs, std::int64_t row);

}  // namespace dodona::oracle
