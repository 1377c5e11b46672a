// What the commands on models share: which configuration.
#pragma once

#include <string>

#include "common.h"
#include "model/config/config.h"

namespace dodona::tools {

struct ModelOptions {
  std::string preset, config, linear;

  /// --preset and --config, of which one may be given.
  void add(CLI::App& command);
  /// --linear: the scheme that quantizes the linear modules.
  void add_linear(CLI::App& command);
  /// The configuration asked for, quantized by --linear where it is given; `fallback` names the preset when nothing was. Throws Error.
  model::ModelConfig load(const std::string& fallback) const;
};

/// The option alone.
CLI::Option* add_linear_option(CLI::App& command, std::string& linear);

}  // namespace dodona::tools
