// What the ops that draw one token for each output row share: rows and their streams, the four modes' loops, what is accepted of the
// outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dodona/op.h"
#include "ops/draws/renorm.h"
#include "ops/draws/rounds.h"

namespace dodona::ops {

/// How the token of one output row is drawn: by rejection, or once among the elements of at least `min_p` times the largest.
struct RowRule {
  Acceptance accepts = {};
  std::optional<float> min_p = {};
  std::optional<Cut> top_k_first = {};  ///< the row is cut and renormalised before
};

/// One call. Output row b draws from row indices[b] of probs (b where there are no indices) with subsequence b of the stream.
struct Sampling {
  const Tensor &probs, &indices, &samples;
  std::uint64_t seed, offset;
  bool deterministic = true;
  std::vector<RowRule> rules;  ///< of output rows

  std::int64_t source(std::int64_t b) const;
};

/// Mistakes of such kernels.
enum class SamplingMistake {
  none,
  one_subsequence,  ///< all rows draw with the numbers of the first
  mass_left_whole,
};

void golden_samples(const Sampling& call, const Exec& exec, Reference* reference, SamplingMistake mistake = SamplingMistake::none);
void condition_samples(const Sampling& actual, const Exec& exec, Reference& reference);
/// Row b's token is one that min_p may draw where a NaN hides the largest probability.
bool may_be_behind_nan(const Sampling& actual, std::int64_t b);
void fast_samples(const Sampling& call, const Exec& exec);
void hopper_samples(const Sampling& call, const Exec& exec);

/// Of a threshold that is one number, or a tensor with a number for each row.
float threshold_of(const Tensor& each, double all, std::int64_t row);
std::uint32_t count_of(const Tensor& each, std::int64_t all, std::int64_t row);

/// Throws unless there is one output row for each of the indices, or of probs where there are none.
void require_rows(const Tensor& probs, const Tensor& indices, const Tensor& samples);
/// Gives the samples their rows where the caller has not.
void make_samples(const Tensor& probs, const Tensor& indices, Tensor& samples);
/// Throws where a threshold keeps nothing: upstream's kernel would look for ever.
void require_positive(const Tensor& each, double all, const char* name);

}  // namespace dodona::ops
