#include "model/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/normalization/log_softmax.h"
#include "ops/sampling/apply_token_bitmask_inplace_cuda.h"
#include "ops/sampling/min_p_sampling_from_probs.h"
#include "ops/sampling/softmax.h"
#include "ops/sampling/top_k_renorm_prob.h"
#include "ops/sampling/top_k_top_p_sampling_from_probs.h"
#include "ops/sampling/top_p_renorm_prob.h"

namespace dodona::model {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t whole_vocabulary = std::int64_t{1} << 30;

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void require(bool holds, const char* parameter, double value, const std::string& range) {
  if (!holds) throw Error(ErrorCode::bad_value, "", parameter, "is " + number_text(value) + ", expected " + range);
}

/// A tensor of one number for each request.
template <class T, class Of>
Tensor each_of(DType type, const std::vector<SamplingRequest>& batch, const Of& of) {
  Tensor tensor(type, {static_cast<std::int64_t>(batch.size())});
  for (std::size_t b = 0; b < batch.size(); ++b) tensor.as<T>()[b] = static_cast<T>(of(batch[b]));
  return tensor;
}

float log_of(double p) {
  return static_cast<float>(fixed::log(p));
}

void penalize(float* row, const SamplingRequest& request, std::int64_t vocabulary) {
  const SamplingParams& params = request.params;
  const auto frequency = static_cast<float>(params.frequency_penalty), presence = static_cast<float>(params.presence_penalty);
  std::map<std::int64_t, float> by_frequency;  // added up in fp32, one occurrence after the other
  for (const std::int64_t token : request.output) {
    require(token >= 0 && token < vocabulary, "output", static_cast<double>(token), "a token below " + std::to_string(vocabulary));
    by_frequency[token] += frequency;
  }
  for (const auto& [token, penalty] : by_frequency) {
    row[token] -= penalty;
    row[token] -= presence;
  }
  if (static_cast<std::int64_t>(request.output.size()) >= params.min_new_tokens) return;
  for (const std::int64_t token : params.stop_token_ids) row[token] += -infinity;
}

Tensor argmax(const Tensor& logits) {
  Tensor tokens(DType::i32, {logits.size(0)});
  const std::int64_t width = logits.size(1);
  for (std::int64_t b = 0; b < logits.size(0); ++b) {
    const float* row = logits.as<const float>() + b * width;
    tokens.as<std::int32_t>()[b] = static_cast<std::int32_t>(std::max_element(row, row + width) - row);
  }
  return tokens;
}

Tensor by_seeds(const Tensor& probs, const std::vector<SamplingRequest>& batch) {
  Tensor tokens(DType::i32, {probs.size(0)});
  const std::int64_t width = probs.size(1);
  for (std::size_t b = 0; b < batch.size(); ++b) {
    if (!batch[b].params.seed)
      throw Error(ErrorCode::unsupported, "", "seed",
                  "of request " + std::to_string(b) +
                      " is missing: without filters upstream draws by torch.multinomial, whose stream is not known");
    const float* row = probs.as<const float>() + static_cast<std::int64_t>(b) * width;
    tokens.as<std::int32_t>()[b] = static_cast<std::int32_t>(multinomial_with_seed(row, width, *batch[b].params.seed, batch[b].position));
  }
  return tokens;
}

/// Of each row the number at its token; log, and never below the least float, where it is not one already.
Tensor of_tokens(const Tensor& rows, const Tensor& tokens, bool take_log) {
  Tensor chosen(DType::f32, {rows.size(0)});
  for (std::int64_t b = 0; b < rows.size(0); ++b) {
    const float value = rows.as<const float>()[b * rows.size(1) + tokens.as<const std::int32_t>()[b]];
    chosen.as<float>()[b] = take_log ? std::max(log_of(static_cast<double>(value)), std::numeric_limits<float>::lowest()) : value;
  }
  return chosen;
}

}  // namespace

SamplingParams normalized(const SamplingParams& params, std::int64_t vocabulary) {
  constexpr double coldest = 1e-6;
  SamplingParams p = params;
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature, "a finite number from 0");
  if (p.temperature < coldest) {
    p.temperature = 1;
    p.top_k = 1;
  }
  if (p.top_k == -1) p.top_k = whole_vocabulary;
  require(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "above 0 and at most 1");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "0 to 1");
  require(p.top_k >= 1, "top_k", static_cast<double>(p.top_k), "-1 or at least 1");
  require(std::fabs(p.frequency_penalty) <= 2, "frequency_penalty", p.frequency_penalty, "-2 to 2");
  require(std::fabs(p.presence_penalty) <= 2, "presence_penalty", p.presence_penalty, "-2 to 2");
  require(p.min_new_tokens >= 0, "min_new_tokens", static_cast<double>(p.min_new_tokens), "0 or more");
  const auto token = [&](const char* parameter, std::int64_t id) {
    require(id >= 0 && id < vocabulary, parameter, static_cast<double>(id), "tokens below " + std::to_string(vocabulary));
  };
  for (const auto& [id, bias] : p.logit_bias) token("logit_bias", id);
  for (const std::int64_t id : p.stop_token_ids) token("stop_token_ids", id);
  return p;
}

void apply_logits_bias(const Tensor& logits, const std::vector<SamplingRequest>& batch, const Tensor& vocab_mask, const Exec& exec) {
  const std::int64_t width = logits.size(1);
  const auto row = [&](std::int64_t b) { return logits.as<float>() + b * logits.stride(0); };
  parallel_for(exec.threads, logits.size(0), 1024.0, [&](std::int64_t b) { penalize(row(b), batch[static_cast<std::size_t>(b)], width); });
  if (vocab_mask.defined()) ops::run(ops::ApplyTokenBitmaskInplaceCuda{.logits = logits, .bitmask = vocab_mask}, exec);
  for (std::size_t b = 0; b < batch.size(); ++b)
    for (const auto& [token, bias] : batch[b].params.logit_bias) row(static_cast<std::int64_t>(b))[token] += static_cast<float>(bias);
}

Draw draw_of(const std::vector<SamplingRequest>& batch) {
  const auto any = [&](const auto& holds) {
    return std::any_of(batch.begin(), batch.end(), [&](const SamplingRequest& request) { return holds(request.params); });
  };
  if (!any([](const SamplingParams& p) { return p.top_k > 1; })) return Draw::argmax;
  if (any([](const SamplingParams& p) { return p.min_p > 0; })) return Draw::min_p;
  return any([](const SamplingParams& p) { return p.top_p != 1 || p.top_k != whole_vocabulary; }) ? Draw::joint : Draw::plain;
}

Sampled sample(const Tensor& logits, const std::vector<SamplingRequest>& batch, const DrawStream& stream, const Exec& exec) {
  const Draw draw = draw_of(batch);
  Sampled sampled;
  // Ops without a mode of the GPU asked for are taken as exactly as there is.
  Exec exact = exec;
  if (of_a_gpu(exec.mode)) exact.mode = Mode::golden;
  if (draw == Draw::argmax) {
    sampled.tokens = argmax(logits);
    sampled.logprobs = of_tokens(ops::run(ops::LogSoftmax{.input = logits}, exact).output, sampled.tokens, false);
    return sampled;
  }
  const Tensor temperatures = each_of<float>(DType::f32, batch, [](const SamplingRequest& r) { return r.params.temperature; });
  const Tensor top_p = each_of<float>(DType::f32, batch, [](const SamplingRequest& r) { return r.params.top_p; });
  const Tensor top_k = each_of<std::int32_t>(DType::i32, batch, [](const SamplingRequest& r) { return r.params.top_k; });
  sampled.probs = ops::run(ops::Softmax{.logits = logits, .temperature_arr = temperatures}, exact).probs;
  if (draw == Draw::plain) {
    sampled.tokens = by_seeds(sampled.probs, batch);
  } else if (draw == Draw::joint) {
    sampled.tokens = ops::run(ops::TopKTopPSamplingFromProbs{.probs = sampled.probs,
                                                             .top_k_arr = top_k,
                                                             .top_p_arr = top_p,
                                                             .filter_apply_order = "joint",
                                                             .philox_seed = stream.seed,
                                                             .philox_offset = stream.offset},
                              exec)
                         .samples;
  } else {
    const Tensor min_p = each_of<float>(DType::f32, batch, [](const SamplingRequest& r) { return r.params.min_p; });
    sampled.probs = ops::run(ops::TopKRenormProb{.probs = sampled.probs, .top_k_arr = top_k}, exec).renorm_probs;
    sampled.probs = ops::run(ops::TopPRenormProb{.probs = sampled.probs, .top_p_arr = top_p}, exec).renorm_probs;
    sampled.tokens = ops::run(
                         ops::MinPSamplingFromProbs{
                             .probs = sampled.probs, .min_p_arr = min_p, .philox_seed = stream.seed, .philox_offset = stream.offset},
                         exec)
                         .samples;
  }
  sampled.logprobs = of_tokens(sampled.probs, sampled.tokens, true);
  return sampled;
}

std::uint32_t seeded_bits(std::int32_t seed, std::int64_t position, std::int64_t column) {
  // The seed is hashed in 32 bits, what follows in 64, both with wrap-around.
  const auto first = static_cast<std::int32_t>(static_cast<std::uint32_t>(seed) * 19349663u);
  const auto step = static_cast<std::uint64_t>(static_cast<std::int64_t>(first)) ^ (static_cast<std::uint64_t>(position) * 73856093u);
  const std::uint64_t hashed = (step * 8589934591u) ^ (static_cast<std::uint64_t>(column) * 479001599u);
  return static_cast<std::uint32_t>(hashed & 0xFFFFFFu);
}

std::int64_t multinomial_with_seed(const float* probs, std::int64_t columns, std::int32_t seed, std::int64_t position) {
  constexpr float epsilon = 1e-10f;
  std::int64_t best = 0;
  float most = -infinity;
  for (std::int64_t column = 0; column < columns; ++column) {
    const float u = std::clamp(static_cast<float>(seeded_bits(seed, position, column)) * 0x1p-24f, epsilon, 1.0f);
    const float noise = -log_of(static_cast<double>(-log_of(static_cast<double>(u))));
    const float score = log_of(static_cast<double>(probs[column] + epsilon)) + noise;
    if (score > most) {
      most = score;
      best = column;
    }
  }
  return best;
}

}  // namespace dodona::model
