// Texts continued token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/generate_state.h"
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
  /// Of speculative decoding with the NextN layer's drafts; upstream's speculative_num_steps, speculative_eagle_topk and
  /// speculative_num_draft_tokens. No steps: nothing is drafted.
  std::int64_t draft_steps = 0;
  std::int64_t draft_topk = 1;    ///< beams; with one the drafts are a chain, with more a tree
  std::int64_t draft_tokens = 0;  ///< that are verified in a step, the newest one counted; 0: draft_steps + 1

  /// Nodes of a tree.
  std::int64_t nodes() const { return draft_tokens > 0 ? draft_tokens : draft_steps + 1; }
};

/// One batch of requests from prompts to texts.
class Generation {
 public:
  /// Throws Error: bad_value for empty prompts, tokens beyond the vocabulary, prompts and new tokens beyond the positions; bad_value and
  /// unsupported as normalized() and NextnDraft do; unsupported for min_p with drafts, and for trees with sparse attention.
  /// `ranks` hold the other shards of the source: every one has the same request, or its own where `ranks.own_tokens`; these are
  /// unsupported with drafts. Their groups must outlive this. The NextN layer is sharded as the others are; of stages each runs it.
  Generation(const WeightSource& source, const LayerSetting& setting, const GenerateRequest& request, const Exec& exec,
             const Ranks& ranks = {});
  Generation(const Generation&) = delete;  // drafts know the model's place
  Generation& operator=(const Generation&) = delete;

  bool done() const;
  /// One round: a chunk of the prompts, a token of each request that is not finished, or a step of speculative decoding. `behind_layer` is
  /// told of every layer of the target; what it throws leaves the round, and texts() as they were before it. A plain round that was left
  /// goes on at the layer that it reached when it is asked for again; one with drafts is gone on from by its state().
  void round(const std::function<void(const LayerTiming&)>& behind_layer = {});

  /// Where ranks have requests of their own and this one's are done: a pass for the others, by a token that is nobody's.
  void idle();

  /// What the passes through the target's layers and the draft's are watched by, but for after_layer.
  void watch(LanguageModel::Hooks hooks) { model_.hooks = std::move(hooks); }

  /// New tokens of each request.
  const std::vector<std::vector<std::int64_t>>& texts() const { return texts_; }
  /// Passes through the layers that are still to come at most, and tokens of the next one.
  std::int64_t rounds_left() const;
  std::int64_t steps() const { return steps_; }
  std::int64_t accepted() const { return accepted_; }

  /// Texts, caches and, of a round that was left or is under way (it may be asked for behind a layer), the passes so far: from this another
  /// Generation of the same request goes on to the same texts, at the layer that was reached. Throws Error (bad_value, bad_shape) for the
  /// state of another request.
  GenerateState state() const;
  void resume(const GenerateState& state);

 private:
  std::int64_t total(std::size_t r) const;
  bool finished(std::size_t r) const;
  std::int64_t token_at(std::size_t r, std::int64_t i) const;
  void draw(const Tensor& hidden, const std::vector<std::size_t>& requests, const std::vector<std::int64_t>& rows);
  void step();
  SpeculativeSetting speculation() const;
  std::int64_t most_tokens() const;
  std::int64_t rows(std::size_t r) const;

  GenerateRequest request_;
  SamplingParams params_;
  Exec exec_;
  LanguageModel model_;
  std::vector<std::vector<std::int64_t>> texts_;
  std::vector<std::int64_t> cached_;
  std::optional<SpeculativeTarget> target_;
  std::optional<NextnDraft> draft_;
  std::optional<SpeculativeDecoder> decoder_;
  SpeculativeDecoder::State before_;  ///< the step that is under way; no texts before the first one
  std::int64_t steps_ = 0, accepted_ = 0;
};

}  // namespace dodona::model
