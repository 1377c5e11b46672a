#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "common.h"
#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "model/layer_call.h"
#include "model/plan.h"
#include "model/trail.h"
#include "simd/limits.h"
#include "trail_text.h"

namespace dodona::tools {
namespace {

struct LayerOptions : ExecOptions {
  std::string preset, config, weights, phase = "decode", residual = "fused", rounding = "bf16", output, trail, against;
  std::vector<std::int64_t> kv_len{1024};
  std::optional<std::int64_t> layer, batch, repeat;
  std::uint64_t seed = 0, page_seed = 0;
  bool plan = false, fused_shared = false, trail_tensors = false;
};

/// The layer asked for; by default the first MoE layer.
std::int64_t layer_of(const LayerOptions& options, const model::ModelConfig& config) {
  if (!options.layer) return model::default_layer(config);
  config.check_layer(*options.layer);
  return *options.layer;
}

void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t most, const char* why = "") {
  if (value < least || value > most)
    throw Error(ErrorCode::bad_option, "", option,
                "is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " + std::to_string(most) + why);
}

/// One length per request: a list, or one value for all.
std::vector<std::int64_t> lengths_of(const LayerOptions& options, const model::ModelConfig& config) {
  const auto given = static_cast<std::int64_t>(options.kv_len.size());
  const std::int64_t batch = options.batch.value_or(given);
  check_range("--batch", batch, 1, 1 << 20);
  if (given != 1 && given != batch)
    throw Error(ErrorCode::bad_option, "", "--kv-len",
                "has " + std::to_string(given) + " values, expected one, or one for each of " + std::to_string(batch) + " requests");
  for (const std::int64_t length : options.kv_len)
    check_range("--kv-len", length, 1, config.max_position_embeddings, " (max_position_embeddings)");
  std::vector<std::int64_t> lengths = options.kv_len;
  lengths.resize(static_cast<std::size_t>(batch), options.kv_len.front());
  return lengths;
}

std::string megabytes(double bytes) {
  if (bytes >= 1e8) return fmt::format("{:.0f} MB", bytes * 1e-6);
  if (bytes >= 1e5) return fmt::format("{:.1f} MB", bytes * 1e-6);
  return fmt::format("{:.1f} kB", bytes * 1e-3);
}

/// The limit that binds a piece of work, the time that it allows at least, and its letter.
struct Bound {
  char letter = 'R';
  double seconds = 0;
};
Bound bound_of(const model::Work& work, const Limits& limits) {
  Bound bound{'R', work.bytes / (limits.read * 1e9)};
  if (const double s = work.flops / (limits.fma * 1e9); s > bound.seconds) bound = {'F', s};
  if (const double s = work.int8_ops / (limits.dot8 * 1e9); s > bound.seconds) bound = {'V', s};
  return bound;
}

/// Branches of the execution tree, in the form of the source documents.
std::vector<std::string> branches(const std::vector<model::OpRecord>& records) {
  std::vector<std::string> texts;
  texts.reserve(records.size());
  const auto has_sibling = [&](std::size_t i, int depth) {
    for (std::size_t j = i + 1; j < records.size() && records[j].depth >= depth; ++j)
      if (records[j].depth == depth) return true;
    return false;
  };
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::string text;
    for (int depth = 1; depth <= records[i].depth; ++depth) {
      const bool more = has_sibling(i, depth);
      if (depth == records[i].depth)
        text += more ? "├─ " : "└─ ";
      else
        text += more ? "│  " : "   ";
    }
    text += records[i].op;
    if (!records[i].note.empty()) text += " (" + records[i].note + ")";
    texts.push_back(text);
  }
  return texts;
}

/// Columns of a terminal that a text takes: box drawing is three bytes a column.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}
std::string padded(std::string text, std::size_t columns, bool right = false) {
  const std::size_t have = width(text);
  if (have >= columns) return text;
  return right ? std::string(columns - have, ' ') + text : text + std::string(columns - have, ' ');
}

/// Rows of cells; those after the third are aligned to the right.
void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += (i > 0 ? "  " : "") + padded(row[i], widths[i], i > 2);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

void print_plan(const model::Plan& plan, bool json, const model::ModelConfig& config, std::int64_t layer, std::size_t batch) {
  if (json) {
    io::Json ops = io::Json::array();
    for (const model::OpRecord& op : plan.ops)
      ops.push_back({{"op", op.op},
                     {"note", op.note},
                     {"shapes", op.shapes},
                     {"kernel", op.kernels},
                     {"bytes", op.work.bytes},
                     {"weight_bytes", op.work.weight_bytes},
                     {"flops", op.work.flops},
                     {"int8_ops", op.work.int8_ops}});
    fmt::print("{}\n", io::json_text({{"model", config.name},
                                      {"layer", layer},
                                      {"batch", batch},
                                      {"ops", ops},
                                      {"weight_bytes_read", plan.weight_bytes},
                                      {"weight_bytes_layer", plan.layer_weight_bytes},
                                      {"kv_cache_bytes", plan.cache_bytes}},
                                     2));
    return;
  }
  std::vector<std::vector<std::string>> rows{{"op", "shapes", "kernel", "weights", "bytes", "GFLOP", "G int8"}};
  double flops = 0, int8_ops = 0, bytes = 0;
  for (const model::OpRecord& op : plan.ops) {
    rows.push_back({op.op + (op.note.empty() ? "" : " (" + op.note + ")"), op.shapes, op.kernels,
                    op.work.weight_bytes > 0 ? megabytes(op.work.weight_bytes) : "", megabytes(op.work.bytes),
                    op.work.flops > 0 ? fmt::format("{:.3f}", op.work.flops * 1e-9) : "",
                    op.work.int8_ops > 0 ? fmt::format("{:.3f}", op.work.int8_ops * 1e-9) : ""});
    flops += op.work.flops;
    int8_ops += op.work.int8_ops;
    bytes += op.work.bytes;
  }
  print_rows(rows);
  fmt::print(
      "\nthe step reads {} of weights of the layer's {}, moves {}, and does {:.3f} GFLOP and {:.3f} G int8 operations; KV cache {}\n",
      megabytes(plan.weight_bytes), megabytes(plan.layer_weight_bytes), megabytes(bytes), flops * 1e-9, int8_ops * 1e-9,
      megabytes(plan.cache_bytes));
}

double peak_megabytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;
}

/// What a run gave.
struct Run {
  std::vector<model::OpRecord> records;
  model::LayerOutput output;
  double seconds() const { return records.front().seconds; }
  const model::Work& work() const { return records.front().work; }
};

struct Setting {
  model::ModelConfig config;
  std::int64_t layer = 0;
  std::vector<std::int64_t> lengths;
  Exec exec;
  model::Rounding rounding = model::Rounding::bf16;
  model::Residual residual = model::Residual::fused;
};

Run run_once(const LayerOptions& options, const Setting& s, const model::DecodeStep& step, model::LayerWeights& weights,
             model::PagedKvCache& cache, const model::Observer& observer = {}) {
  model::Trace trace(model::decode_book(s.config, s.layer, static_cast<std::int64_t>(s.lengths.size()), options.fused_shared),
                     model::decode_book(s.config, s.layer, 0, options.fused_shared), s.exec);
  if (observer) trace.observe(observer);
  Run run;
  run.output = model::decode(weights, step, cache, s.residual, trace);
  run.records = trace.records();
  return run;
}

// ---- trails

/// What two trails must have in common to be compared.
io::Json trail_setting(const LayerOptions& options, const Setting& s) {
  return {{"layer", s.layer},
          {"hidden_size", s.config.hidden_size},
          {"kv_len", s.lengths},
          {"seed", options.seed},
          {"residual", options.residual},
          {"rounding", options.rounding},
          {"fused_shared_expert", options.fused_shared}};
}

/// The cache before the step, [B, longest, row]; zeros beyond a request's history.
Tensor history_of(const Setting& s, const model::PagedKvCache& cache) {
  const Tensor& buffer = cache.buffer();
  const std::int64_t longest = *std::max_element(s.lengths.begin(), s.lengths.end());
  Tensor history(buffer.dtype(), {cache.requests(), longest, buffer.size(2)});
  for (std::int64_t b = 0; b < cache.requests(); ++b)
    for (std::int64_t j = 0; j + 1 < s.lengths[static_cast<std::size_t>(b)]; ++j)
      copy(buffer.slice(0, cache.slot(b, j), cache.slot(b, j) + 1).reshape({buffer.size(2)}),
           history.slice(0, b, b + 1).slice(1, j, j + 1).reshape({buffer.size(2)}));
  return history;
}

/// The tensor `input.NAME` of the reference in the place of `ours`, whose dtype and shape it must have.
void take_input(const model::TrailReference& reference, const std::string& name, Tensor& ours) {
  const Tensor theirs = reference.input(name);
  if (!theirs.defined()) return;
  if (!ours.defined()) throw Error(ErrorCode::bad_file, "", reference.path(), "holds input." + name + ", which this layer does not read");
  if (!(theirs.shape() == ours.shape()) || theirs.dtype() != ours.dtype())
    throw Error(ErrorCode::bad_shape, "", reference.path(),
                "holds input." + name + " as " + std::string(dodona::name(theirs.dtype())) + " " + to_string(theirs.shape()) +
                    ", expected " + std::string(dodona::name(ours.dtype())) + " " + to_string(ours.shape()));
  ours = theirs.clone();
}

void take_inputs(const model::TrailReference& reference, const Setting& s, model::DecodeStep& step, const model::PagedKvCache& cache) {
  take_input(reference, "hidden", step.hidden);
  take_input(reference, "residual", step.residual);
  Tensor history = history_of(s, cache);
  take_input(reference, "kv_cache", history);
  const Tensor& buffer = cache.buffer();
  for (std::int64_t b = 0; b < cache.requests(); ++b)
    for (std::int64_t j = 0; j + 1 < s.lengths[static_cast<std::size_t>(b)]; ++j)
      copy(history.slice(0, b, b + 1).slice(1, j, j + 1).reshape({buffer.size(2)}),
           buffer.slice(0, cache.slot(b, j), cache.slot(b, j) + 1).reshape({buffer.size(2)}));
}

void check_setting(const model::TrailReference& reference, const io::Json& mine) {
  if (!reference.is_trail()) return;
  for (const auto& [key, value] : mine.items()) {
    const io::Json* const theirs = io::find_field(reference.setting(), key, reference.path());
    if (theirs == nullptr || *theirs != value)
      throw Error(ErrorCode::bad_value, "", reference.path(),
                  "is of a run with " + key + " " + (theirs == nullptr ? "unknown" : io::json_text(*theirs)) + ", expected " +
                      io::json_text(value) + ", as here");
  }
}

io::Json comparison_json(const model::TrailReference& reference, const model::TrailComparison& comparison) {
  return {{"file", reference.path()},
          {"judge", reference.is_trail() ? "bits" : "tolerance"},
          {"compared", comparison.compared()},
          {"absent", comparison.absent()},
          {"difference", comparison.difference() ? to_json(*comparison.difference()) : io::Json()}};
}

void print_comparison(const model::TrailReference& reference, const model::TrailComparison& comparison) {
  const auto& difference = comparison.difference();
  fmt::print("\nagainst {}: {} output{} compared {}", reference.path(), comparison.compared(), comparison.compared() == 1 ? "" : "s",
             reference.is_trail() ? "bit by bit" : "within tolerances");
  if (!difference && !comparison.absent().empty()) fmt::print(", {} model ops not in it", comparison.absent().size());
  fmt::print("\n");
  if (!difference) {
    fmt::print("{}\n", colored("no difference", "32"));
    return;
  }
  print_difference(*difference);
}

void print_run(const Setting& s, const model::WeightSource& source, const Run& run, const Limits& limits, double load_seconds,
               const std::string& digest) {
  fmt::print(
      "layer {} of {} ({}), decode, B={}, kv {}, {}\n{} mode, {} tier, {} thread{}; limits R {:.1f} GB/s, F {:.0f} GFLOP/s, V {:.0f} "
      "GOP/s\n\n",
      s.layer, s.config.name, s.config.is_moe_layer(s.layer) ? "MoE" : "dense", s.lengths.size(),
      s.lengths.size() == 1 || std::equal(s.lengths.begin() + 1, s.lengths.end(), s.lengths.begin()) ? std::to_string(s.lengths.front())
                                                                                                     : "per request",
      source.description(), name(s.exec.mode), name(s.exec.isa), s.exec.threads, s.exec.threads == 1 ? "" : "s", limits.read, limits.fma,
      limits.dot8);
  const std::vector<std::string> tree = branches(run.records);
  std::vector<std::vector<std::string>> rows{{"model op", "shapes", "kernels", "time", "bytes", "share", "rms"}};
  for (std::size_t i = 0; i < run.records.size(); ++i) {
    const model::OpRecord& record = run.records[i];
    const Bound bound = bound_of(record.work, limits);
    rows.push_back({tree[i], record.shapes, record.kernels, fmt::format("{:.3f} ms", record.seconds * 1e3), megabytes(record.work.bytes),
                    record.seconds > 0 ? fmt::format("{:.2f} {}", bound.seconds / record.seconds, bound.letter) : "",
                    record.group ? "" : fmt::format("{:.3g}{}", record.rms, record.not_finite > 0 ? "!" : "")});
  }
  print_rows(rows);
  const model::Work& work = run.work();
  const Bound bound = bound_of(work, limits);
  fmt::print("\ntotal {:.3f} ms, {} ({} of weights): {:.1f} GB/s of weights = {:.2f} R; {:.2f} of the binding limit {}\n",
             run.seconds() * 1e3, megabytes(work.bytes), megabytes(work.weight_bytes), work.weight_bytes / run.seconds() * 1e-9,
             work.weight_bytes / run.seconds() * 1e-9 / limits.read, bound.seconds / run.seconds(), bound.letter);
  fmt::print("weights made ready in {:.2f} s; peak memory {:.0f} MB\ndigest {}\n", load_seconds, peak_megabytes(), digest);
}

io::Json run_json(const Setting& s, const model::WeightSource& source, const Run& run, const Limits& limits, double load_seconds,
                  const std::string& digest) {
  io::Json ops = io::Json::array();
  for (const model::OpRecord& record : run.records) {
    const Bound bound = bound_of(record.work, limits);
    io::Json op = model::to_json(record);
    op["limit"] = std::string(1, bound.letter);
    op["share"] = record.seconds > 0 ? bound.seconds / record.seconds : 0.0;
    ops.push_back(std::move(op));
  }
  return {{"digest", digest},
          {"model", s.config.name},
          {"layer", s.layer},
          {"weights", source.description()},
          {"batch", s.lengths.size()},
          {"kv_len", s.lengths},
          {"mode", std::string(name(s.exec.mode))},
          {"isa", std::string(name(s.exec.isa))},
          {"threads", s.exec.threads},
          {"ops", ops},
          {"seconds", run.seconds()},
          {"load_seconds", load_seconds},
          {"peak_memory_MB", peak_megabytes()},
          {"weight_bytes", run.work().weight_bytes},
          {"R_GBps", limits.read},
          {"F_GFLOPps", limits.fma},
          {"V_GOPps", limits.dot8},
          {"share_of_R", run.work().weight_bytes / run.seconds() * 1e-9 / limits.read}};
}

Setting setting_of(const LayerOptions& options) {
  if (options.phase != "decode")
    throw Error(ErrorCode::unsupported, "", "--phase", "'" + options.phase + "' is not built yet, expected decode");
  Setting s;
  s.config = model::choose_config(options.config, options.preset, options.weights);
  s.layer = layer_of(options, s.config);
  s.lengths = lengths_of(options, s.config);
  if (options.fused_shared && !s.config.is_moe_layer(s.layer))
    throw Error(ErrorCode::bad_option, "", "--fused-shared-expert", "is given, but layer " + std::to_string(s.layer) + " is dense");
  check_range("--repeat", options.repeat.value_or(1), 1, 1'000'000);
  s.exec = options.exec();
  if (options.rounding == "off") s.rounding = model::Rounding::off;
  if (options.residual == "pre-added") s.residual = model::Residual::pre_added;
  return s;
}

/// Files are refused before the work, not after it.
void check_files(const LayerOptions& options) {
  if (options.trail_tensors && !options.trail.ends_with(".safetensors"))
    throw Error(
        ErrorCode::bad_option, "", "--trail-tensors",
        options.trail.empty() ? "needs --trail FILE" : "needs a --trail FILE that ends in .safetensors, got '" + options.trail + "'");
  for (const std::string& path : {options.output, options.trail})
    if (!path.empty()) io::AtomicFile probe(path);
}

/// A cache beyond the machine's memory would be killed while it is filled, not refused when it is asked for.
void check_memory(const Setting& s, bool fused_shared) {
  const double wide = s.rounding == model::Rounding::off ? 2 : 1;
  const double needed = wide * model::plan_decode(s.config, s.layer, s.lengths, fused_shared).cache_bytes;
  const double have = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > have)
    throw Error(ErrorCode::out_of_memory, "", "--batch",
                fmt::format("of {} requests needs {:.1f} GB of KV cache, this machine has {:.1f} GB (--plan allocates nothing)",
                            s.lengths.size(), needed * 1e-9, have * 1e-9));
}

int layer(const LayerOptions& options) {
  const Setting s = setting_of(options);
  if (options.plan) {
    print_plan(model::plan_decode(s.config, s.layer, s.lengths, options.fused_shared), options.json, s.config, s.layer, s.lengths.size());
    return exit_pass;
  }
  check_files(options);
  std::optional<model::TrailReference> reference;
  if (!options.against.empty()) {
    reference = model::TrailReference::open(options.against);
    check_setting(*reference, trail_setting(options, s));
  }
  check_memory(s, options.fused_shared);
  // Before weights are made: a cache that cannot be costs nothing then.
  model::PagedKvCache cache(s.config, model::activation_type(s.rounding), s.lengths, options.page_seed);
  const auto begin = std::chrono::steady_clock::now();
  const auto source = model::open_weights(s.config, options.weights, options.seed, s.exec);
  model::LayerWeights weights(*source, s.layer, s.rounding, options.fused_shared, s.exec);
  cache.synthesize_history(options.seed, s.lengths, s.exec.threads);
  // Drawn from the seed unless a dump brings its own.
  model::DecodeStep step = model::draw_step(s.config, s.layer, s.lengths, s.rounding, options.seed);
  if (reference) take_inputs(*reference, s, step, cache);
  model::Trail trail;
  if (options.trail_tensors) {
    trail.inputs = {{"hidden", step.hidden}, {"kv_cache", history_of(s, cache)}};
    if (step.residual.defined()) trail.inputs.emplace_back("residual", step.residual);
  }
  // Loads the experts that the router chooses.
  Run best = run_once(options, s, step, weights, cache, options.trail.empty() ? model::Observer() : trail.recorder(options.trail_tensors));
  const double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() - best.seconds();
  const Limits limits{.read = measure_limit(LimitKind::read, s.exec),
                      .fma = measure_limit(LimitKind::fma, s.exec),
                      .dot8 = measure_limit(LimitKind::dot8, s.exec)};
  const std::string digest = model::digest_of(best.output);
  const std::int64_t repeat = options.repeat.value_or(s.exec.mode == Mode::fast ? 5 : 1);
  for (std::int64_t i = 1; i < repeat; ++i) {
    Run run = run_once(options, s, step, weights, cache);
    if (model::digest_of(run.output) != digest) throw std::logic_error("layer: two runs of the same step differ");
    if (run.seconds() < best.seconds()) best = std::move(run);
  }
  std::optional<model::TrailComparison> comparison;
  if (reference) {
    // What the reference gives goes on from op to op, so this run's outputs are not the step's.
    comparison.emplace(*reference, model::activation_type(s.rounding));
    run_once(options, s, step, weights, cache, comparison->observer());
    comparison->finish();
  }
  if (!options.output.empty())
    io::write_safetensors(
        options.output, {{"hidden", best.output.hidden}, {"residual", best.output.residual}},
        {{"model", s.config.name}, {"layer", std::to_string(s.layer)}, {"batch", std::to_string(s.lengths.size())}, {"digest", digest}});
  if (!options.trail.empty()) {
    trail.setting = trail_setting(options, s);
    model::write_trail(options.trail, trail);
  }
  if (options.json) {
    io::Json json = run_json(s, *source, best, limits, load_seconds, digest);
    if (comparison) json["against"] = comparison_json(*reference, *comparison);
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    print_run(s, *source, best, limits, load_seconds, digest);
    for (const std::string& path : {options.output, options.trail})
      if (!path.empty()) fmt::print("written to {}\n", path);
    if (comparison) print_comparison(*reference, *comparison);
  }
  return comparison && comparison->difference() ? exit_fail : exit_pass;
}

}  // namespace

void add_layer(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<LayerOptions>();
  auto* command = app.add_subcommand("layer", "Run a full-size decoder layer and show its execution tree");
  auto* preset = command->add_option("--preset", options->preset, "Configuration: r1-nvfp4 (default), r1-nvfp4-tables, tiny");
  command->add_option("--config", options->config, "Folder with config.json (and hf_quant_config.json) to take the configuration from")
      ->excludes(preset);
  command->add_option("--weights", options->weights, "Folder of a checkpoint; without it weights are synthesized from the seed");
  command->add_option("--layer", options->layer, "Which layer, from 0; by default the first MoE layer");
  command->add_option("--phase", options->phase, "decode (default)");
  command->add_option("--batch", options->batch, "Requests, one new token each (default: one for each --kv-len)");
  command->add_option("--kv-len", options->kv_len, "Tokens of each request including the new one: one value, or a list (default 1024)")
      ->delimiter(',');
  command->add_option("--mode", options->mode, "fast (default), golden or hopper");
  command->add_option("--seed", options->seed, "Seed of weights, inputs and history (default 0)");
  command->add_option("--page-seed", options->page_seed, "Deal the cache's pages in a shuffled order; changes no result");
  command->add_option("--residual", options->residual, "fused: norms take the fp32 sum with the residual; pre-added: the rounded sum")
      ->check(CLI::IsMember({"fused", "pre-added"}));
  command->add_option("--rounding", options->rounding, "bf16 (default): activations are rounded between ops; off: they stay fp32")
      ->check(CLI::IsMember({"bf16", "off"}));
  command->add_flag("--fused-shared-expert", options->fused_shared, "The shared expert is one more column of the router");
  command->add_option("--repeat", options->repeat, "Runs of the step; the fastest is shown (default 5 in fast mode, else 1)");
  auto* plan = command->add_flag("--plan", options->plan, "Show shapes, bytes and FLOPs; allocate and run nothing");
  command->add_option("-o,--output", options->output, "Write hidden and residual to this safetensors file")->excludes(plan);
  command
      ->add_option("--trail", options->trail,
                   "Write what every model op gave: digest (SHA-256), shapes, min, max, rms, non-finite values; a safetensors file if "
                   "named so, else JSON lines")
      ->excludes(plan);
  command->add_flag("--trail-tensors", options->trail_tensors,
                    "The trail, a safetensors file, holds the outputs too, called as in the tree: self.q_b_proj(), "
                    "self.rotary_emb().k_pe, and what the step reads: input.hidden, input.residual [B, H], input.kv_cache [B, L, 576]");
  command
      ->add_option("--against", options->against,
                   "Stop at the first model op that differs from this trail (bit by bit) or from this dump of another implementation's "
                   "outputs, a safetensors file or folder with names as in a trail (within tolerances, each op on the dump's own inputs; "
                   "input.NAME replaces what the seed draws); exit code 1")
      ->excludes(plan);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->callback([options, &exit_code] { exit_code = layer(*options); });
}

}  // namespace dodona::tools
