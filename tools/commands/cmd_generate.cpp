#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "dodona/error.h"
#include "io/bytes.h"
#include "io/stopwatch.h"
#include "io/tokenizer.h"
#include "model/generate_run.h"
#include "model/run.h"
#include "simd/limits.h"
#include "tools/interrupt.h"
#include "tools/layer_graph.h"
#include "tools/model_options.h"
#include "tools/output_files.h"
#include "tools/ranks/cluster_text.h"
#include "tools/ranks/mpi_job.h"
#include "tools/ranks/rank_process.h"
#include "tools/ranks/sharded_generate.h"

namespace dodona::tools {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int64_t>;

struct GenerateOptions {
  ModelOptions model;
  KernelOptions kernels;
  GraphOptions graphs;
  ExecOptions exec;
  std::vector<std::string> prompt_ids, prompts;
  std::string weights, tokenizer, speculative, output, experts, rounding = "bf16";
  std::optional<std::int64_t> draft_steps, draft_topk, draft_tokens;
  std::optional<std::uint64_t> weights_seed;
  model::GenerateCall call;
  bool plan = false;
  model::Grid grid;
  ClusterOptions cluster;
  std::int64_t batch = 1, kv_len = 1024;  ///< of a plan
};

Tokens parse_ids(const std::string& text) {
  Tokens ids;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      throw Error(ErrorCode::bad_option, "", "--prompt-ids", "must be tokens, 5,17,3, got '" + text + "'");
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

std::string clock_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min {:02.0f} s", std::floor(seconds / 60), std::floor(seconds - 60 * std::floor(seconds / 60)));
}

/// The least that work takes on a machine of these limits.
double least_seconds(const model::Work& work, const Limits& limits) {
  return std::max({work.bytes / (limits.read * 1e9), work.flops / (limits.fma * 1e9), work.int8_ops / (limits.dot8 * 1e9)});
}

/// Of a layer's arithmetic, what this machine's limits ask.
double share(const model::LayerTiming& timing, const Limits& limits) {
  return timing.arithmetic > 0 ? least_seconds(timing.work, limits) / timing.arithmetic : 0;
}

/// What needs no limit to be measured.
std::string rate_text(const model::LayerTiming& timing) {
  const double seconds = std::max(timing.arithmetic, 1e-9);
  return fmt::format("{:.1f} GB/s, {:.0f} Gop/s", timing.work.bytes / seconds * 1e-9,
                     (timing.work.flops + timing.work.int8_ops) / seconds * 1e-9);
}

/// What the run took, and what is still to come.
class Meter {
 public:
  Meter(std::int64_t layers, bool quiet) : layers_(layers), quiet_(quiet), tty_(isatty(STDERR_FILENO) != 0) {}

  void begin_round(std::int64_t rounds_left) { rounds_left_ = rounds_left; }
  /// Of a NextN layer.
  void draft(const model::LayerTiming& timing) {
    making += timing.making, arithmetic += timing.arithmetic;
    weight_bytes += timing.work.weight_bytes;
    each.push_back(timing);
  }
  void layer(const model::LayerTiming& timing) {
    draft(timing);
    ++passes_;
    if (quiet_) return;
    const double pass = clock_.seconds() / static_cast<double>(passes_);
    const double left = pass * static_cast<double>(layers_ - 1 - timing.layer + std::max<std::int64_t>(rounds_left_ - 1, 0) * layers_);
    const std::string line = fmt::format("layer {} of {}: {} of weights, {} of arithmetic ({}); {} left", timing.layer + 1, layers_,
                                         clock_text(timing.making), clock_text(timing.arithmetic), rate_text(timing), clock_text(left));
    fmt::print(stderr, "{}", tty_ ? fmt::format("\r{:<90}", line) : line + "\n");
    std::fflush(stderr);
    drawn_ = tty_;
  }
  void finish() {
    if (drawn_) fmt::print(stderr, "\r{:<90}\r", "");
    drawn_ = false;
  }
  std::int64_t passes() const { return passes_; }

  double making = 0, arithmetic = 0;
  double weight_bytes = 0;
  std::vector<model::LayerTiming> each;

 private:
  io::Stopwatch clock_;
  std::int64_t layers_, rounds_left_ = 1, passes_ = 0;
  bool quiet_, tty_, drawn_ = false;
};

/// The tokenizer of --prompt: the one given, or the one beside the weights or the configuration.
io::Tokenizer open_tokenizer(const GenerateOptions& options, const model::ModelConfig& config) {
  std::string path = options.tokenizer;
  for (const std::string& folder : {options.weights, options.model.config})
    if (path.empty() && !folder.empty() && fs::exists(fs::path(folder) / "tokenizer.json")) path = fs::path(folder) / "tokenizer.json";
  if (path.empty())
    throw Error(
        ErrorCode::missing_argument, "", "--tokenizer",
        "is missing: no tokenizer.json lies beside weights or configuration (one that has only tiktoken.model, as Kimi-K2, needs one "
        "made of it)");
  // It holds ranks alone: how text is split and which tokens are special, only the model's own Python code says.
  if (fs::path(path).filename() == "tiktoken.model")
    throw Error(
        ErrorCode::unsupported, "", "--tokenizer",
        "is " + path + ", tiktoken's format without its pattern of splits: make a tokenizer.json of it (transformers' " +
            "convert_slow_tokenizer.TikTokenConverter, with pattern and special tokens of the model's tokenization file), or give " +
            "tokens with --prompt-ids");
  io::Tokenizer tokenizer = io::Tokenizer::open(path);
  if (tokenizer.largest() >= config.vocab_size)
    throw Error(ErrorCode::bad_value, "", "",
                path + ": gives tokens up to " + std::to_string(tokenizer.largest()) + ", but the vocabulary of " + config.name +
                    " ends at " + std::to_string(config.vocab_size - 1));
  return tokenizer;
}

/// Options as upstream has them; with one beam the drafts are a chain, whose length says all.
void take_drafts(const GenerateOptions& options, model::GenerateRequest& request) {
  const auto fail = [](const char* option, const std::string& message) { throw Error(ErrorCode::bad_option, "", option, message); };
  if (options.speculative.empty()) {
    for (const auto& [option, given] : {std::pair{"--speculative-num-steps", options.draft_steps.has_value()},
                                        {"--speculative-eagle-topk", options.draft_topk.has_value()},
                                        {"--speculative-num-draft-tokens", options.draft_tokens.has_value()}})
      if (given) fail(option, "is given without --speculative nextn");
    return;
  }
  if (options.speculative != "nextn") fail("--speculative", "must be nextn, got '" + options.speculative + "'");
  request.draft_steps = options.draft_steps.value_or(3);
  request.draft_topk = options.draft_topk.value_or(1);
  if (request.draft_topk > 1 && !options.draft_tokens)
    fail("--speculative-num-draft-tokens", "is missing: nodes of a tree, the newest token counted");
  request.draft_tokens = options.draft_tokens.value_or(0);
}

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The folder of a checkpoint; empty: weights are synthesized.
std::string folder_of(const GenerateOptions& options) {
  return options.weights == "synthetic" ? "" : options.weights;
}

/// The configuration that is named, else the one beside the weights, dealt out as it can be.
model::ModelConfig config_of(const GenerateOptions& options) {
  if (options.weights_seed && !folder_of(options).empty())
    throw Error(ErrorCode::bad_option, "", "--weights-seed", "is given, but weights are those of " + options.weights);
  ModelOptions named = options.model;
  if (named.config.empty() && named.preset.empty()) named.config = folder_of(options);
  model::ModelConfig config = named.load("tiny");
  model::check_grid(config, options.grid);
  return config;
}

/// How every layer is run.
model::LayerSetting setting_of(const GenerateOptions& options, model::ModelConfig& config) {
  model::LayerSetting setting;
  setting.experts = options.experts;
  if (options.rounding == "off") setting.rounding = model::Rounding::off;
  setting = model::for_any_company(std::move(setting));
  options.kernels.apply(
      config, setting,
      {.stored = !folder_of(options).empty(), .any_layer = true, .drafts = !options.speculative.empty(), .tensor = options.grid.tensor});
  return setting;
}

/// A decode step, simulated: new tokens go through the layers as those of a prompt do, so that none depends on its company.
void plan(const GenerateOptions& options) {
  model::LayerRequest request;
  request.config = config_of(options);
  request.setting = setting_of(options, request.config);
  request.lengths = model::lengths_of(request.config, {options.kv_len}, options.batch, {"--batch", "--kv-len"});
  request.forward = model::Forward::extend;
  request.new_tokens.assign(request.lengths.size(), 1);
  request.exec = options.exec.exec();
  const auto source = model::open_weights(request.config, folder_of(options), 0, request.exec);
  for (std::int64_t layer = 0; layer < request.config.num_hidden_layers; ++layer) source->check_layer(layer);
  source->check_outer();
  ClusterOptions cluster = options.cluster;
  if (!cluster.given()) cluster.nodes = {options.grid.ranks()};
  show_cluster(cluster, request, options.grid, true, options.exec.json);
}

/// Reads what is asked for into `call`. Gives the tokenizer by which tokens are shown as texts; none where they are shown as numbers.
std::shared_ptr<io::Tokenizer> read_call(const GenerateOptions& options, model::GenerateCall& call) {
  if (call.resume && call.state.empty()) throw Error(ErrorCode::bad_option, "", "--resume", "needs --state FILE");
  if (options.prompt_ids.empty() == options.prompts.empty())
    throw Error(ErrorCode::bad_option, "", "--prompt", "or --prompt-ids is needed, and one of them alone");
  call.config = config_of(options);
  call.weights = folder_of(options), call.weights_seed = options.weights_seed.value_or(0);
  take_drafts(options, call.request);
  for (const std::string& ids : options.prompt_ids) call.request.prompts.push_back(parse_ids(ids));
  std::shared_ptr<io::Tokenizer> tokenizer;
  if (!options.prompts.empty() || !options.tokenizer.empty())
    tokenizer = std::make_shared<io::Tokenizer>(open_tokenizer(options, call.config));
  for (const std::string& text : options.prompts) call.request.prompts.push_back(tokenizer->encode(text));
  call.exec = options.exec.exec();
  call.setting = setting_of(options, call.config);
  check_output_files({{"--state", call.state}, {"--output", options.output}, {"--chrome-trace", options.graphs.chrome_trace}});
  return tokenizer;
}

/// What several ranks do.
GenerateOnRanks on_ranks(GenerateOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--graph", !options.graphs.graph.empty()},
                                                {"--chrome-trace", !options.graphs.chrome_trace.empty()}};
  for (const auto& [option, there] : given)
    if (there) throw Error(ErrorCode::unsupported, "", option, "is of one rank alone: ops of several have no common clock");
  GenerateOnRanks asked;
  asked.call = options.call;
  if (const auto tokenizer = read_call(options, asked.call))
    asked.text_of = [tokenizer](const Tokens& text) { return tokenizer->decode(text); };
  asked.grid = options.grid;
  asked.json = options.exec.json, asked.quiet = options.exec.quiet, asked.output = options.output;
  return asked;
}

/// What a run took, held against what this machine could do.
struct Told {
  const model::GenerateCall& call;
  const model::GenerateRun& run;
  const model::Generation& generation;
  const Meter& meter;
  double seconds, cpu_seconds, peak;
  std::vector<std::string> texts;  ///< where a tokenizer is there
  Limits limits;                   ///< zeros where nothing is told
  double least = 0;                ///< seconds that the layers ask of the limits

  double over_least() const { return least > 0 ? meter.arithmetic / least : 0.0; }
  /// Measured behind the run, which begins at once.
  void measure(const Exec& exec) {
    limits = measure_limits_of_steps(exec);
    for (const model::LayerTiming& layer : meter.each) least += least_seconds(layer.work, limits);
  }
};

io::Json to_json(const Told& told) {
  io::Json layers = io::Json::array();
  for (const model::LayerTiming& layer : told.meter.each)
    layers.push_back({{"layer", layer.layer},
                      {"making_seconds", layer.making},
                      {"arithmetic_seconds", layer.arithmetic},
                      {"least_seconds", least_seconds(layer.work, told.limits)},
                      {"share_of_limit", share(layer, told.limits)}});
  io::Json json{{"model", told.call.config.name},
                {"weights", told.run.source().description()},
                {"prompts", told.call.request.prompts},
                {"tokens", told.generation.texts()},
                {"rounds", told.generation.steps()},
                {"layers", told.meter.passes()},
                {"seconds", told.seconds},
                {"cpu_seconds", told.cpu_seconds},
                {"making_seconds", told.meter.making},
                {"arithmetic_seconds", told.meter.arithmetic},
                {"least_seconds", told.least},
                {"arithmetic_over_least", told.over_least()},
                {"weight_bytes", told.meter.weight_bytes},
                {"each_layer", layers},
                {"peak_memory_MB", told.peak}};
  if (!told.texts.empty()) json["texts"] = told.texts;
  if (told.call.request.draft_steps > 0) json["accepted"] = told.generation.accepted();
  return json;
}

std::size_t count_tokens(const model::Generation& generation) {
  std::size_t tokens = 0;
  for (const Tokens& text : generation.texts()) tokens += text.size();
  return tokens;
}

/// Tokens or texts on stdout, and on stderr what they took.
void show(const Told& told, bool quiet) {
  const std::vector<Tokens>& texts = told.generation.texts();
  for (std::size_t r = 0; r < texts.size(); ++r) {
    std::string ids;
    for (const std::int64_t token : texts[r]) ids += (ids.empty() ? "" : ",") + std::to_string(token);
    fmt::print("{}{}\n", texts.size() > 1 ? fmt::format("request {}: ", r) : "", told.texts.empty() ? ids : told.texts[r]);
  }
  if (quiet) return;
  fmt::print(
      stderr,
      "{} tokens in {} rounds, {} layers: {}; {} of arithmetic, {:.2f} times the {} that the layers ask of this machine's limits; {} of "
      "making weights; peak memory {:.0f} MB\n",
      count_tokens(told.generation), told.generation.steps(), told.meter.passes(), clock_text(told.seconds),
      clock_text(told.meter.arithmetic), told.over_least(), clock_text(told.least), clock_text(told.meter.making), told.peak);
  if (told.call.request.draft_steps > 0) fmt::print(stderr, "{} drafted tokens accepted\n", told.generation.accepted());
}

void generate(GenerateOptions& options) {
  model::GenerateCall& call = options.call;
  const auto tokenizer = read_call(options, call);
  ModelGraph graph;
  if (options.graphs.any()) call.exec.tracer = graph.layers().calls();
  const Interrupt interrupt;
  model::GenerateRun run(call);
  model::Generation& generation = run.generation();
  const io::Stopwatch clock;
  const double cpu_before = cpu_seconds();
  Meter meter(call.config.num_hidden_layers, options.exec.quiet);
  model::LanguageModel::Hooks watching;
  if (options.graphs.any()) watching = graph.hooks();
  watching.after_draft = [&](const model::LayerTiming& timing) { meter.draft(timing); };
  generation.watch(std::move(watching));
  const bool done = run.run({.round = [&](std::int64_t rounds_left) { meter.begin_round(rounds_left); },
                             .layer =
                                 [&](const model::LayerTiming& timing) {
                                   meter.layer(timing);
                                   return !Interrupt::asked();
                                 }});
  meter.finish();
  if (!done)
    interrupt.check(call.state.empty() ? "nothing was written; --state FILE would have kept what was done"
                                       : fmt::format("{} holds what was done, up to layer {} of round {}; --resume goes on from it",
                                                     call.state, meter.each.back().layer + 1, generation.steps() + 1));
  Told told{call, run, generation, meter, clock.seconds(), cpu_seconds() - cpu_before, peak_megabytes(), {}, {}};
  if (tokenizer)
    for (const Tokens& text : generation.texts()) told.texts.push_back(tokenizer->decode(text));
  if (!options.exec.quiet || options.exec.json || !options.output.empty()) told.measure(call.exec);
  const std::string text = io::json_text(to_json(told), 2) + "\n";
  if (!options.output.empty()) io::write_file(options.output, io::as_bytes(text));
  if (options.graphs.any())
    options.graphs.show(graph.graph(), {call.config.name, fmt::format("{} tokens of {} requests in {} rounds", count_tokens(generation),
                                                                      call.request.prompts.size(), generation.steps())});
  if (!options.graphs.graph.empty()) return;
  if (options.exec.json) {
    fmt::print("{}", text);
    return;
  }
  show(told, options.exec.quiet);
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<GenerateOptions>();
  auto* command = app.add_subcommand(
      "generate",
      "Continue texts with a whole model: embedding, every layer, norm, head, sampler; weights stream through memory layer by layer. The "
      "tokens are the same for any number of threads, tier, chunk and company. Tokens go to stdout, progress to stderr");
  options->model.add(*command, "that of --weights, else tiny");
  options->model.add_linear(*command);
  options->kernels.add(*command);
  command->add_option("--weights", options->weights, "Folder of a checkpoint, or synthetic (default)");
  command->add_option("--weights-seed", options->weights_seed, "Seed of synthetic weights (default 0)")->check(whole_number());
  command->add_option("--prompt-ids", options->prompt_ids, "Tokens of a prompt, 5,17,3; may be repeated: one request each")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--prompt", options->prompts,
                   "Text of a prompt, likewise; needs a tokenizer.json and Hugging Face's Python package tokenizers, which reads it "
                   "(python3, or what DODONA_PYTHON names)")
      ->expected(1)
      ->take_all();
  command->add_option(
      "--tokenizer", options->tokenizer,
      "tokenizer.json, by which tokens are shown as text (default with --prompt: beside weights or configuration; with --prompt-ids "
      "none: tokens are shown as numbers)");
  command->add_option("--max-new", options->call.request.max_new, "New tokens of each request at most (default 16)");
  auto* temperature =
      command->add_option("--temperature", options->call.request.sampling.temperature,
                          "0 for the most probable tokens (default; filters and seed change nothing then, as upstream's do not), else "
                          "tokens are sampled");
  command->add_option("--top-k", options->call.request.sampling.top_k, "Sample among so many of the most probable (default -1: all)")
      ->needs(temperature);
  command->add_option("--top-p", options->call.request.sampling.top_p, "Sample among the most probable that hold this much (default 1)")
      ->needs(temperature);
  command
      ->add_option("--min-p", options->call.request.sampling.min_p,
                   "Sample among those at least this share of the most probable (default 0)")
      ->needs(temperature);
  command->add_option("--seed", options->call.request.seed, "Seed of the draws; request r draws from seed + r (default 0)")
      ->needs(temperature)
      ->check(whole_number());
  command->add_option("--end-token", options->call.request.end_token, "Token behind which a request is finished (default none)");
  command->add_option(
      "--speculative", options->speculative,
      "nextn: tokens are drafted by the model's NextN layer, as upstream's EAGLE worker drafts, and verified together; with "
      "temperature 0 the same text");
  command->add_option("--speculative-num-steps,--draft-steps", options->draft_steps, "Steps of a draft (default 3)")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--speculative-eagle-topk", options->draft_topk,
                   "Beams of a draft: with 1 (default) it is a chain, with more a tree, whose attention in the target has the tree's mask")
      ->check(CLI::Range(1, 64));
  command->add_option(
      "--speculative-num-draft-tokens,--draft-tokens", options->draft_tokens,
      "Tokens that are verified in a step, the newest one counted: of a chain steps + 1 (default), of a tree its best nodes");
  command->add_option("--chunk", options->call.request.chunk,
                      "Prompt tokens that go through the layers together at most (default 512); changes no token");
  command->add_option("--experts", options->experts, "Which backend runs the routed experts (default: the first that takes their weights)");
  command->add_option("--rounding", options->rounding, "bf16 (default): activations are rounded between ops; off: they stay fp32")
      ->check(CLI::IsMember({"bf16", "off"}));
  command->add_option(
      "--state", options->call.state,
      "Keep tokens and caches in this file, anew behind every round, once a minute of a long one, and where Ctrl-C stops it; of several "
      "ranks, behind every round, in FILE.rankRofN.K of each, which FILE names");
  command->add_flag("--resume", options->call.resume,
                    "Go on from the --state file of the same call, and the same split, by the same version, at the layer that it reached");
  command->add_option("-o,--output", options->output, "Write what --json prints to this file");
  options->graphs.add(*command, " of tokens, of all rounds: the layers' ops, and what is around them");
  command->add_option("--mode", options->exec.mode,
                      "fast (default) or golden. A GPU's bits depend on how many tokens go together, these tokens do not: dodona layer has "
                      "its modes");
  options->exec.add_threads_and_isa(*command);
  options->exec.add_json(*command)->excludes(command->get_option("--graph"));
  command->add_flag("--quiet", options->exec.quiet, "No progress on stderr");
  options->call.request.sampling.temperature = 0;
  add_grid(*command, options->grid);
  auto* plan_option = command->add_flag("--plan", options->plan, "Say what a decode step takes on each node; run nothing");
  options->cluster.add(*command, plan_option);
  command->add_option("--batch", options->batch, "Requests of the plan (default 1)")->needs(plan_option)->check(above_zero());
  command->add_option("--kv-len", options->kv_len, "Tokens of each request of the plan, the new one included (default 1024)")
      ->needs(plan_option)
      ->check(integer());
  // What a plan says nothing of.
  for (const char* name : {"--weights-seed",
                           "--prompt-ids",
                           "--prompt",
                           "--tokenizer",
                           "--max-new",
                           "--temperature",
                           "--top-k",
                           "--top-p",
                           "--min-p",
                           "--seed",
                           "--end-token",
                           "--speculative",
                           "--speculative-num-steps",
                           "--speculative-eagle-topk",
                           "--speculative-num-draft-tokens",
                           "--chunk",
                           "--state",
                           "--resume",
                           "--output",
                           "--graph",
                           "--chrome-trace",
                           "--mode"})
    command->get_option(name)->excludes(plan_option);
  command->footer(
      "With --tp, --ep, --pp and --dp-attention the ranks of this process take turns; mpirun -n N dodona generate, with N = tp * ep * pp, "
      "gives\neach a process that reads and readies its share of the weights alone. The tokens are the same either way; but for --tp, "
      "whose "
      "partial sums\nare rounded as upstream's, they are those without.\n"
      "The last line, and --json, say what the layers' arithmetic took (arithmetic_seconds), what their bytes and operations ask of this "
      "machine's\nmeasured limits, layer by layer (least_seconds), how many times that it is (arithmetic_over_least), and what making "
      "weights took\n(making_seconds).");
  command->callback([options, &exit_code] {
    if (options->plan) return plan(*options);
    if (started_ranks() > 1) {
      exit_code = generate_over_mpi([&] { return on_ranks(*options); });
    } else if (options->grid.ranks() > 1) {
      generate_in_turns(on_ranks(*options));
    } else {
      generate(*options);
    }
  });
}

}  // namespace dodona::tools
