// Scores and weights of attention in golden mode, and how far those of an honest kernel may be off.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dodona/dtype.h"
#include "ops/base/bounded.h"

namespace dodona::ops {

/// How far scores of honest kernels lie from the exact ones.
struct ScoreErrors {
  double relative;         ///< to sum |q * k|
  double absolute = 0;     ///< beside that, before the scale
  double limit = 0x1p126;  ///< nothing is compared where sum |q * k| comes near it
  /// What roundings inside the sum of this very key may add up to; nullptr: nothing beside the above.
  double (*of_key)(const double* query, const double* key, std::int64_t width) = nullptr;

  /// fp32 sums of `width` products: additions in any order, or steps of 16 products whose addends are cut at 25 bits; each may be flushed.
  static ScoreErrors of_fp32(std::int64_t width) {
    return {static_cast<double>(width) * 0x1p-24, static_cast<double>(width) * flush_floor};
  }
  /// The same of kernels that round the largest score before it is taken from a fused product, so that weights exceed 1 by 2 to the power
  /// of its rounding, which overflows their type, or fp32, for very large scores.
  static ScoreErrors of_rounded_maximum(std::int64_t width, DType weights, double scale);
};

/// What the fp8 tensor core's steps may lose of q . k, elements in their order: a bound of ScoreErrors::of_key.
double lost_by_fp8_steps(const double* query, const double* key, std::int64_t width);

/// What weights are rounded to for their products with the values; f32: not at all.
struct WeightTypes {
  DType type;
  std::int64_t cached = 0;  ///< so many weights at the beginning are rounded to cached_type
  DType cached_type = DType::f32;
};

/// How far the caps of kernels are off, relative to the cap. Made as 2 / (1 + exp(-2 x)) - 1 in fp32, exp (2^-21), sum, division (2^-22)
/// and difference move the result by less than 2^-20; by the approximate instruction, 2^-11 as documented and the roundings about it.
inline constexpr double cap_of_exponentials = 0x1.4p-20, cap_of_instruction = 0x1.01p-11;

/// What sums q . k become before the softmax.
struct ScoreMap {
  double scale;
  double cap = 0;          ///< not 0: scores scale * z become cap * tanh(scale * z / cap)
  double temperature = 1;  ///< what they are multiplied with at last
  double cap_error = cap_of_exponentials;

  double operator()(double z) const;
  /// A bound of its slope.
  double slope() const { return std::fabs(scale) * temperature; }
  /// How far the score is off where z is off by `error`.
  double reach(double z, double error) const;
  /// What fp32 adds to its error: the cap's functions and the temperature's logarithm.
  double error(double score) const;
};

/// One head of one row: its weights and what the contract leaves open of them.
struct HeadWeights {
  double sink = -std::numeric_limits<double>::infinity();  ///< a score whose value is 0, as it is: neither capped nor tempered
  bool sink_leads = false;                                 ///< kernels may take it into the maximum that weights are rounded about
  std::vector<double> z, error;                            ///< sums q . k, and how far those of honest kernels are off
  std::vector<double> p;                                   ///< exact weights, adding up to 1 with that of the sink
  double heaviest = 0;                                     ///< of them; when bounded
  std::vector<double> most;   ///< the largest weights that erroneous scores give; this and the next three when bounded
  std::vector<double> drift;  ///< how far erroneous scores move weights
  std::vector<double> lost;   ///< what the rounding of weights for their products takes or adds
  double sink_drift = 0;      ///< of the sink's weight
  double empty_terms = 0;     ///< a mistake of kernels: so many scores more that have no value
  double empty_score = 0;     ///< of those
  bool overflows = false;     ///< what was not shifted left fp32: there is nothing to bound
  Bounded lse;                ///< base 2, the sink among the scores; open where scores may overflow fp32
  Bounded largest_score;      ///< base 2, of the keys; open as lse, and where a score is NaN

  /// The next key: sum and sum of magnitudes of q * k, and what roundings inside the sum and errors of the operands add up to.
  void add_key(double sum, double magnitudes, double rounding, const ScoreMap& map, const ScoreErrors& errors);
  bool has_sink() const { return sink > -std::numeric_limits<double>::infinity(); }
  /// p and lse of the keys so far: p[j] = exp(map(z[j]) - max) / sum; not `shifted`, a mistake of kernels: exp(map(z[j])) / sum in fp32.
  void softmax(const ScoreMap& map, bool shifted = true);

  bool bounded() const { return !drift.empty(); }
  /// Fills `most`, `drift`, `lost` and the slack of lse and largest_score, unless nothing is compared. Weights are rounded for their
  /// products relative to the largest, or where `normalised` after their division by the sum so far. `of_rounded`: lse may be of the sum of
  /// the rounded weights.
  void bound(const ScoreMap& map, const WeightTypes& types, bool normalised, bool of_rounded);
};

}  // namespace dodona::ops
