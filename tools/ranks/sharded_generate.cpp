#include "sharded_generate.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/bytes.h"
#include "model/ranks/rank_state.h"
#include "model/run.h"
#include "mpi_job.h"
#include "rank_process.h"
#include "sharded_layer.h"

namespace dodona::tools {
namespace {

using Texts = std::vector<std::vector<std::int64_t>>;

/// The report, whoever ran the ranks.
void show(const GenerateOnRanks& asked, const Texts& texts, std::int64_t rounds, std::int64_t accepted, const io::Json& ranks,
          const std::string& where) {
  io::Json json{{"model", asked.call.config.name},
                {"split", asked.grid.text()},
                {"prompts", asked.call.request.prompts},
                {"tokens", texts},
                {"rounds", rounds},
                {"ranks", ranks}};
  if (asked.call.request.draft_steps > 0) json["accepted"] = accepted;
  if (asked.text_of) {
    json["texts"] = io::Json::array();
    for (const auto& text : texts) json["texts"].push_back(asked.text_of(text));
  }
  const std::string report = io::json_text(json, 2) + "\n";
  if (!asked.output.empty()) io::write_file(asked.output, io::as_bytes(report));
  if (asked.json) {
    fmt::print("{}", report);
    return;
  }
  for (std::size_t r = 0; r < texts.size(); ++r) {
    std::string ids;
    for (const std::int64_t token : texts[r]) ids += (ids.empty() ? "" : ",") + std::to_string(token);
    fmt::print("{}{}\n", texts.size() > 1 ? fmt::format("request {}: ", r) : "", asked.text_of ? asked.text_of(texts[r]) : ids);
  }
  if (asked.quiet) return;
  fmt::print(stderr, "{} rounds on {} ranks {} ({})\n", rounds, ranks.size(), where, asked.grid.text());
  for (const io::Json& rank : ranks) {
    fmt::print(stderr, "rank {}  {}: {} layers, {:.3f} s of arithmetic, {:.1f} MB of weights read", rank["rank"].get<int>(),
               rank["part"].get<std::string>(), rank["layers"].get<int>(), rank["arithmetic_seconds"].get<double>(),
               rank["weight_bytes"].get<double>() * 1e-6);
    if (rank.contains("collectives"))
      fmt::print(stderr, ", {} collectives of {:.1f} MB, {:.3f} s; {:.3f} s in all, peak memory {:.0f} MB", rank["collectives"].get<int>(),
                 rank["collective_bytes"].get<double>() * 1e-6, rank["collective_seconds"].get<double>(), rank["seconds"].get<double>(),
                 rank["peak_memory_MB"].get<double>());
    fmt::print(stderr, "\n");
  }
  if (asked.call.request.draft_steps > 0) fmt::print(stderr, "{} drafted tokens accepted\n", accepted);
}

io::Json rank_json(const GenerateOnRanks& asked, std::int64_t rank, const model::RankWork& work) {
  return {{"rank", rank},
          {"part", part_text(asked.grid, asked.call.config, rank)},
          {"layers", work.layers},
          {"arithmetic_seconds", work.arithmetic},
          {"weight_bytes", work.weight_bytes}};
}

/// All that the tokens depend on; whose files the weights are may differ from rank to rank.
std::string facts_of(model::GenerateCall call) {
  const model::GenerateRequest& r = call.request;
  call.weights.clear();
  return io::json_text(key_of(call, "")) + fmt::format(" {} {} {}", r.max_new, r.end_token, r.chunk);
}

/// Another checkpoint has another norm.
std::string mark_of(const model::WeightSource& source) {
  const Tensor norm = source.get("model.norm.weight");
  return {norm.as<char>(), static_cast<std::size_t>(bytes_for(norm.dtype(), norm.elements()))};
}

}  // namespace

void add_grid(CLI::App& command, model::Grid& grid) {
  command.add_option("--tp", grid.tensor, "Ranks that share heads, intermediate columns and vocabulary: 2, 4, 6 or 8");
  command.add_option("--ep", grid.experts,
                     "Ranks, or groups of --tp ranks, that share the routed experts; changes no bit but with --experts trtllm, "
                     "flashinfer_cutlass and w4a8, whose ranks round a sum each");
  command.add_option("--pp", grid.pipeline, "Stages that share the layers, groups of --tp times --ep ranks; changes no bit");
  command.add_option("--dp-attention", grid.data,
                     "As many as --ep: each of its ranks has requests and caches of its own, and the experts meet the tokens of all; "
                     "changes no bit that --ep does not");
}

void generate_in_turns(const GenerateOnRanks& asked) {
  const model::ShardedResult result = model::generate_on_ranks(asked.call, asked.grid);
  io::Json ranks = io::Json::array();
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank)
    ranks.push_back(rank_json(asked, static_cast<std::int64_t>(rank), result.ranks[rank]));
  show(asked, result.texts, result.rounds, result.accepted, ranks, "of one process, one after the other");
}

int generate_over_mpi(const std::function<GenerateOnRanks()>& ready) {
  RankProcess process;
  MpiJob& job = process.job();
  GenerateOnRanks asked;
  std::unique_ptr<model::WeightSource> source;
  std::unique_ptr<model::RankState> state;
  process.begin([&]() -> Facts {
    asked = ready();
    if (asked.grid.ranks() != job.ranks())
      throw Error(ErrorCode::bad_option, "", asked.grid.text(),
                  fmt::format("are {} ranks, but mpirun started {}", asked.grid.ranks(), job.ranks()));
    model::check_grid(asked.call.config, asked.grid);
    model::request_of_rank(asked.call.request, asked.grid, job.rank());
    source =
        model::open_weights(asked.call.config, asked.call.weights, asked.call.weights_seed, asked.call.exec, asked.grid.shard(job.rank()));
    state = std::make_unique<model::RankState>(asked.call, source->description(), asked.grid, job.rank());
    return {{"configuration", model::config_json(asked.call.config, model::QuantSpelling::flat)},
            {"call", facts_of(asked.call) + " " + asked.grid.text()},
            {"set of weights", asked.call.weights.empty() ? std::to_string(asked.call.weights_seed) : mark_of(*source)},
            {"round of the state", std::to_string(state->round())}};
  });
  return process.run([&] {
    const model::Ranks ranks = job.groups(asked.grid);
    model::Generation generation(*source, asked.call.setting, model::request_of_rank(asked.call.request, asked.grid, job.rank()),
                                 asked.call.exec, ranks);
    const auto begin = std::chrono::steady_clock::now();
    model::RankWork work;
    state->take_up(generation);
    const auto count = [&](const model::LayerTiming& timing) {
      work.layers += 1, work.arithmetic += timing.arithmetic, work.weight_bytes += timing.work.weight_bytes;
    };
    const Texts texts = model::generate_with(generation, ranks, {.layer = count, .round = [&] { state->keep(generation, ranks); }});
    const MpiJob::Tally collectives = job.tally();
    io::Json mine = rank_json(asked, job.rank(), work);
    mine["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    mine["collectives"] = collectives.calls;
    mine["collective_bytes"] = collectives.bytes;
    mine["collective_seconds"] = collectives.seconds;
    mine["peak_memory_MB"] = peak_megabytes();
    const std::vector<std::string> all = job.gather(io::json_text(mine));
    if (job.rank() != 0) return;
    io::Json list = io::Json::array();
    for (const std::string& one : all) list.push_back(io::parse_json(one));
    show(asked, texts, generation.steps(), generation.accepted(), list, "of a job");
  });
}

}  // namespace dodona::tools
