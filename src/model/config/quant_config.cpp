#include "model/config/quant_config.h"

#include <algorithm>
#include <array>

#include "dodona/error.h"

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

struct FormRow {
  WeightForm form;
  std::string_view name;
  FormLimits limits;
};
// Tiles of QServe have 32 rows, of which its kernels take two at a time.
constexpr std::array forms{FormRow{WeightForm::bf16, "bf16", {}},
                           FormRow{WeightForm::nvfp4, "nvfp4", {.columns = 16}},
                           FormRow{WeightForm::fp8_block, "fp8-block", {.columns = 128, .rows = 8, .stacked = 128}},
                           FormRow{WeightForm::fp8, "fp8", {.columns = 16, .rows = 8}},
                           FormRow{WeightForm::int8, "int8", {.columns = 16, .rows = 8}},
                           FormRow{WeightForm::qserve_channel, "qserve-channel", {.columns = 128, .rows = 64, .stacked = 64}},
                           FormRow{WeightForm::qserve_group, "qserve-group", {.columns = 128, .rows = 64, .stacked = 64}},
                           FormRow{WeightForm::w4a8, "w4a8", {.columns = 128}}};

const FormRow& row_of(WeightForm form) {
  return *std::find_if(forms.begin(), forms.end(), [&](const FormRow& row) { return row.form == form; });
}

using enum WeightForm;
// QServe's method knows no experts: they stay as they are.
constexpr std::array schemes{QuantScheme{QuantAlgo::none, "bf16", "", bf16, bf16},
                             QuantScheme{QuantAlgo::nvfp4, "nvfp4", "modelopt", nvfp4, nvfp4, false, true},
                             QuantScheme{QuantAlgo::fp8_block, "fp8-block", "fp8", fp8_block, fp8_block},
                             QuantScheme{QuantAlgo::fp8, "fp8", "w8a8_fp8", fp8, fp8},
                             QuantScheme{QuantAlgo::int8, "int8", "w8a8_int8", int8, int8},
                             QuantScheme{QuantAlgo::qserve_channel, "qserve-channel", "qoq", qserve_channel, bf16},
                             QuantScheme{QuantAlgo::qserve_group, "qserve-group", "qoq", qserve_group, bf16},
                             QuantScheme{QuantAlgo::w4afp8, "w4a8", "w4afp8", fp8_block, w4a8}};

/// Whether `outer` is a run of whole components of `module`.
bool lies_in(std::string_view module, std::string_view outer) {
  if (outer.empty()) return false;
  for (std::size_t at = module.find(outer); at != std::string_view::npos; at = module.find(outer, at + 1)) {
    const std::size_t end = at + outer.size();
    if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.')) return true;
  }
  return false;
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
  if (pattern.find('*') == std::string_view::npos) return pattern == text;  // most are names, hundreds for each of thousands of modules
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
  return row_of(form).name;
}
FormLimits limits_of(WeightForm form) {
  return row_of(form).limits;
}

std::span<const QuantScheme> quant_schemes() {
  return schemes;
}
const QuantScheme& scheme_of(QuantAlgo algo) {
  return *std::find_if(schemes.begin(), schemes.end(), [&](const QuantScheme& scheme) { return scheme.algo == algo; });
}
const QuantScheme& scheme_named(std::string_view name) {
  std::string known;
  for (const QuantScheme& scheme : schemes) {
    if (scheme.name == name) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw Error(ErrorCode::bad_option, "", "--linear", "must be one of " + known + ", got '" + std::string(name) + "'");
}

bool QuantConfig::excludes(std::string_view module) const {
  const FiveParts parts = split_five(module);
  const std::string_view experts = experts_of(module);
  const bool modelopt = algo == QuantAlgo::nvfp4;
  return std::any_of(exclude.begin(), exclude.end(), [&](const std::string& pattern) {
    return glob_matches(pattern, module) || (!experts.empty() && glob_matches(pattern, experts)) ||
           (modelopt ? excludes_by_last_part(pattern, parts) : lies_in(module, pattern));
  });
}

}  // namespace dodona::model
