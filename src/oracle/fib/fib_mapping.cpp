#include "oracle/fib/fib_mapping.h"

#include <array>

#include "dodona/error.h"

namespace dodona::oracle::fib {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

struct Known {
  std::string_view api;     ///< last part of the public function's name
  std::string_view type;    ///< op_type of Definitions without the tag
  std::string_view prefix;  ///< of their name: gemma_rmsnorm has rmsnorm's op_type and arguments, and adds 1 to its weight
  std::string_view op;
  Names arguments, outputs;
};

const std::vector<Known>& known() {
  static const std::vector<Known> table{
      {"rmsnorm", "rmsnorm", "rmsnorm_h", "rmsnorm", {{"input", "hidden_states"}, {"weight", "weight"}}, {{"output", "output"}}},
      {"fused_add_rmsnorm",
       "rmsnorm",
       "fused_add_rmsnorm_h",
       "fused_add_rmsnorm",
       {{"input", "hidden_states"}, {"residual", "residual"}, {"weight", "weight"}},
       {{"input", "output"}, {"residual", "residual"}}},
      {"", "gemm", "gemm_n", "linear", {{"input", "A"}, {"weight", "B"}}, {{"output", "C"}}},
      {"silu_and_mul", "activation", "silu_and_mul_h", "silu_and_mul", {{"input", "input"}}, {{"out", "output"}}},
      {"gelu_and_mul", "activation", "gelu_and_mul_h", "gelu_and_mul", {{"input", "input"}}, {{"out", "output"}}},
      {"gelu_tanh_and_mul", "activation", "gelu_tanh_and_mul_h", "gelu_tanh_and_mul", {{"input", "input"}}, {{"out", "output"}}},
  };
  return table;
}

/// Kinds of work that some kernel of the inventory is for, and whose arguments are not those of a Definition.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> elsewhere{{
    {"moe", "hidden_states_scale is transposed there, the second half of GEMM1 goes through SiLU, and weights have no epsilon here"},
    {"mla_ragged", "ragged prefill"},
    {"sampling", "samples need the generator's state, which a Definition does not hold"},
    {"dsa_paged", "sparse attention"},
}};

bool is_paged_decode(const Definition& d, const std::string& api) {
  const bool wrapper = api.find("BatchMLAPagedAttentionWrapper") != std::string::npos;
  return (wrapper || (api.empty() && d.op_type == "mla_paged")) && d.name.starts_with("mla_paged_decode");
}

/// `flashinfer.norm.rmsnorm` to `rmsnorm`.
std::string last_part(std::string api) {
  if (api.ends_with(".run")) api.resize(api.size() - 4);
  return api.substr(api.find_last_of('.') + 1);
}

bool has_all(const Definition& d, const Known& entry) {
  for (const auto& [ours, theirs] : entry.arguments)
    if (d.input(theirs) == nullptr) return false;
  return d.inputs.size() == entry.arguments.size();
}

/// Arguments and outputs of the op's own names; an output `X_out` is what is left in the argument X.
Mapping by_own_names(const Definition& d, const Op& op) {
  Mapping mapping{.op = &op};
  const auto refuse = [&](const std::string& name) {
    throw Error(ErrorCode::unsupported, "", d.path, "has " + name + ", which " + std::string(op.name()) + " does not have");
  };
  for (const Field& field : d.inputs) {
    if (op.schema().find_tensor(field.name) == nullptr && op.schema().find_attr(field.name) == nullptr) refuse("the input " + field.name);
    mapping.arguments.emplace_back(field.name, field.name);
  }
  for (const Field& field : d.outputs) {
    const bool renamed = op.schema().find_tensor(field.name) == nullptr && field.name.ends_with("_out");
    const std::string ours = renamed ? field.name.substr(0, field.name.size() - 4) : field.name;
    const TensorSpec* spec = op.schema().find_tensor(ours);
    if (spec == nullptr || spec->direction == Direction::in) refuse("the output " + field.name);
    mapping.outputs.emplace_back(ours, field.name);
  }
  return mapping;
}

}  // namespace

Mapping mapping_of(const Definition& d, const std::string& wanted) {
  if (!wanted.empty()) return by_own_names(d, registry().at(wanted));
  if (const std::string own = d.tag("dodona:"); !own.empty()) return by_own_names(d, registry().at(own));
  const std::string api = d.tag("fi_api:"), function = last_part(api);
  for (const Known& entry : known()) {
    const bool named = api.empty() ? d.op_type == entry.type && d.name.starts_with(entry.prefix) : function == entry.api;
    if (!named || !has_all(d, entry)) continue;
    return {.op = &registry().at(entry.op), .arguments = entry.arguments, .outputs = entry.outputs};
  }
  if (is_paged_decode(d, api)) return {.paged_mla = true};
  if (!function.empty() && registry().find(function) != nullptr) return by_own_names(d, registry().at(function));
  for (const auto& [type, why] : elsewhere)
    if (d.op_type == type)
      throw Error(ErrorCode::unsupported, "", d.path, "is of op_type " + d.op_type + ", which is not imported: " + std::string(why));
  throw Error(ErrorCode::unsupported, "", d.path,
              "is no op of ours by its " + (api.empty() ? "op_type '" + d.op_type + "' and name" : "tag fi_api:" + api) +
                  "; name one with the same arguments with --map " + d.name + "=OP");
}

}  // namespace dodona::oracle::fib
