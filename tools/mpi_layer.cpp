#include "mpi_layer.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>

#include "common.h"
#include "dodona/error.h"
#include "dodona/version.h"
#include "io/safetensors.h"
#include "model/ranks/sharded_run.h"
#include "mpi_job.h"

namespace dodona::tools {
namespace {

std::string bytes(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
  return {dense.as<char>(), static_cast<std::size_t>(bytes_for(dense.dtype(), dense.elements()))};
}

/// What ranks must have in common. Of the weights, those that all ranks hold: another checkpoint has other norms.
std::vector<std::pair<std::string, std::string>> facts_of(const model::LayerRequest& request, const model::Grid& grid,
                                                          const model::LayerRun* run) {
  std::string contracts, weights = request.weights.empty() ? std::to_string(request.seed) : std::string();
  for (const auto& op : registry().all()) contracts += std::string(op->name()) + ":" + std::to_string(op->contract_version()) + "\n";
  if (run != nullptr)
    for (const Tensor& norm : {run->weights().input_layernorm, run->weights().post_attention_layernorm, run->weights().kv_a_layernorm})
      weights += bytes(norm);
  return {
      {"version", version()},
      {"set of contracts", contracts},
      {"configuration", model::config_json(request.config, model::QuantSpelling::flat)},
      {"step", io::json_text(model::setting_json(request)) + fmt::format(" {} {} {}", grid.tensor, grid.experts, name(request.exec.mode))},
      {"set of weights", weights}};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double peak_megabytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

/// The others would wait for this rank: it says why it fails, and mpirun ends them.
[[noreturn]] void leave(const MpiJob& job, const std::string& why) {
  fmt::print(stderr, "dodona: rank {} of {}: {}\n", job.rank(), job.ranks(), why);
  std::fflush(stderr);
  std::_Exit(exit_cannot);
}

void show(const io::Json& report, bool json, const std::string& step) {
  if (json) {
    fmt::print("{}\n", io::json_text(report, 2));
    return;
  }
  fmt::print("{}, on {} ranks (--tp {} --ep {})\n\n", step, report["ranks"].size(), report["tp"].get<int>(), report["ep"].get<int>());
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

int run_layer_over_mpi(const model::LayerRequest& request, const model::Grid& grid, const ShardedOptions& options,
                       const std::string& step) {
  MpiJob job;
  std::string error;
  std::unique_ptr<model::LayerRun> run;
  const auto begin = std::chrono::steady_clock::now();
  try {
    if (grid.ranks() != job.ranks())
      throw Error(ErrorCode::bad_option, "", "--tp",
                  fmt::format("times --ep is {}, but mpirun started {} ranks", grid.ranks(), job.ranks()));
    model::check_grid(request.config, grid);
    run = std::make_unique<model::LayerRun>(model::request_of_rank(request, grid, job.rank()));
  } catch (const std::exception& failure) {
    error = std::string("fails: ") + failure.what();
  }
  try {
    job.agree(error, facts_of(request, grid, run.get()));
  } catch (const Error& failure) {
    // All ranks know: one of them says it, and the others stay until it has, for mpirun ends all when the first one goes.
    if (job.rank() == 0) fmt::print(stderr, "dodona: {}\n", failure.what());
    std::fflush(stderr);
    job.gather("");
    return exit_cannot;
  }
  try {
    const model::Ranks groups = job.groups(grid);
    model::LayerRun::Result best = run->run({}, nullptr, groups);
    const double load_seconds = seconds_since(begin) - best.seconds();
    double fastest = std::numeric_limits<double>::infinity();
    MpiJob::Tally collectives;
    for (std::int64_t i = 0; i < options.runs; ++i) {
      job.gather("");  // together
      const MpiJob::Tally before = job.tally();
      const auto start = std::chrono::steady_clock::now();
      best = run->run({}, nullptr, groups);
      const double seconds = seconds_since(start);
      if (seconds >= fastest) continue;
      fastest = seconds;
      const MpiJob::Tally after = job.tally();
      collectives = {after.calls - before.calls, after.bytes - before.bytes, after.seconds - before.seconds};
    }
    const std::string digest = model::digest_of(best.output);
    const std::vector<std::string> digests = job.gather(digest);
    for (std::size_t r = 0; r < digests.size(); ++r)
      if (digests[r] != digest) throw std::logic_error(fmt::format("ends with other bits than rank {}", r));
    const io::Json mine{{"rank", job.rank()},
                        {"part", part_text(grid, request.config, job.rank())},
                        {"threads", request.exec.threads},
                        {"weight_bytes", best.work().weight_bytes},
                        {"seconds", fastest},
                        {"collectives", collectives.calls},
                        {"collective_bytes", collectives.bytes},
                        {"collective_seconds", collectives.seconds},
                        {"load_seconds", load_seconds},
                        {"peak_memory_MB", peak_megabytes()}};
    const std::vector<std::string> all = job.gather(io::json_text(mine));
    if (job.rank() != 0) return exit_pass;
    io::Json list = io::Json::array();
    for (const std::string& one : all) list.push_back(io::parse_json(one));
    if (!options.output.empty())
      io::write_safetensors(options.output, {{"hidden", best.output.hidden}, {"residual", best.output.residual}},
                            {{"model", request.config.name}, {"digest", digest}});
    show({{"model", request.config.name},
          {"layer", request.setting.layer},
          {"tp", grid.tensor},
          {"ep", grid.experts},
          {"digest", digest},
          {"ranks", list}},
         options.json, step);
  } catch (const std::exception& failure) {
    leave(job, failure.what());
  }
  return exit_pass;
}

}  // namespace dodona::tools
