#include "model_options.h"

namespace dodona::tools {

void ModelOptions::add(CLI::App& command) {
  std::string known;
  for (const std::string& name : model::preset_names()) known += (known.empty() ? "" : ", ") + name;
  auto* preset_option = command.add_option("--preset", preset, "Built-in configuration: " + known);
  command.add_option("--config", config, "Folder with config.json and, for NVFP4, perhaps hf_quant_config.json")->excludes(preset_option);
}

void ModelOptions::add_linear(CLI::App& command) {
  add_linear_option(command, linear);
}

model::ModelConfig ModelOptions::load(const std::string& fallback) const {
  model::ModelConfig loaded = config.empty() ? model::preset(preset.empty() ? fallback : preset) : model::load_config(config);
  return linear.empty() ? loaded : model::with_scheme(std::move(loaded), model::scheme_named(linear));
}

CLI::Option* add_linear_option(CLI::App& command, std::string& linear) {
  std::string known;
  for (const model::QuantScheme& scheme : model::quant_schemes()) known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  return command.add_option(
      "--linear", linear,
      "Linear modules in this form instead of the configuration's: " + known +
          ". Router, head and eh_proj stay bf16; w4a8: experts in int4, the others in blocks of fp8; qserve: experts in bf16");
}

}  // namespace dodona::tools
