// What the commands on models share: which configuration.
#pragma once

#include <string>
#include <vector>

#include "common.h"
#include "model/config/config.h"
#include "model/layer/kernel_use.h"

namespace dodona::tools {

struct ModelOptions {
  std::string preset, config, linear;

  /// --preset and --config, of which one may be given; `otherwise` says what is taken where none is.
  void add(CLI::App& command, const std::string& otherwise);
  /// --linear: the scheme that quantizes the linear modules.
  void add_linear(CLI::App& command);
  /// The configuration asked for, quantized by --linear where it is given; `fallback` names the preset when nothing was. Throws Error.
  model::ModelConfig load(const std::string& fallback) const;
};

/// `--use` and `--kv-cache-dtype`: what of a layer's kernels is not left to configuration, backend and batch.
struct KernelOptions {
  std::vector<std::string> uses;
  std::string kv_cache_dtype = "bf16";

  void add(CLI::App& command);
  /// Changes the setting, and of synthetic weights the forms in the configuration.
  void apply(model::ModelConfig& config, model::LayerSetting& setting, const model::UsePlace& place) const;
};

/// --linear alone.
CLI::Option* add_linear_option(CLI::App& command, std::string& linear);

}  // namespace dodona::tools
