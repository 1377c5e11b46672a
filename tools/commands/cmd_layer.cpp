#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/caches.h"
#include "dodona/error.h"
#include "io/safetensors.h"
#include "io/stopwatch.h"
#include "model/experts_comparison.h"
#include "model/layer/attention/kernels.h"
#include "model/layer/experts/experts.h"
#include "model/run.h"
#include "simd/limits.h"
#include "tools/common.h"
#include "tools/layer_graph.h"
#include "tools/model_options.h"
#include "tools/output_files.h"
#include "tools/ranks/cluster_text.h"
#include "tools/ranks/mpi_job.h"
#include "tools/ranks/mpi_layer.h"
#include "tools/ranks/rank_process.h"
#include "tools/ranks/sharded_layer.h"
#include "tools/trail_text.h"
#include "trail/trail.h"
#include "trail/trail_comparison.h"

namespace dodona::tools {
namespace {

struct LayerOptions : ExecOptions {
  KernelOptions kernels;
  std::string preset, config, weights, linear, phase = "decode", residual = "fused", rounding = "bf16", output, trail, against, experts,
                                               expert_weights = "stored", against_experts;
  std::string backend, path;
  GraphOptions graphs;
  std::vector<std::int64_t> kv_len{1024}, prefix_len;
  std::optional<std::int64_t> layer, batch, repeat, draft_tokens, prefix_chunk;
  std::uint64_t seed = 0, page_seed = 0;
  bool plan = false, fused_shared = false, trail_tensors = false, cold = false;
  bool dual_stream = false, against_whole = false;
  model::Grid grid;
  ClusterOptions cluster;
};

void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t most, const char* why = "") {
  if (value < least || value > most)
    throw Error(ErrorCode::bad_option, "", option,
                "is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " + std::to_string(most) + why);
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

/// What the ops' limits allow them together: they run one after another, so that what one reads is not hidden behind another's products,
/// as the limit of the whole has it.
double least_seconds(const std::vector<model::OpRecord>& records, const Limits& limits) {
  double seconds = 0;
  for (const model::OpRecord& record : records)
    if (!record.group) seconds += bound_of(record.work, limits).seconds;
  return seconds;
}

/// Where the weights came from in the run that is shown.
struct Weights {
  MemoryFacts facts;
  ColdBytes between;      ///< read through before each run; nothing without --cold
  double could_stay = 0;  ///< the share of them that the last-level cache could hold from the run before; 0 where they are cold

  bool cold() const { return between.cold; }
  std::string text(double bytes) const {
    const std::string cache = megabytes(static_cast<double>(facts.cache));
    if (between.bytes == 0)
      return fmt::format(
          "weights as loading or the run before left them: the last-level cache of {} can hold {:.0f} % of {}; --cold takes all from "
          "memory",
          cache, 100 * could_stay, megabytes(bytes));
    return fmt::format("weights {}; {} read through before each run, last-level cache {}", cold_text(facts, between),
                       megabytes(static_cast<double>(between.bytes)), cache);
  }
};
io::Json weights_json(const Weights& weights) {
  return {{"cold", weights.cold()},
          {"could_stay", weights.could_stay},
          {"last_level_cache_bytes", weights.facts.cache},
          {"read_through_bytes", weights.between.bytes}};
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

void print_plan(const model::Plan& plan, bool json, const model::LayerRequest& request) {
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
    fmt::print("{}\n", io::json_text({{"model", request.config.name},
                                      {"layer", request.setting.layer},
                                      {"batch", request.lengths.size()},
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

/// The step that is shown.
struct Measured {
  model::LayerRun::Result run;
  Weights weights;
  double peak_megabytes = 0;  ///< of loading and the first run: without the buffers of the limits and of --cold
  Limits limits = {};         ///< before the runs that follow and behind them, the larger ones; zeros where they are not asked for
};

/// Two trails must be of the same run.
void check_setting(const trail::TrailReference& reference, const io::Json& mine) {
  if (!reference.is_trail()) return;
  for (const auto& [key, value] : mine.items()) {
    const io::Json* const theirs = io::find_field(reference.setting(), key, reference.path());
    if (theirs == nullptr || *theirs != value)
      throw Error(ErrorCode::bad_value, "", reference.path(),
                  "is of a run with " + key + " " + (theirs == nullptr ? "unknown" : io::json_text(*theirs)) + ", expected " +
                      io::json_text(value) + ", as here");
  }
}

io::Json comparison_json(const trail::TrailReference& reference, const trail::TrailComparison& comparison) {
  return {{"file", reference.path()},
          {"judge", reference.is_trail() ? "bits" : "budget"},
          {"compared", comparison.compared()},
          {"absent", comparison.absent()},
          {"difference", comparison.difference() ? to_json(*comparison.difference()) : io::Json()}};
}

void print_comparison(const trail::TrailReference& reference, const trail::TrailComparison& comparison, std::FILE* out) {
  const auto& difference = comparison.difference();
  fmt::print(out, "\nagainst {}: {} output{} compared {}", reference.path(), comparison.compared(), comparison.compared() == 1 ? "" : "s",
             reference.is_trail() ? "bit by bit" : "within what the ops leave open");
  if (!difference && !comparison.absent().empty()) fmt::print(out, ", {} model ops not in it", comparison.absent().size());
  fmt::print(out, "\n");
  if (!difference) {
    fmt::print(out, "{}\n", colored("no difference", "32"));
    return;
  }
  print_difference(*difference, out);
}

/// "layer 3 of r1-nvfp4 (MoE), decode, B=1, kv 1024".
std::string step_text(const model::LayerRequest& r) {
  const std::int64_t number = r.setting.layer;
  const auto each = [](const std::vector<std::int64_t>& values) {
    const bool same = std::equal(values.begin() + 1, values.end(), values.begin());
    return same ? std::to_string(values.front()) : std::string("per request");
  };
  const char* const phases[] = {"extend", "decode", "verify"};
  return fmt::format("layer {} of {} ({}), {}, B={}, kv {}", number, r.config.name, r.config.is_moe_layer(number) ? "MoE" : "dense",
                     phases[static_cast<int>(r.forward)], r.lengths.size(), each(r.lengths)) +
         (r.new_tokens.empty() ? "" : ", new " + each(r.new_tokens));
}

void print_run(const model::LayerRun& layer, const Measured& measured, double load_seconds, const std::string& digest) {
  const Limits& limits = measured.limits;
  const model::LayerRun::Result& run = measured.run;
  const model::LayerRequest& r = layer.request();
  fmt::print("{}, {}\n{} mode, {} tier, {} thread{}; limits R {:.1f} GB/s, F {:.0f} GFLOP/s, V {:.0f} GOP/s\n\n", step_text(r),
             layer.source().description(), name(r.exec.mode), name(r.exec.isa), r.exec.threads, r.exec.threads == 1 ? "" : "s", limits.read,
             limits.fma, limits.dot8);
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
  fmt::print(
      "\ntotal {:.3f} ms, {} ({} of weights): {:.1f} GB/s of weights = {:.2f} R; {:.2f} of the binding limit {}, {:.2f} of the ops' own\n",
      run.seconds() * 1e3, megabytes(work.bytes), megabytes(work.weight_bytes), work.weight_bytes / run.seconds() * 1e-9,
      work.weight_bytes / run.seconds() * 1e-9 / limits.read, bound.seconds / run.seconds(), bound.letter,
      least_seconds(run.records, limits) / run.seconds());
  fmt::print("{}\n", measured.weights.text(work.weight_bytes));
  fmt::print("weights made ready in {:.2f} s; peak memory {:.0f} MB\ndigest {}\n", load_seconds, measured.peak_megabytes, digest);
}

io::Json run_json(const model::LayerRun& layer, const Measured& measured, double load_seconds, const std::string& digest) {
  const Limits& limits = measured.limits;
  const model::LayerRun::Result& run = measured.run;
  const model::LayerRequest& r = layer.request();
  io::Json ops = io::Json::array();
  for (const model::OpRecord& record : run.records) {
    const Bound bound = bound_of(record.work, limits);
    io::Json op = model::to_json(record);
    op["limit"] = std::string(1, bound.letter);
    op["share"] = record.seconds > 0 ? bound.seconds / record.seconds : 0.0;
    ops.push_back(std::move(op));
  }
  return {{"digest", digest},
          {"model", r.config.name},
          {"layer", r.setting.layer},
          {"weights", layer.source().description()},
          {"batch", r.lengths.size()},
          {"kv_len", r.lengths},
          {"mode", std::string(name(r.exec.mode))},
          {"isa", std::string(name(r.exec.isa))},
          {"threads", r.exec.threads},
          {"ops", ops},
          {"seconds", run.seconds()},
          {"ops_limits_seconds", least_seconds(run.records, limits)},
          {"load_seconds", load_seconds},
          {"peak_memory_MB", measured.peak_megabytes},
          {"weights_measured", weights_json(measured.weights)},
          {"weight_bytes", run.work().weight_bytes},
          {"R_GBps", limits.read},
          {"F_GFLOPps", limits.fma},
          {"V_GOPps", limits.dot8},
          {"share_of_R", run.work().weight_bytes / run.seconds() * 1e-9 / limits.read}};
}

model::LayerRequest request_of(const LayerOptions& options) {
  model::LayerRequest r;
  r.config = model::choose_config(options.config, options.preset, options.weights);
  if (!options.linear.empty()) r.config = model::with_scheme(std::move(r.config), model::scheme_named(options.linear));
  r.weights = options.weights;
  r.setting.layer = options.layer.value_or(model::default_layer(r.config));
  r.config.check_layer(r.setting.layer);
  r.lengths = model::lengths_of(r.config, options.kv_len, options.batch, {"--batch", "--kv-len"});
  const model::Phases phases =
      model::phases_of(options.phase, r.lengths, options.prefix_len, options.draft_tokens, {"--phase", "--prefix-len", "--draft-tokens"});
  if (phases.forward != model::Forward::decode) {
    r.forward = phases.forward;
    r.new_tokens = phases.new_tokens;
  }
  r.setting.backend = options.backend;
  if (!options.path.empty()) r.setting.path = model::parse_path(options.path);
  r.setting.prefix_chunk = options.prefix_chunk.value_or(r.setting.prefix_chunk);
  if (!options.against_experts.empty() && !r.config.is_moe_layer(r.setting.layer))
    throw Error(ErrorCode::bad_option, "", "--against-experts", "is given, but layer " + std::to_string(r.setting.layer) + " is dense");
  check_range("--repeat", options.repeat.value_or(1), 1, 1'000'000);
  r.exec = options.exec();
  r.setting.fused_shared = options.fused_shared;
  r.setting.dual_stream = options.dual_stream;
  r.setting.experts = options.experts;
  if (options.expert_weights == "fp8") r.setting.expert_weights = model::ExpertWeights::fp8;
  if (options.rounding == "off") r.setting.rounding = model::Rounding::off;
  if (options.residual == "pre-added") r.setting.residual = model::Residual::pre_added;
  r.seed = options.seed;
  r.page_seed = options.page_seed;
  const model::Batch batch = model::batch_of(r);
  options.kernels.apply(r.config, r.setting, {.batch = &batch, .stored = !r.weights.empty(), .tensor = options.grid.tensor});
  model::check_heard(r, options.prefix_chunk.has_value());
  return r;
}

void check_files(const LayerOptions& options) {
  if (options.trail_tensors && !options.trail.ends_with(".safetensors"))
    throw Error(
        ErrorCode::bad_option, "", "--trail-tensors",
        options.trail.empty() ? "needs --trail FILE" : "needs a --trail FILE that ends in .safetensors, got '" + options.trail + "'");
  check_output_files({{"--output", options.output}, {"--trail", options.trail}, {"--chrome-trace", options.graphs.chrome_trace}});
}

/// A cache beyond the machine's memory would be killed while it is filled, not refused when it is asked for.
void check_memory(const model::LayerRequest& request) {
  const double needed = model::plan_layer(request).cache_bytes;
  const double have = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > have)
    throw Error(ErrorCode::out_of_memory, "", "--batch",
                fmt::format("of {} requests needs {:.1f} GB of KV cache, this machine has {:.1f} GB (--plan allocates nothing)",
                            request.lengths.size(), needed * 1e-9, have * 1e-9));
}

/// The fastest of several runs of the same step, the first of which is done. That one finds its weights as loading left them: where they
/// are to come from memory it is left out, and memory beyond the caches is read through before each of the others.
Measured fastest(model::LayerRun& layer, model::LayerRun::Result first, std::int64_t runs, bool cold, bool with_limits) {
  Measured measured{.run = std::move(first), .weights = {.facts = memory_facts()}, .peak_megabytes = peak_megabytes()};
  const std::string digest = model::digest_of(measured.run.output);
  if (with_limits) measured.limits = measure_limits_of_steps(layer.request().exec);
  std::optional<ColdWalk> walk;
  if (cold) walk.emplace(layer.request().exec, cold_bytes(measured.weights.facts));
  for (std::int64_t i = cold ? 0 : 1; i < runs; ++i) {
    if (walk) walk->read();
    model::LayerRun::Result run = layer.run_again(measured.run);
    if (model::digest_of(run.output) != digest) throw std::logic_error("layer: two runs of the same step differ");
    if ((cold && i == 0) || run.seconds() < measured.run.seconds()) measured.run = std::move(run);
  }
  if (with_limits) measured.limits = larger(measured.limits, measure_limits_of_steps(layer.request().exec));
  if (walk) measured.weights.between = walk->size();
  measured.weights.could_stay = measured.weights.cold() ? 0 : share_that_stays(measured.weights.facts, measured.run.work().weight_bytes);
  return measured;
}

void write_output(const std::string& path, const model::LayerRequest& request, const model::LayerState& output, const std::string& digest) {
  io::write_safetensors(path, {{"hidden", output.hidden}, {"residual", output.residual}},
                        {{"model", request.config.name},
                         {"layer", std::to_string(request.setting.layer)},
                         {"batch", std::to_string(request.lengths.size())},
                         {"digest", digest}});
}

void take_inputs(const trail::TrailReference& reference, model::LayerRun& layer) {
  for (const char* name : {"hidden", "residual", "kv_cache"}) layer.replace_input(name, reference.input(name), reference.path());
}

/// In a run of its own: a dump is judged in golden mode, for which fast mode's weights will not do.
void compare(const trail::TrailReference& reference, model::LayerRequest request, trail::TrailComparison& comparison) {
  request.exec = comparison.for_weights(request.exec);
  model::LayerRun layer(request);
  take_inputs(reference, layer);
  layer.run(comparison.observer(), comparison.for_run(request.exec).witness);
  comparison.finish();
}

void print_experts(const model::ExpertsComparison& c, std::FILE* out) {
  const auto of_rms = [&](double x) { return fmt::format("{:.3g} ({:.2f} % of the output's rms)", x, 100 * x / c.rms); };
  fmt::print(
      out,
      "\nexperts by {} against {}: their contracts allow differences up to {}; seen: {}, in {} of {} elements, at most {:.1f} % of what is "
      "allowed there\n",
      c.a, c.b, of_rms(c.allowed), of_rms(c.difference), c.differing, c.elements, 100 * c.share);
  if (c.beyond > 0) fmt::print(out, "{}\n", colored(fmt::format("{} elements are farther apart than allowed", c.beyond), "31"));
}

/// The run as a graph, on the terminal, and as a trace in its file.
void show_graph(const LayerOptions& options, model::LayerRun& layer, GraphRecorder& recorder) {
  const model::LayerRun::Result run = layer.run(recorder.ops());
  options.graphs.show(recorder.graph(run.records), {layer.request().config.name, step_text(layer.request())});
}

/// What several ranks have no place for.
void check_alone(const LayerOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--trail", !options.trail.empty()},
                                                {"--against", !options.against.empty()},
                                                {"--against-experts", !options.against_experts.empty()},
                                                {"--graph", !options.graphs.graph.empty()},
                                                {"--chrome-trace", !options.graphs.chrome_trace.empty()},
                                                {"--cold", options.cold},
                                                {"--repeat", options.repeat.has_value() && started_ranks() == 1},
                                                {"--against-whole", options.against_whole && started_ranks() > 1}};
  for (const auto& [option, there] : given)
    if (there) throw Error(ErrorCode::bad_option, "", option, "is given with --tp, --ep or --against-whole, which show ranks, not ops");
}

ShardedOptions shown_of(const LayerOptions& options, const model::LayerRequest& request) {
  return {options.json, options.against_whole, options.output, options.repeat.value_or(request.exec.mode == Mode::fast ? 5 : 1)};
}

int layer(const LayerOptions& options) {
  if (started_ranks() > 1 && !options.plan)
    return run_layer_over_mpi([&]() -> LayerOnRanks {
      const model::LayerRequest request = request_of(options);
      check_alone(options);
      check_files(options);
      check_memory(request);
      return {request, options.grid, shown_of(options, request), step_text(request)};
    });
  model::LayerRequest request = request_of(options);
  model::check_grid(request.config, options.grid);
  const bool sharded = options.grid.ranks() > 1 || options.against_whole;
  if (sharded) check_alone(options);
  // A plan is of weights that a run would take: headers say whether it would.
  if (options.plan) model::open_weights(request.config, request.weights, request.seed, request.exec)->check_layer(request.setting.layer);
  if (options.cluster.given()) {
    show_cluster(options.cluster, request, options.grid, false, options.json);
    return exit_pass;
  }
  if (options.plan) {
    request.shard = options.grid.shard(0);
    print_plan(model::plan_layer(request), options.json, request);
    return exit_pass;
  }
  check_files(options);
  if (sharded) {
    check_memory(request);
    return run_sharded_layer(request, options.grid, shown_of(options, request), step_text(request));
  }
  if (!options.against_experts.empty()) model::check_experts(request, options.against_experts, "--against-experts");
  std::optional<trail::TrailReference> reference;
  if (!options.against.empty()) {
    reference = trail::TrailReference::open(options.against);
    check_setting(*reference, model::setting_json(request));
  }
  check_memory(request);
  const io::Stopwatch clock;
  GraphRecorder recorder;
  const bool graphs = options.graphs.any();
  if (graphs) request.exec.tracer = recorder.calls();
  model::LayerRun layer(request);
  // Drawn from the seed unless a dump brings its own.
  if (reference) take_inputs(*reference, layer);
  trail::Trail trail;
  if (options.trail_tensors) trail.inputs = layer.inputs();
  model::LayerRun::Result first = layer.run(options.trail.empty() ? model::Observer() : trail.recorder(options.trail_tensors));
  const double load_seconds = clock.seconds() - first.seconds();
  const bool graph_alone = !options.graphs.graph.empty() && !options.repeat;
  const std::int64_t runs = options.repeat.value_or(request.exec.mode == Mode::fast && !graph_alone ? 5 : 1);
  // A graph shows no limits.
  const Measured best = fastest(layer, std::move(first), runs, options.cold, options.graphs.graph.empty());
  const std::string digest = model::digest_of(best.run.output);
  std::optional<trail::TrailComparison> comparison;
  if (reference) {
    // What the reference gives goes on from op to op, so this run's outputs are not the step's.
    comparison.emplace(*reference, model::activation_type(request.setting.rounding));
    compare(*reference, request, *comparison);
  }
  std::optional<model::ExpertsComparison> experts;
  if (!options.against_experts.empty()) experts = model::compare_experts(request, options.against_experts);
  if (graphs) show_graph(options, layer, recorder);
  if (!options.output.empty()) write_output(options.output, request, best.run.output, digest);
  if (!options.trail.empty()) {
    trail.setting = model::setting_json(request);
    trail::write_trail(options.trail, trail);
  }
  const auto show_comparisons = [&](std::FILE* out) {
    if (comparison) print_comparison(*reference, *comparison, out);
    if (experts) print_experts(*experts, out);
  };
  if (!options.graphs.graph.empty()) {
    // The graph is all that stdout has.
    show_comparisons(stderr);
  } else if (options.json) {
    io::Json json = run_json(layer, best, load_seconds, digest);
    if (comparison) json["against"] = comparison_json(*reference, *comparison);
    if (experts) json["against_experts"] = model::to_json(*experts);
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    print_run(layer, best, load_seconds, digest);
    for (const std::string& path : {options.output, options.trail, options.graphs.chrome_trace})
      if (!path.empty()) fmt::print("written to {}\n", path);
    show_comparisons(stdout);
  }
  const bool differs = (comparison && comparison->difference()) || (experts && experts->beyond > 0);
  return differs ? exit_fail : exit_pass;
}

}  // namespace

void add_layer(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<LayerOptions>();
  auto* command = app.add_subcommand("layer", "Run a full-size decoder layer and show its execution tree");
  auto* preset = command->add_option(
      "--preset", options->preset,
      fmt::format("Configuration: {} (default that of --weights, else r1-nvfp4)", fmt::join(model::preset_names(), ", ")));
  command->add_option("--config", options->config, "Folder with config.json (and hf_quant_config.json) to take the configuration from")
      ->excludes(preset);
  auto* weights =
      command->add_option("--weights", options->weights, "Folder of a checkpoint; without it weights are synthesized from the seed");
  add_linear_option(*command, options->linear)->excludes(weights);
  command->add_option("--layer", options->layer, "Which layer, from 0; by default the first MoE layer");
  command->add_option(
      "--phase", options->phase,
      "decode (default): one new token of each request; prefill: all its tokens are new; extend: those behind --prefix-len; "
      "verify: its last --draft-tokens");
  command->add_option("--batch", options->batch, "Requests (default: one for each --kv-len)")->check(integer());
  command->add_option("--kv-len", options->kv_len, "Tokens of each request including the new ones: one value, or a list (default 1024)")
      ->delimiter(',')
      ->check(integer());
  command
      ->add_option(
          "--prefix-len", options->prefix_len,
          "Tokens of each request that are cached already, in prefill and extend: one value, or a list, in which some requests may "
          "have a long prefix and one new token beside others that have none")
      ->delimiter(',');
  command->add_option("--draft-tokens", options->draft_tokens, "Tokens of each request that are verified, a chain (default 4)");
  command->add_option(
      "--backend", options->backend,
      "Backend of attention, which decides path and kernels: " + model::attention_backend_names() + " (default cutlass_mla)");
  command->add_option("--path", options->path,
                      "Way through attention: " + model::path_names() + " (default: upstream's dispatch for backend, phase and prefixes)");
  options->kernels.add(*command);
  command->add_option("--prefix-chunk", options->prefix_chunk,
                      "Cached tokens that one chunk of path mha-chunked expands, of all requests together (default 131072)");
  options->add_mode(*command, "fast (default), golden, or a GPU's bits: hopper, blackwell, ada, ampere");
  command->add_option("--seed", options->seed, "Seed of weights, inputs and history (default 0)")->check(whole_number());
  command->add_option("--page-seed", options->page_seed, "Deal the cache's pages in a shuffled order; changes no result")
      ->check(whole_number());
  command->add_option("--residual", options->residual, "fused: norms take the fp32 sum with the residual; pre-added: the rounded sum")
      ->check(CLI::IsMember({"fused", "pre-added"}));
  command
      ->add_option("--rounding", options->rounding,
                   "bf16 (default): activations are rounded between ops; off: they stay fp32, and kernels of attention that "
                   "take no fp32 give way to those that do, whatever --backend says")
      ->check(CLI::IsMember({"bf16", "off"}));
  command->add_flag("--fused-shared-expert", options->fused_shared, "The shared expert is one more column of the router");
  command->add_flag(
      "--dual-stream", options->dual_stream,
      "Upstream's order with two streams: the shared expert, then router and experts. The same bits: both orders add the same "
      "two tensors");
  command->add_option(
      "--tp", options->grid.tensor,
      "Run the layer on so many ranks of this process, each with its share of heads and of the intermediate columns of every "
      "MLP and expert; their sums are the op all_reduce's: 2, 4, 6 or 8. With --plan: what rank 0 takes");
  command->add_option(
      "--ep", options->grid.experts,
      "Ranks, or with --tp groups of ranks, that have their own share of the routed experts; the bits are those without, but "
      "for --experts trtllm, flashinfer_cutlass and w4a8 and a fused shared expert, where ranks round a sum each: 2, 4, 6 or 8 ranks");
  command->footer(
      "mpirun -n N dodona layer --tp T --ep E, with N = T * E, gives each rank a process that makes its share of the weights alone: the "
      "bits of the same split in one process.\n"
      "Ranks hold versions, contracts, configuration, step and weights against each other before they begin.");
  command->add_flag("--against-whole", options->against_whole,
                    "Run the step on one rank too, and say how far the two are apart; exit code 1 where bits differ though no sums of "
                    "ranks are added up, as "
                    "--tp does, and --ep with --experts trtllm, flashinfer_cutlass and w4a8 or a fused shared expert");
  command->add_option(
      "--experts", options->experts,
      "Which backend runs the routed experts: " + model::experts_names() + " (default: the first that takes their weights)");
  command
      ->add_option("--expert-weights", options->expert_weights,
                   "In which form they are multiplied: stored (default), or fp8: blocks of 128 x 128 made of them, for cutlass, triton, "
                   "deepgemm, deepep, trtllm and flashinfer_cutlass")
      ->check(CLI::IsMember({"stored", "fp8"}));
  auto* against_experts = command->add_option(
      "--against-experts", options->against_experts,
      "Run the step with this backend too, and say how far the MLP's outputs may be from each other by the backends' contracts, and how "
      "far they are; exit code 1 where they are farther apart. Of blocks of fp8, also made by --expert-weights fp8, of bf16 and of NVFP4");
  command->add_option("--repeat", options->repeat, "Runs of the step; the fastest is shown (default 5 in fast mode, else 1)");
  auto* cold = command->add_flag("--cold", options->cold,
                                 "Read memory of three times the last-level cache (512 MiB at least) before each run, so that weights come "
                                 "from memory as between two layers; the run that loads them is not counted");
  auto* plan = command->add_flag("--plan", options->plan, "Show shapes, bytes and FLOPs; allocate and run nothing")
                   ->excludes(cold)
                   ->excludes(against_experts);
  options->cluster.add(*command, plan);
  command->get_option("--against-whole")->excludes(plan);
  command->add_option("-o,--output", options->output, "Write hidden and residual to this safetensors file")->excludes(plan);
  command
      ->add_option("--trail", options->trail,
                   "Write what every model op gave: digest (SHA-256), shapes, min, max, rms, non-finite values; a safetensors file if "
                   "named so, else JSON lines")
      ->excludes(plan);
  command
      ->add_flag("--trail-tensors", options->trail_tensors,
                 "The trail, a safetensors file, holds the outputs too, called as in the tree: self.q_b_proj(), "
                 "self.rotary_emb().k_pe, and what the step reads: input.hidden, input.residual [B, H], input.kv_cache [B, L, 576]")
      ->excludes(plan);
  command
      ->add_option("--against", options->against,
                   "Stop at the first model op that differs from this trail (bit by bit) or from this dump of another implementation's "
                   "outputs, a safetensors file or folder with names as in a trail (in golden mode, within what each op leaves open on the "
                   "dump's own inputs; "
                   "input.NAME replaces what the seed draws); exit code 1")
      ->excludes(plan);
  options->graphs.add(*command, "");
  command->get_option("--graph")->excludes(plan);
  command->get_option("--chrome-trace")->excludes(plan);
  options->add_threads_and_isa(*command);
  options->add_json(*command)->excludes(command->get_option("--graph"));
  command->callback([options, &exit_code] { exit_code = layer(*options); });
}

}  // namespace dodona::tools
