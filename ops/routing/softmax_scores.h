// Softmax of router logits in golden mode, and where the scores of an honest kernel may lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/base/bounded.h"
#include "ops/routing/order.h"
#include "ops/routing/scores.h"

namespace dodona::ops {

/// A logit as the softmax takes it: cap * tanh(x / cap) unless cap is 0, plus bias. `tanh.approx` has a relative error of 2^-11; the
/// quotient, the product and the sum are rounded (2, 1 and 1 units in the last place). Without a cap all implementations have one number.
Bounded softmax_logit(float x, float cap, float bias);

/// exp(x - max) of the experts of a row.
class SoftmaxScores {
 public:
  /// `shifted` false: exp(x) in fp32, a mistake of kernels.
  explicit SoftmaxScores(std::span<const Bounded> logits, bool shifted = true);

  /// Whether the row has a softmax: no NaN, no +inf, something above -inf.
  bool defined() const { return defined_; }
  /// The share of expert e in the sum of all.
  double share(std::size_t e) const { return scores_.exact[e] / scores_.sum; }
  Bounded weight(std::size_t e) const { return scores_.weight(e); }
  /// Where its share lies, but for the factor that all experts of the row have in common. Zero where it certainly underflows.
  Interval key(std::size_t e) const;
  /// Shares of the chosen experts, over the sum of those.
  std::vector<Bounded> renormalized(std::span<const std::int64_t> chosen) const;

 private:
  ChosenScores scores_;
  bool defined_ = true;
};

}  // namespace dodona::ops
