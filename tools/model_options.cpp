#include "model_options.h"

namespace dodona::tools {

void ModelOptions::add(CLI::App& command) {
  std::string known;
  for (const std::string& name : model::preset_names()) known += (known.empty() ? "" : ", ") + name;
  auto* preset_option = command.add_option("--preset", preset, "Built-in configuration: " + known);
  command.add_option("--config", config, "Folder with config.json and, for NVFP4, hf_quant_config.json")->excludes(preset_option);
}

model::ModelConfig ModelOptions::load(const std::string& fallback) const {
  return config.empty() ? model::preset(preset.empty() ? fallback : preset) : model::load_config(config);
}

}  // namespace dodona::tools
