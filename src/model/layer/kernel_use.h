// Kernels of model ops chosen by name: `--use OP=KERNEL`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "model/layer/batch.h"
#include "model/layer/setting.h"

namespace dodona::model {

/// An op of the graph and the kernels that it can be run by, under the conditions of its model, weights and batch.
struct OpKernels {
  std::string op;
  std::vector<std::string> kernels;
};
/// All ops among whose kernels one can choose.
std::vector<OpKernels> ops_with_kernels();

/// "self.q_b_proj()=int8_scaled_mm", "q_b_proj=int8_scaled_mm". Throws Error (bad_option) naming the ops, or the op's kernels.
KernelUse parse_use(std::string_view text);

/// Where the uses are to hold.
struct UsePlace {
  const Batch* batch = nullptr;  ///< nullptr: any that comes
  bool stored = false;           ///< weights are a checkpoint's, in its forms; else they are made in those that the kernels read
  bool any_layer = false;        ///< every layer of the model, not setting.layer alone
  bool drafts = false;           ///< the NextN layer too, but for its experts, which run by what takes their form
  std::int64_t tensor = 1;       ///< ranks that share heads and columns
};
/// Puts the uses into `setting`, beside what follows from them for it and, of weights that are made, for the modules' forms in `config`.
/// Throws Error (bad_option) with the reason and the kernels that are possible in this place.
void apply_uses(ModelConfig& config, LayerSetting& setting, std::span<const KernelUse> uses, const UsePlace& place);

/// The kernel that the setting asks for; empty: none.
std::string_view used_kernel(std::span<const KernelUse> uses, std::string_view op);
inline std::string_view used_kernel(const LayerSetting& setting, std::string_view op) {
  return used_kernel(setting.use, op);
}
/// Whether that norm, "input_layernorm" or "post_attention_layernorm", adds up what the ranks have: trtllm_allreduce_fusion.
bool reduces_in_norm(std::span<const KernelUse> uses, std::string_view norm);
/// The setting of a layer of many. Only a layer `behind` another one of this rank is given terms, whose sum its first norm may be asked
/// for, and only one `before` another one hands them on: the rest add up themselves, as sglang's should_fuse_mlp_allreduce_with_next_layer
/// has it.
LayerSetting norms_over_layers(LayerSetting setting, bool behind, bool before);
/// The op's name in uses: the graph's without "self." and "()"; a trailing part of a group is told apart by the group's name.
std::string use_name(std::string_view op, bool in_shared_experts = false);

}  // namespace dodona::model
