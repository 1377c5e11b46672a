// In which form a checkpoint stores each linear module.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/module_patterns.h"

namespace dodona::model {

/// How a whole checkpoint is quantized; quant_schemes() has a row for each.
enum class QuantAlgo { none, nvfp4, fp8_block, fp8, int8, qserve_channel, qserve_group, w4afp8 };

/// How a checkpoint stores the weight of a linear module; weights/tensor_list.cpp has a row for each.
enum class WeightForm {
  bf16,
  nvfp4,           ///< ModelOpt's
  fp8_block,       ///< DeepSeek's own: e4m3 with a scale for 128 x 128
  fp8,             ///< e4m3 with a scale for each row
  int8,            ///< int8 with a scale for each row
  qserve_channel,  ///< four bits without sign, in tiles; scale and zero for each row
  qserve_group,    ///< the same with int8 scales and zeros for 128 of K beneath
  w4a8,            ///< int4 with a scale for 128 of K, and a static scale of the activations
};
std::string_view name(WeightForm form);

/// What a form asks of a matrix [N, K].
struct FormLimits {
  std::int64_t columns = 1;  ///< K is a multiple of this,
  std::int64_t rows = 1;     ///< N of this,
  std::int64_t stacked = 1;  ///< and N of a module that another is stacked upon, of this
};
FormLimits limits_of(WeightForm form);

/// Modules that are stored in another form than their scheme says.
struct FormOfModules {
  std::string pattern;  ///< a glob that matches the whole name
  WeightForm form;
};

struct QuantScheme {
  QuantAlgo algo;
  std::string_view name;        ///< "fp8-block": as commands spell it
  std::string_view method;      ///< `quant_method` of config.json; empty for none and for ModelOpt's own file
  WeightForm linears, experts;  ///< of routed experts and of all other linear modules
  bool nextn = true;            ///< NextN layers are quantized as the others are
  bool lists_exceptions =
      false;  ///< every exception is listed; otherwise router, lm_head, eh_proj and the indexer's weights_proj are bf16 unasked
};
std::span<const QuantScheme> quant_schemes();
const QuantScheme& scheme_of(QuantAlgo algo);
/// Throws Error (bad_option) naming the known ones.
const QuantScheme& scheme_named(std::string_view name);

/// What ModelOpt's `hf_quant_config.json`, or `quantization_config` in `config.json`, says.
/// Sources: ModelOpt's export, sglang `ModelOptFp4Config`, `Fp8Config`, `W8A8Int8Config`, `W8A8Fp8Config`, `QoQConfig`, `W4AFp8Config`.
struct QuantConfig {
  QuantAlgo algo = QuantAlgo::none;
  std::int64_t group_size = 16;      ///< elements of a row that share a block scale (NVFP4)
  bool fp8_kv_cache = false;         ///< kv_cache_quant_algo FP8: cache elements are e4m3(x / k_scale)
  ModulePatterns exclude;            ///< modules that stay bf16: names or globs (`*` is any text, everything else is itself)
  std::vector<FormOfModules> forms;  ///< come before all else; the first that matches counts

  /// Whether the checkpoint leaves `module` ("model.layers.3.self_attn.q_a_proj") unquantized:
  /// - a pattern matches the whole name, or, for a routed expert's linear, the name of the experts ("model.layers.3.mlp.experts");
  /// - but for NVFP4, the pattern is the name of something that the module lies in ("model.layers.3", "self_attn.indexer");
  /// - or, of NVFP4, both name and pattern have five components, and the name's last component contains the pattern's last one, which is
  /// q_a_proj,
  ///   q_b_proj, kv_a_proj_with_mqa or kv_b_proj. This rule ignores the layer, as upstream's loader does.
  bool excludes(std::string_view module) const;
};

}  // namespace dodona::model
