// Plans for clusters, held against what runs of 2, 4 and 8 ranks count.
#include <gtest/gtest.h>

#include "helpers.h"
#include "model/config/config.h"
#include "model/ranks/cluster_plan.h"
#include "model/ranks/rank_generation.h"
#include "model/ranks/sharded_run.h"
#include "model/ranks/turns.h"

namespace dodona::model {
namespace {

using testing::expect_error;

ModelConfig small() {
  ModelConfig config = preset("tiny");
  config.num_attention_heads = 8;
  config.intermediate_size = config.moe_intermediate_size = 512;
  return config;
}

/// So many requests that every expert is visited.
LayerRequest step(std::int64_t layer) {
  LayerRequest request;
  request.config = small();
  request.setting.layer = layer;
  request.lengths.assign(64, 3);
  request.exec.threads = 1;
  return request;
}

/// Counts what a group gathers.
class Counting final : public RankGroup {
 public:
  explicit Counting(RankGroup* inner) : inner_(inner) {}
  std::vector<Tensor> gather(const Tensor& mine) override {
    std::vector<Tensor> all = inner_->gather(mine);
    for (const Tensor& part : all) bytes += static_cast<double>(bytes_for(part.dtype(), part.elements()));
    ++calls;
    return all;
  }
  std::vector<Tensor> exchange(std::int64_t me, const std::vector<Tensor>& to_each) override {
    std::vector<Tensor> all = inner_->exchange(me, to_each);
    for (const Tensor& part : all) bytes += static_cast<double>(part.elements());
    ++calls;
    return all;
  }
  RankGroup* door() { return inner_ != nullptr ? this : nullptr; }
  double bytes = 0;
  std::int64_t calls = 0;

 private:
  RankGroup* inner_;
};
struct Counted {
  double weight_bytes = 0, gathered_bytes = 0;
  std::int64_t collectives = 0;
};
/// What body(rank, groups) gathers, and the weights it says it has read.
std::vector<Counted> count(const Grid& grid, const std::function<double(std::int64_t, const Ranks&)>& body) {
  std::vector<Counted> counted(static_cast<std::size_t>(grid.ranks()));
  take_turns(grid, [&](std::int64_t rank, const Ranks& ranks) {
    Counting tensor(ranks.tensor), experts(ranks.experts), pipeline(ranks.pipeline);
    Ranks watched = ranks;
    watched.tensor = tensor.door(), watched.experts = experts.door(), watched.pipeline = pipeline.door();
    Counted& mine = counted[static_cast<std::size_t>(rank)];
    mine.weight_bytes = body(rank, watched);
    mine.gathered_bytes = tensor.bytes + experts.bytes + pipeline.bytes;
    mine.collectives = tensor.calls + experts.calls + pipeline.calls;
  });
  return counted;
}

TEST(ClusterPlan, OfALayerHasTheBytesThatRanksCount) {
  for (const std::int64_t layer : {0, 1})
    for (const Grid& grid : {Grid{.tensor = 2}, Grid{.experts = 2}, Grid{.tensor = 4}, Grid{.tensor = 2, .experts = 2}, Grid{.tensor = 8},
                             Grid{.tensor = 2, .experts = 4}}) {
      const LayerRequest request = step(layer);
      const ClusterPlan plan = plan_cluster(request, grid, {}, false);
      const auto counted = count(grid, [&](std::int64_t rank, const Ranks& ranks) {
        return LayerRun(request_of_rank(request, grid, rank)).run({}, nullptr, ranks).work().weight_bytes;
      });
      for (const Counted& rank : counted) {
        EXPECT_EQ(rank.weight_bytes, plan.stages.front().read_bytes) << grid.text() << " layer " << layer;
        EXPECT_EQ(rank.gathered_bytes, plan.stages.front().gathered_bytes) << grid.text() << " layer " << layer;
        EXPECT_EQ(rank.collectives, plan.stages.front().collectives) << grid.text() << " layer " << layer;
      }
    }
}

TEST(ClusterPlan, OfKernelsOfWholeMixturesHasTheSumsThatRanksGather) {
  for (const Grid& grid : {Grid{.experts = 2}, Grid{.tensor = 2, .experts = 4}, Grid{.experts = 8}}) {
    LayerRequest request = step(1);
    request.setting.experts = "trtllm";
    const ClusterPlan plan = plan_cluster(request, grid, {}, false);
    const auto counted = count(grid, [&](std::int64_t rank, const Ranks& ranks) {
      return LayerRun(request_of_rank(request, grid, rank)).run({}, nullptr, ranks).work().weight_bytes;
    });
    for (const Counted& rank : counted) {
      EXPECT_EQ(rank.gathered_bytes, plan.stages.front().gathered_bytes) << grid.text();
      EXPECT_EQ(rank.collectives, plan.stages.front().collectives) << grid.text();
    }
  }
}

// Which rank receives how much the router decides; all together receive what the plan says.
TEST(ClusterPlan, OfDeepEpHasTheBytesThatRanksSend) {
  for (const Grid& grid : {Grid{.experts = 2}, Grid{.experts = 4}, Grid{.experts = 8}}) {
    LayerRequest request = step(1);
    request.config = preset("tiny-fp8");
    request.setting.experts = "deepep";
    request.setting.expert_weights = ExpertWeights::fp8;
    const ClusterPlan plan = plan_cluster(request, grid, {}, false);
    const auto counted = count(grid, [&](std::int64_t rank, const Ranks& ranks) {
      return LayerRun(request_of_rank(request, grid, rank)).run({}, nullptr, ranks).work().weight_bytes;
    });
    double bytes = 0;
    for (const Counted& rank : counted) {
      bytes += rank.gathered_bytes;
      EXPECT_EQ(rank.collectives, plan.stages.front().collectives) << grid.text();
    }
    EXPECT_EQ(bytes, static_cast<double>(grid.experts) * plan.stages.front().gathered_bytes) << grid.text();
  }
}

TEST(ClusterPlan, OfAModelHasTheBytesThatRanksGather) {
  LayerRequest request = step(1);
  request.setting = for_any_company({});
  request.lengths.assign(4, 3);
  constexpr std::int64_t rounds = 3;
  GenerateRequest texts{.prompts = {{1}, {2}, {3}, {4}}, .max_new = rounds};
  texts.sampling.temperature = 0;
  for (const Grid& grid : {Grid{.pipeline = 2}, Grid{.tensor = 2}, Grid{.tensor = 2, .pipeline = 2}, Grid{.experts = 2, .data = 2},
                           Grid{.tensor = 2, .experts = 2, .pipeline = 2}, Grid{.experts = 4, .pipeline = 2, .data = 4}}) {
    const ClusterPlan plan = plan_cluster(request, grid, {}, true);
    const auto counted = count(grid, [&](std::int64_t rank, const Ranks& ranks) {
      const auto source = open_weights(request.config, "", 0, request.exec, grid.shard(rank));
      Generation generation(*source, request.setting, request_of_rank(texts, grid, rank), request.exec, ranks);
      generate_with(generation, ranks);
      return 0.0;
    });
    // Whether anybody has something left to do, and what everybody wrote.
    const std::int64_t words = grid.data > 1 ? grid.data * (rounds + 1) + 4 * (1 + rounds) : 0;
    for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) {
      const RankPlan& stage = plan.stages[static_cast<std::size_t>(grid.stage_of(rank))];
      EXPECT_EQ(counted[static_cast<std::size_t>(rank)].gathered_bytes, rounds * stage.gathered_bytes + 8.0 * static_cast<double>(words))
          << grid.text() << " rank " << rank;
    }
  }
}

TEST(ClusterPlan, ANodeHoldsItsShareAndALimitTwiceAsHighHalvesWhatItBinds) {
  LayerRequest request = step(1);
  request.config = preset("r1-nvfp4");
  request.lengths.assign(64, 4096);
  const ClusterPlan one = plan_cluster(request, {}, {}, true), sixteen = plan_cluster(request, {.experts = 16, .data = 16}, {}, true);
  EXPECT_EQ(one.stages.front().collectives, 0);
  EXPECT_EQ(one.stages.front().cache_bytes, 16 * sixteen.stages.front().cache_bytes);
  EXPECT_GT(one.stages.front().weight_bytes, 3.5e11);
  EXPECT_LT(sixteen.stages.front().weight_bytes, one.stages.front().weight_bytes / 8);
  const auto seconds_of = [&](const NodeLimits& limits, char binding) {
    double seconds = 0;
    const ClusterPlan plan = plan_cluster(request, {.experts = 16, .data = 16}, limits, true);
    for (const ClusterStep& step : plan.stages.front().steps)
      if (step.binding == binding) seconds += step.seconds;
    return seconds;
  };
  const NodeLimits slow{.read = 1e6, .fma = 1e9, .dot8 = 1e9, .link = 1, .latency = 1e-6},
      fast{.read = 1e6, .fma = 1e9, .dot8 = 1e9, .link = 2, .latency = 1e-6};
  EXPECT_GT(seconds_of(slow, 'L'), 0);
  EXPECT_NEAR(seconds_of(slow, 'L') / seconds_of(fast, 'L'), 2, 1e-9);
}

TEST(ClusterPlan, WhatCannotBePartedIsRefusedByName) {
  LayerRequest request = step(1);
  request.lengths.assign(3, 4);
  expect_error([&] { plan_cluster(request, {.experts = 2, .data = 2}, {}, false); }, ErrorCode::bad_option, {"--dp-attention is 2"});
  expect_error([&] { grid_of_nodes(request.config, 7, 7, true); }, ErrorCode::bad_option, {"--nodes is 7", "or --tp, --ep and --pp"});
  // A layer has no --pp.
  expect_error([&] { grid_of_nodes(request.config, 7, 7, false); }, ErrorCode::bad_option, {"or --tp and --ep"});
  request.config.n_routed_experts = 0;
  expect_error([&] { grid_of_nodes(request.config, 2, 2, false); }, ErrorCode::bad_option, {"--nodes is 2, but the model has no experts"});
}

}  // namespace
}  // namespace dodona::model
