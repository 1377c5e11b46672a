// Language models as a step of speculative decoding asks them: what follows the tokens that lie in a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::model {

/// What a slot of the target's cache holds of a token. A row of a real cache is a function of no more than the tokens before it; here it
/// is these two numbers, so that a token in a wrong slot, or one that a mask hides, is missed by what is made of the cache.
struct CachedToken {
  std::int64_t token = -1, position = -1;
};

/// What a request's tokens, which come in no particular order, are followed by.
struct TargetQuery {
  std::int64_t request = 0;
  std::vector<CachedToken> seen;
};

/// One token of the draft: behind the hidden state before it.
struct DraftQuery {
  std::int64_t request = 0;
  std::int64_t token = 0, position = 0;
  std::int64_t place = 0;  ///< of its row in the draft's cache: as many rows of the request lie before it
  std::int64_t beam = -1;  ///< whose row it is; -1: the text's, which every beam sees
  std::span<const float> hidden;
  std::int64_t row = 0;  ///< of logits and next hidden states that it gives; of several with one row the last one's stay
};

/// The model whose text is wanted.
class TargetModel {
 public:
  virtual ~TargetModel() = default;
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t hidden_size() const = 0;
  /// Logits [vocabulary] and hidden state [hidden_size] at the last of the tokens that it sees, which come in no particular order.
  virtual void forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const = 0;
  /// Many at once: hidden states [n, hidden_size] of all, logits [m, vocabulary] of the last m. By default one by one.
  virtual void forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const;
  /// A request's first tokens: hidden states [n, hidden_size] at each, logits [vocabulary] at the last. By default by forward_all.
  virtual void read(std::int64_t request, std::span<const std::int64_t> prompt, std::span<float> logits, const Tensor& hidden) const;
};

/// The model that drafts: one token behind a hidden state, the target's or its own.
class DraftModel {
 public:
  virtual ~DraftModel() = default;
  /// Logits [vocabulary] behind `token` at `position`, and the hidden state [hidden_size] for the next one.
  virtual void forward(std::int64_t token, std::int64_t position, std::span<const float> hidden, std::span<float> logits,
                       std::span<float> next_hidden) const = 0;
  /// Many at once, into rows of logits [m, vocabulary] and next_hidden [m, hidden_size]. By default one by one, in order.
  virtual void forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor& next_hidden) const;
};

/// A table of normal logits for each two tokens in a row, drawn from a seed; `sharpness` is their deviation. The hidden state is the last
/// token and the one before it.
class BigramTarget : public TargetModel {
 public:
  BigramTarget(std::int64_t vocabulary, std::uint64_t seed, double sharpness)
      : vocabulary_(vocabulary), seed_(seed), sharpness_(sharpness) {}
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t hidden_size() const override { return 2; }
  void forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const override;
  /// The table's row; `before` is -1 behind the first token of a text.
  void row(std::int64_t before, std::int64_t token, std::span<float> logits) const;

 private:
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  double sharpness_;
};

/// The target's table, blurred: `agreement` of 1 is the target, of 0 a table of its own.
class BlurredDraft : public DraftModel {
 public:
  BlurredDraft(const BigramTarget& target, std::uint64_t seed, double sharpness, double agreement)
      : target_(target), own_(target.vocabulary(), seed, sharpness), agreement_(agreement) {}
  void forward(std::int64_t token, std::int64_t position, std::span<const float> hidden, std::span<float> logits,
               std::span<float> next_hidden) const override;

 private:
  const BigramTarget& target_;
  BigramTarget own_;
  double agreement_;
};

}  // namespace dodona::model
