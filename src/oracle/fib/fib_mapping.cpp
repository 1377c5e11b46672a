#include "oracle/fib/fib_mapping.h"

#include <algorithm>
#include <array>

#include "dodona/error.h"

namespace dodona::oracle::fib {
namespace {

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

/// The Definition's function, or without one its kind and name, and its arguments are those that the op is known by.
bool means(const Definition& d, const std::string& api, const FibNames& names) {
  const bool named = api.empty() ? d.op_type == names.type && d.name.starts_with(names.prefix) : last_part(api) == names.api;
  const auto given = [&](const auto& pair) { return d.input(std::string(pair.second)) != nullptr; };
  return named && d.inputs.size() == names.arguments.size() && std::all_of(names.arguments.begin(), names.arguments.end(), given);
}

std::vector<std::pair<std::string, std::string>> owned(const FibNames::Pairs& pairs) {
  return {pairs.begin(), pairs.end()};
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
  for (const auto& op : registry().all())
    for (const FibNames& names : op->fib_names())
      if (means(d, api, names)) return {.op = op.get(), .arguments = owned(names.arguments), .outputs = owned(names.outputs)};
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
