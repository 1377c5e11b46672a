#include "cluster_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

struct Planned {
  std::int64_t nodes = 0;
  model::Grid grid;
  model::ClusterPlan plan;

  /// The rank that has most.
  double most(double model::RankPlan::*what) const {
    double most = 0;
    for (const model::RankPlan& rank : plan.stages) most = std::max(most, rank.*what);
    return most;
  }
  double sum(double model::RankPlan::*what) const {
    double sum = 0;
    for (const model::RankPlan& rank : plan.stages) sum += rank.*what;
    return sum;
  }
  /// With a batch on each stage.
  double tokens_a_second() const { return static_cast<double>(plan.tokens) / plan.slowest; }
};

/// "R 61 %, L 30 %, M 9 %": which limit holds up the pass for how much of its time.
std::string bounds_text(const model::ClusterPlan& plan) {
  std::string text;
  for (const char limit : {'R', 'F', 'V', 'L', 'M'}) {
    double seconds = 0;
    for (const model::RankPlan& rank : plan.stages)
      for (const model::ClusterStep& step : rank.steps)
        if (step.binding == limit) seconds += step.seconds;
    if (const double share = 100 * seconds / plan.seconds; share >= 0.5)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", limit, share);
  }
  return text;
}

std::string gigabytes(double bytes) {
  return fmt::format("{:.{}f}", bytes * 1e-9, bytes < 1e9 ? 3 : bytes < 1e11 ? 1 : 0);
}

std::string limits_text(const model::NodeLimits& limits) {
  return fmt::format("R {:g} GB/s, F {:g} GFLOP/s, V {:g} GOP/s, link {:g} GB/s, {:g} us a collective", limits.read, limits.fma,
                     limits.dot8, limits.link, limits.latency);
}

io::Json to_json(const model::RankPlan& rank) {
  io::Json steps = io::Json::array();
  for (const model::ClusterStep& step : rank.steps)
    steps.push_back({{"step", step.name},
                     {"times", step.times},
                     {"bytes", step.work.bytes},
                     {"weight_bytes", step.work.weight_bytes},
                     {"flops", step.work.flops},
                     {"int8_ops", step.work.int8_ops},
                     {"collective_bytes", step.gathered_bytes},
                     {"received_bytes", step.received_bytes},
                     {"seconds", step.seconds},
                     {"binding", std::string(1, step.binding)}});
  return {{"rank", rank.rank},
          {"weight_bytes_held", rank.weight_bytes},
          {"kv_cache_bytes", rank.cache_bytes},
          {"weight_bytes", rank.read_bytes},
          {"collectives", rank.collectives},
          {"collective_bytes", rank.gathered_bytes},
          {"received_bytes", rank.received_bytes},
          {"seconds", rank.seconds},
          {"steps", steps}};
}

io::Json to_json(const Planned& planned) {
  io::Json ranks = io::Json::array();
  for (const model::RankPlan& rank : planned.plan.stages) ranks.push_back(to_json(rank));
  return {{"nodes", planned.nodes},
          {"split", planned.grid.text()},
          {"seconds", planned.plan.seconds},
          {"tokens", planned.plan.tokens},
          {"tokens_per_second", planned.tokens_a_second()},
          {"simulated", true},
          {"stages", ranks}};
}

void print_steps(const Planned& planned, const model::NodeLimits& limits) {
  fmt::print("simulated, with {}\n", limits_text(limits));
  for (const model::RankPlan& rank : planned.plan.stages) {
    fmt::print("\nrank {} of {} ({}): holds {} GB of weights and {} GB of cache\n\n", rank.rank, planned.nodes, planned.grid.text(),
               gigabytes(rank.weight_bytes), gigabytes(rank.cache_bytes));
    std::vector<std::vector<std::string>> rows;
    for (const model::ClusterStep& step : rank.steps)
      rows.push_back({step.name, std::to_string(step.times), fmt::format("{:.1f}", step.work.bytes * 1e-6),
                      fmt::format("{:.1f}", step.received_bytes * 1e-6), fmt::format("{:.3f}", step.seconds * 1e3),
                      std::string(1, step.binding)});
    fmt::print("{}", table({"step", "times", "MB moved", "MB received", "ms", "bound"}, rows, {false, true, true, true, true, false}));
  }
  fmt::print("\na pass of {} tokens: {:.3f} ms ({}); {:.1f} tokens/s{}\n", planned.plan.tokens, planned.plan.seconds * 1e3,
             bounds_text(planned.plan), planned.tokens_a_second(), planned.plan.stages.size() > 1 ? " with a batch on each stage" : "");
}

void print_table(const std::vector<Planned>& all) {
  fmt::print(
      "| nodes | split | GB of weights | GB of cache | GB of weights read | MB received | collectives | ms a pass | bound by | tokens/s "
      "|\n| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |\n");
  for (const Planned& one : all) {
    std::int64_t collectives = 0;
    for (const model::RankPlan& rank : one.plan.stages) collectives = std::max(collectives, rank.collectives);
    fmt::print("| {} | `{}` | {} | {} | {} | {:.1f} | {} | {:.1f} | {} | {:.0f} |\n", one.nodes, one.grid.text(),
               gigabytes(one.most(&model::RankPlan::weight_bytes)), gigabytes(one.most(&model::RankPlan::cache_bytes)),
               gigabytes(one.most(&model::RankPlan::read_bytes)), one.most(&model::RankPlan::received_bytes) * 1e-6, collectives,
               one.plan.seconds * 1e3, bounds_text(one.plan), one.tokens_a_second());
  }
}

}  // namespace

void ClusterOptions::add(CLI::App& command, CLI::Option* plan) {
  auto* option = command.add_option("--nodes", nodes,
                                    "With --plan: simulate so many nodes of one rank each, with the limits below; a list gives a table");
  option->delimiter(',')->needs(plan);
  const auto limit = [&](const char* name, double& value, const char* what) {
    command.add_option(name, value, what)->needs(option)->check(above_zero())->capture_default_str();
  };
  limit("--R", limits.read, "Of a node: GB/s from memory");
  limit("--F", limits.fma, "Of a node: GFLOP/s of fp32 multiply-adds");
  limit("--V", limits.dot8, "Of a node: GOP/s of 8-bit products");
  limit("--link", limits.link, "Of a node: GB/s that it receives");
  limit("--latency", limits.latency, "Microseconds that a collective takes at least");
}

void show_cluster(const ClusterOptions& options, const model::LayerRequest& request, const model::Grid& grid, bool outer, bool json) {
  std::vector<Planned> all;
  for (const std::int64_t nodes : options.nodes) {
    const bool asked = grid.ranks() > 1;
    if (asked && grid.ranks() != nodes)
      throw Error(ErrorCode::bad_option, "", "--nodes", fmt::format("is {}, but {} are {} ranks", nodes, grid.text(), grid.ranks()));
    const model::Grid split =
        asked ? grid : model::grid_of_nodes(request.config, nodes, static_cast<std::int64_t>(request.lengths.size()), outer);
    all.push_back({nodes, split, model::plan_cluster(request, split, options.limits, outer)});
  }
  if (json) {
    io::Json list = io::Json::array();
    for (const Planned& one : all) list.push_back(to_json(one));
    fmt::print("{}\n", io::json_text(list, 2));
  } else if (all.size() == 1) {
    print_steps(all.front(), options.limits);
  } else {
    print_table(all);
  }
}

}  // namespace dodona::tools
