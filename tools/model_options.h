// What the commands on models share: which configuration.
#pragma once

#include <string>

#include "common.h"
#include "model/config/config.h"

namespace dodona::tools {

struct ModelOptions {
  std::string preset, config;

  /// --preset and --config, of which one may be given.
  void add(CLI::App& command);
  /// The configuration asked for; `fallback` names the preset when nothing was. Throws Error.
  model::ModelConfig load(const std::string& fallback) const;
};

}  // namespace dodona::tools
