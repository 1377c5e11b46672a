// Texts continued token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "model/sampler.h"
#include "model/speculative.h"

namespace dodona::model {

struct GenerateRequest {
  std::vector<std::vector<std::int64_t>> prompts;
  std::int64_t max_new = 16;     ///< tokens of each at most
  SamplingParams sampling = {};  ///< of each; see sampler.h. A temperature of 0 is greedy
  std::int32_t seed = 0;         ///< of the draws: request r draws from seed + r
  std::int64_t end_token = -1;   ///< behind which a request is finished; -1: none
  std::int64_t chunk = 512;      ///< tokens of the prompts that go through the layers together at most
  std::int64_t draft_steps = 0;  ///< drafted by the NextN layer in each step of speculative decoding; 0: none is drafted
};

/// A position in the text: what --resume goes on from.
struct GenerateState {
  std::vector<std::vector<std::int64_t>> texts;  ///< new tokens of each request
  std::vector<std::int64_t> cached;              ///< tokens of each, the prompt's among them, whose rows are there
  std::vector<Tensor> rows;                      ///< of each, see LanguageModel::cached
};

/// One batch of requests from prompts to texts.
class Generation {
 public:
  /// Throws Error: bad_value for empty prompts, tokens beyond the vocabulary, prompts and new tokens beyond the positions; bad_value and
  /// unsupported as normalized() and NextnDraft do; unsupported for min_p with drafts.
  Generation(const WeightSource& source, const LayerSetting& setting, const GenerateRequest& request, const Exec& exec);

  bool done() const;
  /// One round: a chunk of the prompts, a token of each request that is not finished, or a step of speculative decoding. `behind_layer` is
  /// told of every layer of the target; what it throws leaves the round, and texts() as they were before it.
  void round(const std::function<void(const LayerTiming&)>& behind_layer = {});

  /// What the passes through the target's layers are watched by, but for after_layer.
  void watch(LanguageModel::Hooks hooks) { model_.hooks = std::move(hooks); }

  /// New tokens of each request.
  const std::vector<std::vector<std::int64_t>>& texts() const { return texts_; }
  /// Passes through the layers that are still to come at most, and tokens of the next one.
  std::int64_t rounds_left() const;
  std::int64_t steps() const { return steps_; }
  std::int64_t accepted() const { return accepted_; }

  /// Of plain decoding: texts and caches, from which another Generation of the same request goes on to the same texts.
  GenerateState state() const;
  void resume(const GenerateState& state);

 private:
  std::int64_t total(std::size_t r) const;
  bool finished(std::size_t r) const;
  std::int64_t token_at(std::size_t r, std::int64_t i) const;
  void draw(const Tensor& hidden, const std::vector<std::size_t>& requests, const std::vector<std::int64_t>& rows);
  void step();

  GenerateRequest request_;
  SamplingParams params_;
  Exec exec_;
  LanguageModel model_;
  std::vector<std::vector<std::int64_t>> texts_;
  std::vector<std::int64_t> cached_;
  std::optional<SpeculativeTarget> target_;
  std::optional<NextnDraft> draft_;
  std::optional<SpeculativeDecoder> decoder_;
  std::int64_t steps_ = 0, accepted_ = 0;
};

/// The state as a file's tensors and back; `key` names what made it, and another is refused. Throws Error (bad_file, bad_value).
void write_state(const std::string& path, const GenerateState& state, const std::string& key);
GenerateState read_state(const std::string& path, const std::string& key);

}  // namespace dodona::model
