#include "model/ranks/cluster_plan.h"

#include <algorithm>

#include "dodona/error.h"
#include "model/layer/kernel_use.h"
#include "model/model.h"
#include "model/weights/tensor_list.h"

namespace dodona::model {
namespace {

/// What a rank plans with.
struct Planner {
  const LayerRequest& whole;  ///< of all requests
  const Grid& grid;
  const NodeLimits& limits;
  RankPlan& plan;

  double elements() const { return whole.setting.rounding == Rounding::off ? 4 : 2; }
  double hidden() const { return static_cast<double>(whole.config.hidden_size); }

  /// Steps of one name are one.
  void add(const std::string& name, std::int64_t times, const Work& once, double gathered, double ranks) const {
    auto step = std::find_if(plan.steps.begin(), plan.steps.end(), [&](const ClusterStep& s) { return s.name == name; });
    if (step == plan.steps.end()) step = plan.steps.insert(plan.steps.end(), {.name = name});
    const auto n = static_cast<double>(times);
    const double received = ranks > 1 ? gathered * (ranks - 1) / ranks : 0;
    const std::pair<char, double> needs[] = {{'R', once.bytes / (limits.read * 1e9)},
                                             {'F', once.flops / (limits.fma * 1e9)},
                                             {'V', once.int8_ops / (limits.dot8 * 1e9)},
                                             {'L', received / (limits.link * 1e9)},
                                             {'M', ranks > 1 ? limits.latency * 1e-6 : 0}};
    const auto slowest = std::max_element(std::begin(needs), std::end(needs), [](auto& a, auto& b) { return a.second < b.second; });
    step->binding = slowest->first;
    step->seconds += n * slowest->second;
    step->times += times;
    for (std::int64_t i = 0; i < times; ++i) step->work += once;
    step->gathered_bytes += n * gathered;
    step->received_bytes += n * received;
    plan.read_bytes += n * once.weight_bytes;
    plan.seconds += n * slowest->second;
    if (ranks <= 1) return;
    plan.collectives += times;
    plan.gathered_bytes += n * gathered;
    plan.received_bytes += n * received;
  }
  void gather(const std::string& name, std::int64_t times, double bytes, std::int64_t ranks) const {
    if (ranks > 1) add(name, times, {}, bytes, static_cast<double>(ranks));
  }
};

/// The part of the requests that one rank has.
LayerRequest part_of(const LayerRequest& whole, const Grid& grid) {
  LayerRequest mine = whole;
  const auto requests = static_cast<std::int64_t>(whole.lengths.size());
  if (requests % grid.data != 0)
    throw Error(ErrorCode::bad_option, "", "--dp-attention",
                "is " + std::to_string(grid.data) + ", expected a divisor of " + std::to_string(requests) + ", the requests of a plan");
  mine.lengths.resize(static_cast<std::size_t>(requests / grid.data));
  if (!mine.new_tokens.empty()) mine.new_tokens.resize(mine.lengths.size());
  mine.own_tokens = grid.data > 1;
  return mine;
}

void add_layers(const Planner& p, const LayerRequest& mine, std::int64_t layer, std::int64_t times) {
  LayerRequest request = mine;
  // Where a sum is made changes nothing of what is sent.
  request.setting = norms_over_layers(std::move(request.setting), false, false);
  request.setting.layer = layer;
  request.setting.fused_shared = request.setting.fused_shared && request.config.is_moe_layer(layer);
  const bool moe = request.config.is_moe_layer(layer);
  const auto tokens = static_cast<double>(batch_of(mine).tokens()), all = tokens * static_cast<double>(p.grid.data);
  const Plan plan = plan_layer(request);
  const std::string kind = moe ? "" : " (dense)";
  bool sums = false;
  for (const OpRecord& op : plan.ops) {
    // Its own arithmetic, and what it gathers.
    const bool reduces = op.op == "tensor_model_parallel_all_reduce()";
    if (reduces && op.note == "experts") {
      sums = true;
      p.gather("experts: sums", times, static_cast<double>(p.grid.experts) * all * p.hidden() * p.elements(), p.grid.experts);
    } else if (reduces || op.kernels == "trtllm_allreduce_fusion")
      p.gather("all-reduce", times, static_cast<double>(p.grid.tensor) * tokens * p.hidden() * p.elements(), p.grid.tensor);
    p.add(op.op + (op.note.empty() || reduces ? "" : " (" + op.note + ")") + kind, times, op.work, 0, 1);
  }
  p.plan.weight_bytes += static_cast<double>(times) * plan.layer_weight_bytes;
  p.plan.cache_bytes += static_cast<double>(times) * plan.cache_bytes;
  if (!moe || p.grid.experts == 1) return;
  const double slots = all * static_cast<double>(request.config.num_experts_per_tok), ranks = static_cast<double>(p.grid.experts);
  if (request.setting.experts == "deepep") {
    // Of each row its codes, their scales and its token; of each expert how many there are. They come back as bf16.
    const double row = p.hidden() + p.hidden() / 128 * 4 + 4;
    p.gather("experts: dispatch", times, slots / ranks * row + 4 * static_cast<double>(request.config.n_routed_experts), p.grid.experts);
    p.gather("experts: combine", times, slots / ranks * p.hidden() * 2, p.grid.experts);
    if (p.grid.data == 1) p.gather("experts: tokens", times, all * p.hidden() * 2, p.grid.experts);
    return;
  }
  if (p.grid.data > 1) {
    p.gather("experts: tokens", times, all * p.hidden() * p.elements(), p.grid.experts);
    p.gather("experts: weights", times, slots * 4, p.grid.experts);
    p.gather("experts: choices", times, slots * 4, p.grid.experts);
  }
  if (!sums) p.gather("experts: rows", times, slots * p.hidden() * p.elements(), p.grid.experts);
}

void add_outer(const Planner& p, const LayerRequest& mine, std::int64_t stage) {
  const ModelConfig& config = mine.config;
  const auto tokens = static_cast<double>(batch_of(mine).tokens()), requests = static_cast<double>(mine.lengths.size()),
             vocabulary = static_cast<double>(config.vocab_size);
  const bool last = stage == p.grid.pipeline - 1;
  // Rows of the embedding on every stage: each looks its tokens up.
  p.gather("self.embed_tokens()", 1, static_cast<double>(p.grid.tensor) * tokens * p.hidden() * 2, p.grid.tensor);
  p.gather("stages", p.grid.pipeline, 2 * tokens * p.hidden() * p.elements(), p.grid.pipeline);
  if (last) {
    const double share = vocabulary / static_cast<double>(p.grid.tensor), head = share * p.hidden() * 2;
    p.add("self.lm_head()", 1, {.bytes = head, .flops = 2 * share * p.hidden() * requests, .weight_bytes = head}, 0, 1);
    p.gather("logits", 1, requests * vocabulary * 4, p.grid.tensor);
  }
  p.gather("logits to all stages", 1, requests * vocabulary * 4, p.grid.pipeline);
  for (const TensorInfo& tensor : outer_tensors(config, mine.shard)) {
    const bool head = tensor.name.starts_with("lm_head");
    if (!head || last) p.plan.weight_bytes += static_cast<double>(tensor.bytes());
  }
}

}  // namespace

ClusterPlan plan_cluster(const LayerRequest& request, const Grid& grid, const NodeLimits& limits, bool outer) {
  check_grid(request.config, grid);
  ClusterPlan cluster;
  LayerRequest mine = part_of(request, grid);
  for (std::int64_t stage = 0; stage < grid.pipeline; ++stage) {
    const std::int64_t rank = stage * grid.tensor * grid.experts;
    mine.shard = grid.shard(rank);
    RankPlan plan{.rank = rank};
    const Planner planner{request, grid, limits, plan};
    if (outer) {
      const LayerSpan span = layers_of(request.config, grid.stage(rank));
      std::int64_t dense = 0;
      for (std::int64_t layer = span.begin; layer < span.end; ++layer) dense += request.config.is_moe_layer(layer) ? 0 : 1;
      // The first layer has no residual yet; as one among many it counts like the others.
      const auto kind = [&](bool moe) {
        std::int64_t layer = span.end - 1;
        while (layer > span.begin && request.config.is_moe_layer(layer) != moe) --layer;
        return layer;
      };
      if (dense > 0) add_layers(planner, mine, kind(false), dense);
      if (span.size() > dense) add_layers(planner, mine, kind(true), span.size() - dense);
      add_outer(planner, mine, stage);
    } else {
      add_layers(planner, mine, request.setting.layer, 1);
    }
    cluster.seconds += plan.seconds;
    cluster.slowest = std::max(cluster.slowest, plan.seconds);
    cluster.stages.push_back(std::move(plan));
  }
  cluster.tokens = batch_of(request).tokens();
  return cluster;
}

Grid grid_of_nodes(const ModelConfig& config, std::int64_t nodes, std::int64_t requests, bool outer) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_option, "", "--nodes", "is " + std::to_string(nodes) + ", " + why);
  };
  const std::string split = outer ? "--tp, --ep and --pp" : "--tp and --ep";
  if (nodes < 1) refuse("expected 1 or more");
  if (nodes > 1 && config.n_routed_experts == 0) refuse("but the model has no experts to deal out: say " + split);
  if (config.n_routed_experts % nodes != 0)
    refuse("over which the " + std::to_string(config.n_routed_experts) + " experts cannot be dealt out evenly: expected a divisor, or " +
           split);
  return {.experts = nodes, .data = requests % nodes == 0 ? nodes : 1};
}

}  // namespace dodona::model
