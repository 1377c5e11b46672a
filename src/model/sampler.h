// From logits to tokens as SGLang's Sampler composes it: penalties, mask and bias on the logits, temperature and softmax, then the draw
// that the batch's requests ask for together. What upstream has kernels for are ops; the rest, torch code there, is here, in fp32 as torch
// rounds. Source: sglang `sampling_params.py`, `sampling_batch_info.py`, `penaltylib/`, `layers/sampler.py`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"

namespace dodona::model {

/// What one request asks for. `repetition_penalty` is a parameter upstream too, which nothing there reads.
struct SamplingParams {
  double temperature = 1.0, top_p = 1.0, min_p = 0.0;
  std::int64_t top_k = -1;
  double frequency_penalty = 0.0, presence_penalty = 0.0;
  std::int64_t min_new_tokens = 0;
  std::set<std::int64_t> stop_token_ids;  ///< with the end of the sequence: barred while the output is shorter than that
  std::vector<std::pair<std::int64_t, double>> logit_bias = {};
  std::optional<std::int32_t> seed;  ///< for draws by seed and position
};

/// The parameters as upstream keeps them: a temperature below 1e-6 is 1 with top_k = 1, top_k = -1 is 2^30. Throws Error (bad_value) naming
/// the parameter that is out of range for `vocabulary` tokens.
SamplingParams normalized(const SamplingParams& params, std::int64_t vocabulary);

/// A request of the batch.
struct SamplingRequest {
  SamplingParams params;
  std::vector<std::int64_t> output;  ///< tokens generated so far, without the prompt
  std::int64_t position = 0;         ///< of the token whose logits these are
};

/// logits [B, V] f32, changed in place: less frequency_penalty for each time a token stands in the output and presence_penalty where it
/// does, -infinity for stop tokens while the output is shorter than min_new_tokens; the mask (i32 [B, ceil(V/32)], undefined for none);
/// plus logit_bias.
void apply_logits_bias(const Tensor& logits, const std::vector<SamplingRequest>& batch, const Tensor& vocab_mask, const Exec& exec);

/// Which draw the requests of a batch ask for: all of them get the same.
enum class Draw {
  argmax,  ///< every top_k is at most 1: the lowest index of equals; temperatures are not looked at
  plain,   ///< no request filters: multinomial, or by seed and position
  joint,   ///< top_k_top_p_sampling_from_probs, filters applied together
  min_p,   ///< some request has min_p: top_k_renorm_prob, top_p_renorm_prob, min_p_sampling_from_probs
};
Draw draw_of(const std::vector<SamplingRequest>& batch);

/// The stream of the batch's draw.
struct DrawStream {
  std::int64_t seed = 0, offset = 0;
};

struct Sampled {
  Tensor tokens;  ///< i32 [B]
  Tensor probs;   ///< f32 [B, V]: what the token was drawn from, after temperature, and after the filters in a draw by min_p; undefined by
                  ///< argmax
  Tensor logprobs;  ///< f32 [B]: of the tokens, at least the least float; from log_softmax by argmax
};
/// Parameters are normalized ones. Where no request filters, each must have a seed: torch.multinomial's own stream is not offered.
Sampled sample(const Tensor& logits, const std::vector<SamplingRequest>& batch, const DrawStream& stream, const Exec& exec);

/// The draw by seed and position: u of 24 bits from a hash of seed, position and column; the column of the largest
/// log(p + 1e-10) - log(-log u), the first of equals. Columns of probability 0 have 1e-10, and may come out.
std::int64_t multinomial_with_seed(const float* probs, std::int64_t columns, std::int32_t seed, std::int64_t position);
/// The 24 bits.
std::uint32_t seeded_bits(std::int32_t seed, std::int64_t position, std::int64_t column);

}  // namespace dodona::model
