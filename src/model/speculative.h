// One complete step of EAGLE / NextN speculative decoding around a target and a draft: draft tree, verification, accepted path, cache
// moved, next draft. Every stage is a call of the op that serving uses; what lies between them is done as SGLang's worker does it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "model/token_model.h"

namespace dodona::model {

struct SpeculativeSetting {
  std::int64_t steps = 3;         ///< S, draft steps
  std::int64_t topk = 1;          ///< beams of a request; with 1, draft_tokens is steps + 1
  std::int64_t draft_tokens = 4;  ///< D, nodes of each tree, the root counted
  double temperature = 0;         ///< 0: the target's most probable tokens
  std::int64_t top_k = 0;         ///< target probabilities are those of the k best alone; 0: of all
  double top_p = 1;               ///< likewise of the likeliest that hold this much
  double threshold_single = 1, threshold_acc = 1;
  std::int64_t page_size = 1;   ///< slots of a page of the target's cache
  std::int64_t end_token = -1;  ///< behind which a request is finished; -1 for none
  std::int64_t most_new = 0;    ///< tokens behind which it is finished too, which one step may overshoot; 0: any number
};

/// Throws Error (bad_option) naming the setting that no draft has: counts below 1, more draft tokens than candidates, one beam without
/// steps + 1 draft tokens, more beams than tokens, an end token that is none, a temperature that is negative or not finite, thresholds
/// beyond 0 to 1.
void check_setting(const SpeculativeSetting& setting, std::int64_t vocabulary);

/// Uniform numbers in [0, 1) for one verification: for each node of each request, and for the last token of each.
struct Coins {
  Tensor nodes;  ///< f32 [B, D]
  Tensor last;   ///< f32 [B]
};

/// The target's cache: slots in pages, and the table of each request's slots.
class TokenCache {
 public:
  /// Room for `capacity` tokens of each request.
  TokenCache(std::int64_t requests, std::int64_t capacity, std::int64_t page_size);

  const Tensor& req_to_token() const { return req_to_token_; }
  std::int64_t page_size() const { return page_size_; }
  /// Slots for tokens length .. length + count of a request: behind its last one as far as its page has room, then of fresh pages. Throws
  /// Error (out_of_memory) where there are none.
  void allocate(std::int64_t request, std::int64_t length, std::int64_t count, std::span<std::int64_t> slots);
  /// Gives back the pages that the slots lie in.
  void free(std::span<const std::int64_t> slots);
  /// Copies what slots hold; all are read before one is written.
  void move(std::span<const std::int64_t> to, std::span<const std::int64_t> from);

  CachedToken& slot(std::int64_t i) { return slots_.at(static_cast<std::size_t>(i)); }
  const CachedToken& slot(std::int64_t i) const { return slots_.at(static_cast<std::size_t>(i)); }
  CachedToken& token(std::int64_t request, std::int64_t i) { return slot(slot_of(request, i)); }
  const CachedToken& token(std::int64_t request, std::int64_t i) const { return slot(slot_of(request, i)); }
  /// Pages that belong to no request.
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  std::int64_t slot_of(std::int64_t request, std::int64_t i) const;

  std::int64_t page_size_;
  Tensor req_to_token_;
  std::vector<CachedToken> slots_;
  std::vector<std::int64_t> free_;
};

/// What one step emitted.
struct SpeculativeStep {
  struct Request {
    std::vector<std::int64_t> tokens;  ///< accepted draft tokens and the one behind them
    std::int64_t accepted = 0;         ///< draft tokens among them
    bool finished = false;             ///< the last one is the end token
  };
  std::vector<Request> requests;
  /// The trees, as they were verified: i64 [B, D].
  Tensor draft_tokens, retrive_next_token, retrive_next_sibling;
};

/// A batch of requests, decoded step by step.
class SpeculativeDecoder {
 public:
  /// Runs the target over the prompts, takes each one's next token (with a temperature: by its coin) and drafts. Caches have room for
  /// `most_tokens` of each request, the nodes of a tree counted. Throws Error for an empty prompt, a token beyond the vocabulary, and as
  /// check_setting does.
  SpeculativeDecoder(const TargetModel& target, const DraftModel& draft, const SpeculativeSetting& setting,
                     std::span<const std::vector<std::int64_t>> prompts, std::int64_t most_tokens, std::span<const float> first_coins,
                     Exec exec);

  /// Between two steps: the texts, and what the next drafts of the requests that are not finished begin with.
  struct State {
    std::vector<std::vector<std::int64_t>> texts;
    Tensor hidden, topk_p, topk_index;  ///< undefined where all are finished
  };
  State state() const { return {texts_, hidden_, topk_p_, topk_index_}; }
  /// Goes on from there; target and draft hold the texts but for each one's newest token. Throws Error (bad_value) for what is no such
  /// state.
  SpeculativeDecoder(const TargetModel& target, const DraftModel& draft, const SpeculativeSetting& setting,
                     std::span<const std::vector<std::int64_t>> prompts, const State& state, std::int64_t most_tokens, Exec exec);

  /// Requests that are finished emit nothing. With a temperature of 0 no coins are read; they have a row for each request of the batch.
  SpeculativeStep step(const Coins& coins);

  std::int64_t requests() const { return static_cast<std::int64_t>(texts_.size()); }
  /// Everything emitted so far, the prompt not counted.
  const std::vector<std::int64_t>& text(std::int64_t request) const { return texts_[static_cast<std::size_t>(request)]; }
  bool finished(std::int64_t request) const;
  const TokenCache& cache() const { return cache_; }
  /// Tokens of a request in the target's cache: all but the newest.
  std::int64_t length(std::int64_t request) const { return lengths_[static_cast<std::size_t>(request)]; }

 private:
  /// Of each active request D nodes.
  struct Tree {
    Tensor draft_tokens, tree_mask, positions, retrive_index, retrive_next_token, retrive_next_sibling;
  };
  /// What the target says behind each node.
  struct Answers {
    Tensor logits, hidden;
  };
  /// Places of the accepted nodes and the tokens behind them.
  struct Path {
    Tensor predicts, accept_index, accept_token_num;
  };

  std::int64_t active() const { return static_cast<std::int64_t>(active_.size()); }
  Tensor lengths_of_active(std::int64_t more = 0) const;
  Tensor pool_indices() const;
  bool is_finished(const std::vector<std::int64_t>& text) const;
  void cache_text(std::int64_t request, std::span<const std::int64_t> text);
  std::int64_t prefill(std::int64_t request, std::span<const std::int64_t> prompt, float coin, std::vector<float>& hidden);
  /// Drafts begin behind these tokens, `counts` of each active request, with the target's hidden state before each of them.
  void extend_draft(const Tensor& tokens, const Tensor& hidden, const Tensor& counts);
  void take_best(const Tensor& logits);
  Tree draft_tree();
  Answers ask_target(const Tree& tree, std::span<const std::int64_t> slots);
  Path verify(const Tree& tree, const Answers& answers, const Coins& coins) const;
  void keep_accepted(const Path& path, std::span<const std::int64_t> slots);
  SpeculativeStep emit(const Path& path, const Answers& answers);

  const TargetModel& target_;
  const DraftModel& draft_;
  SpeculativeSetting setting_;
  Exec exec_;
  TokenCache cache_;
  std::vector<std::vector<std::int64_t>> texts_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> active_;  ///< requests that are not finished; the tensors below have a row for each
  Tensor verified_id_;                ///< the newest token, which is not in the cache
  Tensor hidden_, topk_p_, topk_index_;
};

/// Plain decoding, token by token: what the emitted text must equal at a temperature of 0.
std::vector<std::int64_t> decode_greedily(const TargetModel& target, std::span<const std::int64_t> prompt, std::int64_t tokens,
                                          std::int64_t end_token = -1);

}  // namespace dodona::model
