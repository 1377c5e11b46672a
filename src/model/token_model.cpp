#include "model/token_model.h"

#include <algorithm>
#include <vector>

#include "core/random.h"

namespace dodona::model {
namespace {

std::span<float> row_of(const Tensor& t, std::int64_t row) {
  return {t.as<float>() + row * t.size(1), static_cast<std::size_t>(t.size(1))};
}

}  // namespace

void TargetModel::forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const {
  const auto count = static_cast<std::int64_t>(asked.size());
  std::vector<float> unwanted(static_cast<std::size_t>(vocabulary()));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i - (count - logits.size(0));
    forward(asked[static_cast<std::size_t>(i)].seen, row < 0 ? std::span<float>(unwanted) : row_of(logits, row), row_of(hidden, i));
  }
}

void TargetModel::read(std::int64_t request, std::span<const std::int64_t> prompt, std::span<float> logits, const Tensor& hidden) const {
  std::vector<TargetQuery> asked;
  for (const std::int64_t token : prompt) {
    asked.push_back({request, asked.empty() ? std::vector<CachedToken>() : asked.back().seen});
    asked.back().seen.push_back({token, static_cast<std::int64_t>(asked.size()) - 1});
  }
  const Tensor last(DType::f32, {1, vocabulary()});
  forward_all(asked, last, hidden);
  std::copy_n(last.as<float>(), vocabulary(), logits.begin());
}

void DraftModel::forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor& next_hidden) const {
  for (const DraftQuery& query : asked)
    forward(query.token, query.position, query.hidden, row_of(logits, query.row), row_of(next_hidden, query.row));
}

void BigramTarget::row(std::int64_t before, std::int64_t token, std::span<float> logits) const {
  const auto place = static_cast<std::uint64_t>((before + 1) * vocabulary_ + token);
  fill_normal(Stream(seed_, "bigram"), place * 2 * static_cast<std::uint64_t>((vocabulary_ + 1) / 2), logits);
  for (float& logit : logits) logit = static_cast<float>(static_cast<double>(logit) * sharpness_);
}

void BigramTarget::forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const {
  CachedToken last, before;
  for (const CachedToken& token : seen)
    if (token.position > last.position) last = token;
  for (const CachedToken& token : seen)
    if (token.position == last.position - 1) before = token;
  row(before.token, last.token, logits);
  hidden[0] = static_cast<float>(last.token);
  hidden[1] = static_cast<float>(before.token);
}

void BlurredDraft::forward(std::int64_t token, std::int64_t, std::span<const float> hidden, std::span<float> logits,
                           std::span<float> next_hidden) const {
  const auto before = static_cast<std::int64_t>(hidden[0]);
  std::vector<float> blur(logits.size());
  target_.row(before, token, logits);
  own_.row(before, token, blur);
  for (std::size_t v = 0; v < logits.size(); ++v)
    logits[v] = static_cast<float>(agreement_ * static_cast<double>(logits[v]) + (1 - agreement_) * static_cast<double>(blur[v]));
  next_hidden[0] = static_cast<float>(token);
  next_hidden[1] = hidden[0];
}

}  // namespace dodona::model
