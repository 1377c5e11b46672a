#include "model/ranks/rank_generation.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "dodona/error.h"
#include "model/layer/values.h"
#include "model/ranks/rank_state.h"
#include "model/ranks/turns.h"
#include "model/run.h"

namespace dodona::model {
namespace {

using Texts = std::vector<std::vector<std::int64_t>>;

/// Whether it holds on any rank.
bool anywhere(bool here, const Ranks& ranks) {
  if (!ranks.own_tokens) return here;
  const Tensor all = ranks.experts->gather_alike(tensor_of({here ? 1 : 0}, {1}));
  return std::any_of(all.as<std::int64_t>(), all.as<std::int64_t>() + all.elements(), [](std::int64_t one) { return one != 0; });
}

/// Of all ranks, in the order of the requests.
Texts joined(const Texts& mine, const Ranks& ranks) {
  if (!ranks.own_tokens) return mine;
  std::vector<std::int64_t> words;
  for (const auto& text : mine) {
    words.push_back(static_cast<std::int64_t>(text.size()));
    words.insert(words.end(), text.begin(), text.end());
  }
  Texts all;
  for (const Tensor& part : ranks.experts->gather(tensor_of(words, {static_cast<std::int64_t>(words.size())})))
    for (std::int64_t at = 0; at < part.elements();) {
      const std::int64_t* const begin = part.as<std::int64_t>() + at + 1;
      all.emplace_back(begin, begin + begin[-1]);
      at += 1 + begin[-1];
    }
  return all;
}

}  // namespace

GenerateRequest request_of_rank(GenerateRequest request, const Grid& grid, std::int64_t rank) {
  if (grid.data == 1) return request;
  const auto requests = static_cast<std::int64_t>(request.prompts.size());
  if (requests < grid.data)
    throw Error(ErrorCode::bad_option, "", "--dp-attention",
                "is " + std::to_string(grid.data) + ", expected at most " + std::to_string(requests) + ", the requests");
  const auto begin = [&](std::int64_t part) { return part * requests / grid.data; };
  const std::int64_t part = grid.experts_of(rank);
  request.seed = static_cast<std::int32_t>(static_cast<std::uint32_t>(request.seed) + static_cast<std::uint32_t>(begin(part)));
  request.prompts = {request.prompts.begin() + begin(part), request.prompts.begin() + begin(part + 1)};
  return request;
}

Texts generate_with(Generation& generation, const Ranks& ranks, const RankHooks& hooks) {
  while (anywhere(!generation.done(), ranks)) {
    if (generation.done())
      generation.idle();
    else
      generation.round(hooks.layer);
    if (hooks.round) hooks.round();
  }
  return joined(generation.texts(), ranks);
}

ShardedResult generate_on_ranks(const GenerateCall& call, const Grid& grid) {
  check_grid(call.config, grid);
  ShardedResult result;
  std::vector<Texts> texts(static_cast<std::size_t>(grid.ranks()));
  std::vector<std::int64_t> rounds(texts.size());
  result.ranks.resize(texts.size());
  take_turns(grid, [&](std::int64_t rank, const Ranks& ranks) {
    const auto at = static_cast<std::size_t>(rank);
    const auto source = open_weights(call.config, call.weights, call.weights_seed, call.exec, grid.shard(rank));
    Generation generation(*source, call.setting, request_of_rank(call.request, grid, rank), call.exec, ranks);
    RankState state(call, source->description(), grid, rank);
    state.take_up(generation);
    const auto count = [&](const LayerTiming& timing) {
      RankWork& work = result.ranks[at];
      work.layers += 1, work.arithmetic += timing.arithmetic, work.weight_bytes += timing.work.weight_bytes;
    };
    texts[at] = generate_with(generation, ranks, {.layer = count, .round = [&] { state.keep(generation, ranks); }});
    rounds[at] = generation.steps();
    if (rank == 0) result.accepted = generation.accepted();
  });
  result.texts = texts.front();
  result.rounds = *std::max_element(rounds.begin(), rounds.end());
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != result.texts) throw std::logic_error("ranks 0 and " + std::to_string(rank) + " end with different texts");
  return result;
}

}  // namespace dodona::model
