// Which linear modules of a checkpoint are stored as NVFP4 and which as bf16.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::model {

enum class QuantAlgo { none, nvfp4 };

/// How a checkpoint stores the weight of a linear module; weights/tensor_list.cpp has a row for each.
enum class WeightForm { bf16, nvfp4 };
std::string_view name(WeightForm form);

/// What ModelOpt's `hf_quant_config.json`, or `quantization_config` in `config.json`, says.
/// Sources: ModelOpt's export, sglang `ModelOptFp4Config`.
struct QuantConfig {
  QuantAlgo algo = QuantAlgo::none;
  std::int64_t group_size = 16;      ///< elements of a row that share a block scale
  bool fp8_kv_cache = false;         ///< kv_cache_quant_algo FP8: cache elements are e4m3(x / k_scale)
  std::vector<std::string> exclude;  ///< modules that stay bf16: names or globs (`*` is any text, everything else is itself)

  /// Whether the checkpoint leaves `module` ("model.layers.3.self_attn.q_a_proj") unquantized:
  /// - a pattern matches the whole name, or, for a routed expert's linear, the name of the experts ("model.layers.3.mlp.experts");
  /// - or both name and pattern have five components, and the name's last component contains the pattern's last one, which is q_a_proj,
  ///   q_b_proj, kv_a_proj_with_mqa or kv_b_proj. This rule ignores the layer, as upstream's loader does.
  bool excludes(std::string_view module) const;
};

/// Whether `pattern` matches all of `text`; `*` is any text, also none. Time is the product of the lengths at most.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace dodona::model
