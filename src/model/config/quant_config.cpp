#include "model/config/quant_config.h"

#include <algorithm>
#include <array>

namespace dodona::model {
namespace {

struct FiveParts {
  bool five = false;
  std::string_view last;
};

FiveParts split_five(std::string_view module) {
  const auto dots = std::count(module.begin(), module.end(), '.');
  return {dots == 4, module.substr(module.rfind('.') + 1)};
}

constexpr std::array<std::string_view, 4> fused_members{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"};

bool excludes_by_last_part(std::string_view pattern, const FiveParts& module) {
  if (!module.five) return false;
  const FiveParts parts = split_five(pattern);
  return parts.five && std::find(fused_members.begin(), fused_members.end(), parts.last) != fused_members.end() &&
         module.last.find(parts.last) != std::string_view::npos;
}

/// "model.layers.3.mlp.experts" of "model.layers.3.mlp.experts.7.gate_proj"; empty for other modules.
std::string_view experts_of(std::string_view module) {
  constexpr std::string_view mark = ".mlp.experts.";
  const auto at = module.find(mark);
  return at == std::string_view::npos ? std::string_view{} : module.substr(0, at + mark.size() - 1);
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      // The last star takes one character more; earlier stars need no second look.
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view name(WeightForm form) {
  switch (form) {
    case WeightForm::bf16: return "bf16";
    case WeightForm::nvfp4: return "nvfp4";
  }
  return {};
}

bool QuantConfig::excludes(std::string_view module) const {
  const FiveParts parts = split_five(module);
  const std::string_view experts = experts_of(module);
  return std::any_of(exclude.begin(), exclude.end(), [&](const std::string& pattern) {
    return glob_matches(pattern, module) || (!experts.empty() && glob_matches(pattern, experts)) || excludes_by_last_part(pattern, parts);
  });
}

}  // namespace dodona::model
