#include "sharded_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "io/safetensors.h"
#include "model/layer/kernel_use.h"
#include "model/model.h"
#include "model/ranks/sharded_run.h"
#include "quant/element.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

/// How far two runs of the step are from each other.
struct Distance {
  std::int64_t elements = 0, differing = 0;
  double largest = 0, rms = 0;
};
Distance distance(const Tensor& a, const Tensor& b) {
  Distance d{.elements = a.elements()};
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double x = quant::get(a, i), y = quant::get(b, i);
    d.differing += quant::get_bits(a, i) != quant::get_bits(b, i) ? 1 : 0;
    d.largest = std::max(d.largest, std::fabs(x - y));
    d.rms += y * y;
  }
  d.rms = std::sqrt(d.rms / static_cast<double>(std::max<std::int64_t>(1, d.elements)));
  return d;
}

/// What every rank has whole on its way through the layer: it tells rounded sums from what comes of them. Activations that are quantized
/// fall to another code, as a router chooses another expert, for the least difference, and then differ by as much as there is between two.
struct OnTheWay {
  Tensor normed;  ///< behind attention
  Tensor chosen;  ///< the router's experts; undefined in dense layers

  model::Observer observer() {
    return [this](const model::OpRecord& record, const NamedTensors& outputs) {
      if (record.op == "self.post_attention_layernorm()") normed = outputs.front().second.clone();
      if (record.op == "self.topk()") chosen = outputs.back().second.clone();
    };
  }
};

/// How far the ranks are from one that has the whole layer.
struct AgainstWhole {
  Distance output, normed;
  std::optional<Distance> chosen;
};

/// Norms that add up what ranks have add nothing there.
model::LayerRequest on_one_rank(model::LayerRequest request) {
  std::erase_if(request.setting.use, [](const model::KernelUse& use) { return model::reduces_in_norm({&use, 1}, use.op); });
  return request;
}

AgainstWhole against_whole(const model::LayerRequest& request, const Tensor& hidden, const OnTheWay& sharded) {
  OnTheWay whole;
  const model::LayerRun::Result result = model::LayerRun(on_one_rank(request)).run(whole.observer());
  AgainstWhole against{.output = distance(hidden, result.output.hidden), .normed = distance(sharded.normed, whole.normed)};
  if (whole.chosen.defined()) against.chosen = distance(sharded.chosen, whole.chosen);
  return against;
}

io::Json to_json(const Distance& d) {
  return {{"elements", d.elements}, {"differing", d.differing}, {"largest", d.largest}, {"rms", d.rms}};
}

std::string text_of(const AgainstWhole& against) {
  const auto share = [](const Distance& d) { return d.rms > 0 ? 100 * d.largest / d.rms : 0; };
  std::string text = fmt::format("against the whole layer: {} of {} elements differ, by {:.3g} at most ({:.2f} % of the output's rms)\n",
                                 against.output.differing, against.output.elements, against.output.largest, share(against.output));
  if (against.output.differing == 0) return text;
  text += fmt::format("  on the way: self.post_attention_layernorm() by {:.2f} % of its rms", share(against.normed));
  if (against.chosen) text += fmt::format("; {} of {} choices of experts are others", against.chosen->differing, against.chosen->elements);
  return text + "\n";
}

/// One rank's line.
struct RankFacts {
  std::int64_t rank = 0;
  std::string part;
  double weight_bytes = 0, seconds = 0, reduced_bytes = 0;
};

std::vector<RankFacts> facts_of(const model::LayerRequest& request, const model::Grid& grid, const model::ShardedRun::Result& result) {
  std::vector<RankFacts> facts;
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) {
    const model::LayerRun::Result& run = result.ranks[static_cast<std::size_t>(rank)];
    RankFacts of{.rank = rank, .part = part_text(grid, request.config, rank)};
    of.weight_bytes = run.work().weight_bytes;
    of.seconds = run.seconds();
    for (const model::OpRecord& record : run.records)
      if (record.op == "tensor_model_parallel_all_reduce()") of.reduced_bytes += record.work.bytes;
    facts.push_back(std::move(of));
  }
  return facts;
}

}  // namespace

std::string part_text(const model::Grid& grid, const model::ModelConfig& config, std::int64_t rank) {
  std::string text;
  const model::Shard shard = grid.shard(rank);
  if (grid.tensor > 1)
    text = fmt::format("heads {} to {}", shard.heads.begin(config.num_attention_heads),
                       shard.heads.begin(config.num_attention_heads) + shard.heads.size(config.num_attention_heads) - 1);
  const model::ExpertRange experts = model::local_experts(config, shard);
  const auto comma = [&] { return text.empty() ? "" : ", "; };
  if (grid.experts > 1) text += fmt::format("{}experts {} to {}", comma(), experts.begin, experts.end - 1);
  const model::LayerSpan layers = model::layers_of(config, grid.stage(rank));
  if (grid.pipeline > 1) text += fmt::format("{}layers {} to {}", comma(), layers.begin, layers.end - 1);
  return text.empty() ? "all" : text;
}

int run_sharded_layer(const model::LayerRequest& request, const model::Grid& grid, const ShardedOptions& options, const std::string& step) {
  model::ShardedRun run(request, grid);
  OnTheWay way;
  const auto first = [&](std::int64_t rank) { return rank == 0 ? way.observer() : model::Observer(); };
  const model::ShardedRun::Result result = run.run(first);
  const std::string digest = model::digest_of(result.output);
  const std::vector<RankFacts> ranks = facts_of(request, grid, result);
  std::optional<AgainstWhole> whole;
  if (options.against_whole) whole = against_whole(request, result.output.hidden, way);
  if (!options.output.empty())
    io::write_safetensors(options.output, {{"hidden", result.output.hidden}, {"residual", result.output.residual}},
                          {{"model", request.config.name}, {"digest", digest}});
  if (options.json) {
    io::Json list = io::Json::array();
    for (const RankFacts& rank : ranks)
      list.push_back({{"rank", rank.rank},
                      {"part", rank.part},
                      {"weight_bytes", rank.weight_bytes},
                      {"seconds", rank.seconds},
                      {"reduced_bytes", rank.reduced_bytes}});
    io::Json json{{"model", request.config.name},
                  {"layer", request.setting.layer},
                  {"tp", grid.tensor},
                  {"ep", grid.experts},
                  {"digest", digest},
                  {"ranks", list}};
    if (whole) {
      json["against_whole"] = to_json(whole->output);
      json["against_whole"]["post_attention_layernorm"] = to_json(whole->normed);
      if (whole->chosen) json["against_whole"]["experts"] = {{"chosen", whole->chosen->elements}, {"others", whole->chosen->differing}};
    }
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    fmt::print("{}, on {} ranks of one process, one after the other ({})\n\n", step, grid.ranks(), grid.text());
    for (const RankFacts& rank : ranks)
      fmt::print("rank {}  {}: reads {:.1f} MB of weights, {:.3f} ms{}\n", rank.rank, rank.part, rank.weight_bytes * 1e-6,
                 rank.seconds * 1e3, rank.reduced_bytes > 0 ? fmt::format(", all-reduces move {:.3f} MB", rank.reduced_bytes * 1e-6) : "");
    fmt::print("\nall ranks end with the same bits\ndigest {}\n", digest);
    if (whole) fmt::print("{}", text_of(*whole));
    if (!options.output.empty()) fmt::print("written to {}\n", options.output);
  }
  return whole && run.has_bits_of_whole() && whole->output.differing > 0 ? exit_fail : exit_pass;
}

}  // namespace dodona::tools
