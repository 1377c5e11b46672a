// A whole model over tokens: embedding, every layer, final norm, head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/token_model.h"

namespace dodona::model {

/// Tokens of a request behind its first `begin`, which are in the cache.
struct Extension {
  std::int64_t request = 0, begin = 0;
  std::span<const std::int64_t> tokens;
};

/// The setting with what does not depend on how many tokens go together.
LayerSetting for_any_company(LayerSetting setting);

/// Every token goes through the absorbed form of attention and through kernels that do not depend on how many go with it, so what a token
/// gives depends on the tokens before it alone: not on how a prompt is cut, on the other requests, on threads or tier. Upstream's
/// deterministic mode does likewise. Weights are streamed: two layers' in memory at most, the head in parts.
class LanguageModel {
 public:
  /// Caches of capacities[r] tokens of request r. The source must outlive this. Throws Error as PagedKvCache does, and unsupported for a
  /// head that is no bf16.
  LanguageModel(const WeightSource& source, const LayerSetting& setting, const Exec& exec, std::span<const std::int64_t> capacities);

  const ModelConfig& config() const { return source_->config(); }
  std::int64_t capacity(std::int64_t request) const { return capacities_[static_cast<std::size_t>(request)]; }

  /// Hidden states after the final norm [T, H] of all those tokens, in order; their rows are in the caches then. One extension of a request
  /// at most. Throws Error (bad_value) for tokens beyond the vocabulary and for more of them than the caches hold.
  Tensor forward(std::span<const Extension> extensions);
  /// f32 [S, V], rounded to bf16 before as upstream's head does.
  Tensor logits(const Tensor& hidden) const;

  /// What is told of a pass; each may be empty.
  struct Hooks {
    std::function<void(const LayerTiming&)> after_layer;           ///< may throw, which leaves the pass
    std::function<void(std::int64_t layer, Trace&)> before_layer;  ///< to observe it
    std::function<void(std::int64_t layer, const Trace&)> traced;  ///< behind it
    std::function<void(const OpRecord&)>
        outer;  ///< self.embed_tokens(), self.norm(), self.lm_head(): kernels by name, the last one in parts
  };
  Hooks hooks = {};

  /// Rows of the caches that hold `tokens` tokens of a request, [layers, tokens, row]; and what puts them back.
  Tensor cached(std::int64_t request, std::int64_t tokens) const;
  void restore(std::int64_t request, const Tensor& rows);

  const WeightSource& source() const { return *source_; }
  const LayerSetting& setting() const { return setting_; }
  const Exec& exec() const { return exec_; }
  /// Of tokens, [T, H].
  Tensor embeddings(std::span<const std::int64_t> tokens) const;

 private:
  Tensor head(const Tensor& hidden) const;
  Tensor outer(std::string_view op, std::string_view kernel, std::int64_t tokens, const std::function<Tensor()>& body) const;

  const WeightSource* source_;
  LayerSetting setting_;
  Exec exec_;
  Model model_;
  std::vector<std::int64_t> capacities_;
  std::vector<PagedKvCache> caches_;
  Tensor final_norm_;
};

/// norm(hidden + residual), as between layers.
Tensor normed(const LayerState& state, const Tensor& weight, double eps, const Exec& exec);

/// A model as the target of speculative decoding. What the caches hold is taken as far as it goes; nodes of a tree that share a path to the
/// root go through the layers together, branches one after the other.
class SpeculativeTarget final : public TargetModel {
 public:
  explicit SpeculativeTarget(LanguageModel& model, std::int64_t requests) : model_(&model), cached_(static_cast<std::size_t>(requests)) {}
  std::int64_t vocabulary() const override { return model_->config().vocab_size; }
  std::int64_t hidden_size() const override { return model_->config().hidden_size; }
  void forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const override;
  void forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const override;

 private:
  LanguageModel* model_;
  mutable std::vector<std::vector<std::int64_t>> cached_;  ///< tokens of each request whose rows the caches hold
};

/// The NextN layer of the model as its draft: eh_proj of the normed embedding and the normed hidden state, the layer with a cache of its
/// own, shared_head.norm, the target's head. Keys lie and are rotated by a token's place in that cache; upstream rotates drafted ones one
/// further, which changes drafts and no emitted token. One beam. Source: sglang `deepseek_nextn.py`.
class NextnDraft final : public DraftModel {
 public:
  /// Throws Error (unsupported) for a model without a NextN layer.
  NextnDraft(const LanguageModel& model, std::span<const std::int64_t> capacities);
  void forward(std::int64_t token, std::int64_t position, std::span<const float> hidden, std::span<float> logits,
               std::span<float> next_hidden) const override;
  void forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor& next_hidden) const override;

 private:
  Tensor run(std::span<const DraftQuery> asked) const;

  const LanguageModel* model_;
  mutable PagedKvCache cache_;
};

}  // namespace dodona::model
