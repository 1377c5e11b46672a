#include "model_options.h"

#include "model/run.h"

namespace dodona::tools {

void ModelOptions::add(CLI::App& command, const std::string& otherwise) {
  std::string known;
  for (const std::string& name : model::preset_names()) known += (known.empty() ? "" : ", ") + name;
  auto* preset_option = command.add_option("--preset", preset, "Built-in configuration: " + known + " (default " + otherwise + ")");
  command.add_option("--config", config, "Folder with config.json and, for NVFP4, perhaps hf_quant_config.json")->excludes(preset_option);
}

void ModelOptions::add_linear(CLI::App& command) {
  add_linear_option(command, linear);
}

model::ModelConfig ModelOptions::load(const std::string& fallback) const {
  model::ModelConfig loaded = config.empty() ? model::preset(preset.empty() ? fallback : preset) : model::load_config(config);
  return linear.empty() ? loaded : model::with_scheme(std::move(loaded), model::scheme_named(linear));
}

void KernelOptions::add(CLI::App& command) {
  std::string known;
  for (const model::OpKernels& op : model::ops_with_kernels()) known += (known.empty() ? "" : ", ") + op.op;
  command
      .add_option("--use", uses,
                  "OP=KERNEL: the kernel that runs a model op, q_b_proj=int8_scaled_mm; may be repeated. Synthetic weights are made in the "
                  "form that it reads. A wrong kernel is answered by those that there are. Ops: " +
                      known)
      ->expected(1)
      ->take_all();
  command
      .add_option("--kv-cache-dtype", kv_cache_dtype,
                  "Elements of the cache of latents: bf16 (default); fp8_e4m3: rows are cast, without a scale (those of sparse attention "
                  "have one for each 128 "
                  "elements); auto: what the configuration "
                  "says (kv_cache_quant_algo FP8)")
      ->check(CLI::IsMember({"bf16", "fp8_e4m3", "auto"}));
}

void KernelOptions::apply(model::ModelConfig& config, model::LayerSetting& setting, const model::UsePlace& place) const {
  setting.kv_cache = model::kv_cache_of(kv_cache_dtype, config, "--kv-cache-dtype");
  std::vector<model::KernelUse> parsed;
  for (const std::string& text : uses) parsed.push_back(model::parse_use(text));
  model::apply_uses(config, setting, parsed, place);
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
