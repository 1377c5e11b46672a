#include <fmt/format.h>

#include "dodona/error.h"
#include "model/weights/checkpoint_writer.h"
#include "tools/interrupt.h"
#include "tools/layer_range.h"
#include "tools/model_options.h"

namespace dodona::tools {
namespace {

struct SynthOptions {
  std::string folder, layers;
  ModelOptions model;
  ExecOptions exec;
  model::CheckpointPlan plan;
  double shard_gib = 5;
  bool plan_only = false, flat = false;
};

void synth(SynthOptions& options) {
  const model::ModelConfig config = options.model.load("r1-nvfp4");
  if (options.flat && config.quant.algo != model::QuantAlgo::nvfp4)
    throw Error(ErrorCode::bad_option, "", "--flat-quant-config",
                "is given, but " + config.name + " is " + std::string(model::scheme_of(config.quant.algo).name) + ", not nvfp4");
  const Interrupt interrupt;
  const LayerRange range = parse_layers(options.layers);
  options.plan.first_layer = range.first;
  options.plan.last_layer = range.last;
  if (options.flat) options.plan.spelling = model::QuantSpelling::flat;
  options.plan.shard_bytes = static_cast<std::int64_t>(options.shard_gib * (1 << 30));
  model::CheckpointSize size = model::measure_checkpoint(config, options.plan);
  if (!options.plan_only) {
    Progress progress(options.exec.quiet);
    const auto total = static_cast<std::size_t>(size.tensors);
    size = model::write_checkpoint(options.folder, config, options.plan, options.exec.exec(), [&](std::int64_t done) {
      interrupt.check(options.folder + " was not written");
      progress.step(static_cast<std::size_t>(done), total, options.folder);
    });
  }
  if (options.exec.json) {
    const io::Json json{{"folder", options.folder},
                        {"model", config.name},
                        {"first_layer", options.plan.first_layer},
                        {"last_layer", options.plan.last_layer},
                        {"seed", options.plan.seed},
                        {"tensors", size.tensors},
                        {"bytes", size.bytes},
                        {"shards", size.shards},
                        {"written", !options.plan_only}};
    fmt::print("{}\n", io::json_text(json, 2));
    return;
  }
  fmt::print("{}: {} layers {} to {}, seed {}: {} tensors, {:.3f} GB, {} shard{}{}\n", options.folder, config.name,
             options.plan.first_layer, options.plan.last_layer, options.plan.seed, size.tensors, static_cast<double>(size.bytes) * 1e-9,
             size.shards, size.shards == 1 ? "" : "s", options.plan_only ? " (nothing written)" : "");
}

}  // namespace

void add_synth(CLI::App& app, int&) {
  auto options = std::make_shared<SynthOptions>();
  auto* command =
      app.add_subcommand("synth", "Write a synthetic checkpoint in the layout of the configuration's quantization: shards, index, configs");
  command->add_option("folder", options->folder, "Folder to write: absent or empty; it appears whole or not at all")->required();
  options->model.add(*command, "r1-nvfp4");
  options->model.add_linear(*command);
  command->add_flag("--flat-quant-config", options->flat,
                    "NVFP4: quantization in config.json, in the flat spelling, not in a file of its own");
  command->add_option("--layers", options->layers, "A layer, 3, or a range of layers, 0..3, both ends included")->required();
  command->add_option("--seed", options->plan.seed, "Seed of the weights (default 0)")->check(whole_number());
  command->add_flag("--outer", options->plan.outer, "Write the embedding, the final norm and lm_head too");
  command->add_option("--shard-gib", options->shard_gib, "Largest size of a shard in GiB (default 5)")->check(within(1e-6, 1024));
  command->add_flag("--plan", options->plan_only, "Say what would be written, and write nothing");
  options->exec.add_threads_and_isa(*command);
  options->exec.add_json(*command);
  command->add_flag("--quiet", options->exec.quiet, "No progress on stderr");
  command->callback([options] { synth(*options); });
}

}  // namespace dodona::tools
