// A whole model over tokens: embedding, every layer, final norm, head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/pages.h"
#include "model/model.h"
#include "model/token_model.h"

namespace dodona::model {

/// Tokens of a request behind its first `begin`, which are in the cache.
struct Extension {
  std::int64_t request = 0, begin = 0;
  std::vector<std::int64_t> tokens;
  /// Of a draft tree: which of these tokens each one follows, -1: the last cached one; see Batch::parents. Empty: each the one before.
  std::vector<std::int64_t> parents = {};
  bool operator==(const Extension&) const = default;
};

/// A pass through the layers, and how far it came.
struct ForwardPass {
  std::vector<Extension> extensions;
  std::int64_t layers = 0;  ///< that are behind it
  LayerState state = {};    ///< what the last of them gave; nothing before the first
  Tensor hidden = {};       ///< of a pass that is done, what it gave
};

/// The setting with what does not depend on how many tokens go together.
LayerSetting for_any_company(LayerSetting setting);

/// Every token goes through the absorbed form of attention and through kernels that do not depend on how many go with it, so what a token
/// gives depends on the tokens before it alone: not on how a prompt is cut, on the other requests, on threads or tier. Upstream's
/// deterministic mode does likewise. Weights are streamed: two layers' in memory at most, the head in parts.
class LanguageModel {
 public:
  /// Caches of capacities[r] tokens of request r. The source must outlive this. Throws Error as PagedKvCache and Model do, and unsupported
  /// for a head that is no bf16 and sizes of attention that its kernel does not take.
  LanguageModel(const WeightSource& source, const LayerSetting& setting, const Exec& exec, std::span<const std::int64_t> capacities,
                const Ranks& ranks = {});

  const ModelConfig& config() const { return source_->config(); }
  std::int64_t capacity(std::int64_t request) const { return capacities_[static_cast<std::size_t>(request)]; }

  /// Hidden states after the final norm [T, H] of all those tokens, in order; their rows are in the caches then. One extension of a request
  /// at most. Throws Error (bad_value) for tokens beyond the vocabulary and for more of them than the caches hold.
  Tensor forward(const std::vector<Extension>& extensions);

  /// The passes since the round began. What leaves a pass leaves it here: with the caches' rows all that another model needs to go on.
  const std::vector<ForwardPass>& passes() const { return passes_; }
  /// A round begins: passes of a round that was left, these or those of take_up(), are not run again where the same ones are asked for in
  /// the same order, and the one that was under way goes on at the layer that it reached.
  void begin_round();
  void end_round();
  void take_up(std::vector<ForwardPass> passes) { passes_ = std::move(passes); }
  /// f32 [S, V], rounded to bf16 before as upstream's head does.
  Tensor logits(const Tensor& hidden) const;

  /// What is told of a pass; each may be empty.
  struct Hooks {
    std::function<void(const LayerTiming&)> after_layer;           ///< may throw, which leaves the pass
    std::function<void(std::int64_t layer, Trace&)> before_layer;  ///< to observe it
    std::function<void(std::int64_t layer, const Trace&)> traced;  ///< behind it
    /// self.embed_tokens(), self.norm(), self.lm_head(), and what is around a NextN layer: kernels by name, the head's in parts.
    std::function<void(const OpRecord&)> outer;
    std::function<void(const LayerTiming&)> after_draft;  ///< behind the NextN layer, which the other hooks are told of too
  };
  Hooks hooks = {};

  /// What the caches hold of `tokens` tokens of a request, u8 [layers, tokens, bytes]; and what puts it back.
  Tensor cached(std::int64_t request, std::int64_t tokens) const;
  void restore(std::int64_t request, const Tensor& rows);
  /// The row of token `from` of a request stands at `to` too, in every layer.
  void move_token(std::int64_t request, std::int64_t from, std::int64_t to);

  const WeightSource& source() const { return *source_; }
  const LayerSetting& setting() const { return setting_; }
  const Exec& exec() const { return exec_; }
  const Ranks& ranks() const { return ranks_; }
  /// Of tokens, [T, H].
  Tensor embeddings(std::span<const std::int64_t> tokens) const;

  /// An op that is around the layers, of which hooks are told.
  struct OuterOp {
    std::string_view name, note, kernel;
    Dims input;
  };
  Tensor outer(const OuterOp& op, const std::function<Tensor()>& body) const;

 private:
  Tensor head(const Tensor& hidden) const;
  Tensor head_of_shard(const Tensor& hidden) const;
  const WeightSource* source_;
  LayerSetting setting_;
  Exec exec_;
  Ranks ranks_;
  Model model_;
  std::vector<std::int64_t> capacities_;
  std::vector<PagedKvCache> caches_;
  Tensor final_norm_;
  KeepPages pages_;                         ///< layers are alike, and so are parts of the head
  std::vector<ForwardPass> passes_, left_;  ///< of this round (outside of one the last alone); of one that was left
  bool in_round_ = false;
};

/// What caches hold of a request, cache by cache, u8 [caches, tokens, bytes]; and what puts it back. Throws Error (bad_shape).
Tensor rows_of(std::span<const PagedKvCache> caches, std::int64_t request, std::int64_t tokens);
void put_rows(std::span<PagedKvCache> caches, std::int64_t request, const Tensor& rows, std::int64_t capacity);

/// norm(hidden + residual), as between layers.
Tensor normed(const LayerState& state, const Tensor& weight, double eps, const Exec& exec);

/// A model as the target of speculative decoding. What the caches hold is taken as far as it goes; all nodes of the trees of all requests
/// go through the layers together, each seeing its own way to the root. Rows of accepted nodes move to their places in the text before the
/// next pass.
class SpeculativeTarget final : public TargetModel {
 public:
  /// Prompts go through the layers in chunks of so many tokens.
  SpeculativeTarget(LanguageModel& model, std::int64_t requests, std::int64_t chunk = 512)
      : model_(&model), held_(static_cast<std::size_t>(requests)), chunk_(chunk) {}
  std::int64_t vocabulary() const override { return model_->config().vocab_size; }
  std::int64_t hidden_size() const override { return model_->config().hidden_size; }
  void forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const override;
  void forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const override;
  void read(std::int64_t request, std::span<const std::int64_t> prompt, std::span<float> logits, const Tensor& hidden) const override;

  /// What the caches hold of a request: a text, and behind it the nodes of a tree.
  struct Held {
    std::vector<std::int64_t> text, tree, parents;
    std::int64_t rows() const { return static_cast<std::int64_t>(text.size() + tree.size()); }
  };
  const Held& held(std::int64_t request) const { return held_[static_cast<std::size_t>(request)]; }
  void hold(std::int64_t request, Held held) { held_[static_cast<std::size_t>(request)] = std::move(held); }

 private:
  void settle(std::int64_t request, std::span<const std::int64_t> text) const;
  void ask_head(const Tensor& hidden, const Tensor& logits) const;

  LanguageModel* model_;
  mutable std::vector<Held> held_;
  std::int64_t chunk_;
};

/// The NextN layer of the model as its draft: eh_proj of the normed embedding and the normed hidden state, the layer with a cache of its
/// own, shared_head.norm, the target's head. Keys lie and are rotated by a token's place in that cache; upstream rotates drafted ones one
/// further, which changes drafts and no emitted token. Beams have the text's rows in common; a drafted token's row stays with the number of
/// its beam, whichever beam goes on from it, as upstream's draft cache has it. Source: sglang `deepseek_nextn.py`, `eagle_worker.py`,
/// `generate_draft_decode_kv_indices`. Its experts are run as asked where they can be, see with_experts_of_draft.
class NextnDraft final : public DraftModel {
 public:
  /// Throws Error (unsupported) for a model without a NextN layer, and for a tensor of it that is not found.
  NextnDraft(const LanguageModel& model, std::span<const std::int64_t> capacities, std::int64_t beams = 1);
  void forward(std::int64_t token, std::int64_t position, std::span<const float> hidden, std::span<float> logits,
               std::span<float> next_hidden) const override;
  void forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor& next_hidden) const override;

  /// The rows of a request's first `tokens` tokens, see rows_of; and what puts them back.
  Tensor cached(std::int64_t request, std::int64_t tokens) const;
  void restore(std::int64_t request, const Tensor& rows);

 private:
  std::int64_t layer() const { return model_->config().num_hidden_layers; }
  LayerSetting setting() const;
  Tensor run(std::span<const DraftQuery> asked) const;
  LayerState run_layer_of(Batch& batch, const Tensor& x) const;
  std::int64_t row_of_beam(const DraftQuery& query) const { return query.request * beams_ + std::max<std::int64_t>(query.beam, 0); }
  void share(std::int64_t request, std::int64_t place) const;

  const LanguageModel* model_;
  std::int64_t beams_;
  std::vector<std::int64_t> capacities_;
  mutable PagedKvCache cache_;  ///< each beam of each request is a request of it
};

}  // namespace dodona::model
