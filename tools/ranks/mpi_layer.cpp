#include "mpi_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "dodona/error.h"
#include "io/safetensors.h"
#include "io/stopwatch.h"
#include "model/ranks/sharded_run.h"
#include "rank_process.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

std::string bytes(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
  return {dense.as<char>(), static_cast<std::size_t>(bytes_for(dense.dtype(), dense.elements()))};
}

/// What ranks must have in common. Of the weights, those that all ranks hold: another checkpoint has other norms.
Facts facts_of(const model::LayerRequest& request, const model::Grid& grid, const model::LayerRun* run) {
  std::string weights = request.weights.empty() ? std::to_string(request.seed) : std::string();
  if (run != nullptr)
    for (const Tensor& norm : {run->weights().input_layernorm, run->weights().post_attention_layernorm, run->weights().kv_a_layernorm})
      weights += bytes(norm);
  return {
      {"configuration", model::config_json(request.config, model::QuantSpelling::flat)},
      {"step", io::json_text(model::setting_json(request)) + fmt::format(" {} {} {}", grid.tensor, grid.experts, name(request.exec.mode))},
      {"set of weights", weights}};
}

/// One run of the step on this rank.
struct Times {
  double wall = 0;
  double ops = 0;  ///< as of a layer in one process: what lies between them is the trace's
  MpiJob::Tally collectives = {};
  double slowest = std::numeric_limits<double>::infinity();  ///< rank's seconds()

  double seconds() const { return ops + collectives.seconds; }
};

double slowest_of(const MpiJob& job, double seconds) {
  double slowest = 0;
  for (const std::string& one : job.gather(fmt::format("{}", seconds))) slowest = std::max(slowest, std::strtod(one.c_str(), nullptr));
  return slowest;
}

void show(const io::Json& report, bool json, const std::string& step) {
  if (json) {
    fmt::print("{}\n", io::json_text(report, 2));
    return;
  }
  fmt::print("{}, on {} ranks ({})\n\n", step, report["ranks"].size(), report["split"].get<std::string>());
  for (const io::Json& rank : report["ranks"])
    fmt::print(
        "rank {}  {}: {} threads, reads {:.1f} MB of weights, {:.3f} ms, of which {} collectives {:.3f} ms; weights made ready in {:.2f} "
        "s, peak memory {:.0f} MB\n",
        rank["rank"].get<int>(), rank["part"].get<std::string>(), rank["threads"].get<int>(), rank["weight_bytes"].get<double>() * 1e-6,
        rank["seconds"].get<double>() * 1e3, rank["collectives"].get<int>(), rank["collective_seconds"].get<double>() * 1e3,
        rank["load_seconds"].get<double>(), rank["peak_memory_MB"].get<double>());
  fmt::print("\nall ranks end with the same bits\ndigest {}\n", report["digest"].get<std::string>());
}

}  // namespace

int run_layer_over_mpi(const std::function<LayerOnRanks()>& ready) {
  RankProcess process;
  MpiJob& job = process.job();
  LayerOnRanks asked;
  std::unique_ptr<model::LayerRun> run;
  const io::Stopwatch loading;
  process.begin([&] {
    asked = ready();
    if (asked.grid.ranks() != job.ranks())
      throw Error(ErrorCode::bad_option, "", "--tp",
                  fmt::format("times --ep is {}, but mpirun started {} ranks", asked.grid.ranks(), job.ranks()));
    model::check_grid(asked.request.config, asked.grid);
    run = std::make_unique<model::LayerRun>(model::request_of_rank(asked.request, asked.grid, job.rank()));
    return facts_of(asked.request, asked.grid, run.get());
  });
  const model::LayerRequest& request = asked.request;
  const model::Grid& grid = asked.grid;
  const ShardedOptions& options = asked.options;
  return process.run([&] {
    const model::Ranks groups = job.groups(grid);
    model::LayerRun::Result best = run->run({}, nullptr, groups);
    const double load_seconds = loading.seconds() - best.seconds();
    Times fastest;
    for (std::int64_t i = 0; i < options.runs; ++i) {
      job.gather("");  // together
      const MpiJob::Tally before = job.tally();
      const io::Stopwatch step;
      model::LayerRun::Result one = run->run({}, nullptr, groups);
      Times times{.wall = step.seconds(), .ops = one.seconds(), .collectives = job.tally() - before};
      times.slowest = slowest_of(job, times.seconds());
      if (times.slowest >= fastest.slowest) continue;
      fastest = times;
      best = std::move(one);
    }
    const std::string digest = model::digest_of(best.output);
    const std::vector<std::string> digests = job.gather(digest);
    for (std::size_t r = 0; r < digests.size(); ++r)
      if (digests[r] != digest) throw std::logic_error(fmt::format("ends with other bits than rank {}", r));
    const io::Json mine{{"rank", job.rank()},
                        {"part", part_text(grid, request.config, job.rank())},
                        {"threads", request.exec.threads},
                        {"weight_bytes", best.work().weight_bytes},
                        {"seconds", fastest.seconds()},
                        {"wall_seconds", fastest.wall},
                        {"collectives", fastest.collectives.calls},
                        {"collective_bytes", fastest.collectives.bytes},
                        {"collective_seconds", fastest.collectives.seconds},
                        {"load_seconds", load_seconds},
                        {"peak_memory_MB", peak_megabytes()}};
    const std::vector<std::string> all = job.gather(io::json_text(mine));
    if (job.rank() != 0) return;
    io::Json list = io::Json::array();
    for (const std::string& one : all) list.push_back(io::parse_json(one));
    if (!options.output.empty())
      io::write_safetensors(options.output, {{"hidden", best.output.hidden}, {"residual", best.output.residual}},
                            {{"model", request.config.name}, {"digest", digest}});
    show({{"model", request.config.name},
          {"layer", request.setting.layer},
          {"tp", grid.tensor},
          {"ep", grid.experts},
          {"split", grid.text()},
          {"digest", digest},
          {"ranks", list}},
         options.json, asked.step);
  });
}

}  // namespace dodona::tools
