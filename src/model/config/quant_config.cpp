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
                           FormRow{WeightForm::nvfp4, "nvfp4", {.columns = 32}},
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

constexpr std::array<std::string_view, 4> fused_members{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"};

bool excludes_by_last_part(const std::vector<std::string>& patterns, std::string_view module) {
  const FiveParts parts = split_five(module);
  const auto fits = [&](std::string_view member) { return parts.last.find(member) != std::string_view::npos; };
  if (!parts.five || std::none_of(fused_members.begin(), fused_members.end(), fits)) return false;
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const FiveParts p = split_five(pattern);
    return p.five && fits(p.last) && std::find(fused_members.begin(), fused_members.end(), p.last) != fused_members.end();
  });
}

/// "model.layers.3.mlp.experts" of "model.layers.3.mlp.experts.7.gate_proj"; empty for other modules.
std::string_view experts_of(std::string_view module) {
  constexpr std::string_view mark = ".mlp.experts.";
  const auto at = module.find(mark);
  return at == std::string_view::npos ? std::string_view{} : module.substr(0, at + mark.size() - 1);
}

}  // namespace

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
  if (exclude.match(module)) return true;
  if (const std::string_view experts = experts_of(module); !experts.empty() && exclude.match(experts)) return true;
  return algo == QuantAlgo::nvfp4 ? excludes_by_last_part(exclude.list(), module) : exclude.name_what_holds(module);
}

}  // namespace dodona::model
