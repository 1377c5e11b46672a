#include "ops/schemes/rank_tokens.h"

#include <string>

#include "dodona/error.h"

namespace dodona::ops {

std::vector<std::int64_t> RankTokens::received_by(std::int64_t rank) const {
  std::vector<std::int64_t> received;
  for (std::int64_t token = 0; token < ranks * tokens; ++token)
    if (to(token, rank)) received.push_back(token);
  return received;
}

std::vector<std::int32_t> RankTokens::prefixes() const {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks * ranks), 0);
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t d = 0; d < ranks; ++d) {
      std::int32_t& count = counts[static_cast<std::size_t>(r * ranks + d)];
      if (r > 0) count = counts[static_cast<std::size_t>((r - 1) * ranks + d)];
      for (std::int64_t token = r * tokens; token < (r + 1) * tokens; ++token) count += to(token, d) ? 1 : 0;
    }
  return counts;
}

RankTokens rank_tokens(const Tensor& topk_idx, std::int64_t num_experts) {
  const std::int64_t ranks = topk_idx.size(0), tokens = topk_idx.size(1), topk = topk_idx.size(2);
  RankTokens all{ranks, tokens, num_experts / ranks, std::vector<std::uint8_t>(static_cast<std::size_t>(ranks * tokens * ranks), 0)};
  const auto* const ids = topk_idx.as<const std::int64_t>();
  for (std::int64_t i = 0; i < topk_idx.elements(); ++i)
    if (ids[i] >= 0) all.goes[static_cast<std::size_t>(i / topk * ranks + ids[i] / all.local_experts)] = 1;
  return all;
}

void require_rank_experts(const Tensor& topk_idx, std::int64_t num_experts) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (num_experts % topk_idx.size(0) != 0)
    throw Error(ErrorCode::bad_value, "", "num_experts",
                "is " + number(num_experts) + ", expected a multiple of the " + number(topk_idx.size(0)) + " ranks");
  const auto* const ids = topk_idx.as<const std::int64_t>();
  for (std::int64_t i = 0; i < topk_idx.elements(); ++i)
    if (ids[i] < -1 || ids[i] >= num_experts)
      throw Error(ErrorCode::bad_value, "", "topk_idx",
                  "holds " + number(ids[i]) + " at element " + number(i) + ", expected -1 or one of " + number(num_experts) + " experts");
}

}  // namespace dodona::ops
