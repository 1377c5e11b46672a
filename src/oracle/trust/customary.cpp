#include "oracle/trust/customary.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/storage.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using enum CustomaryKind;

struct Tolerance {
  double rtol, atol;
};

/// Of `torch.testing.assert_close`.
Tolerance framework_default(DType type) {
  switch (type) {
    case DType::f64: return {1e-7, 1e-7};
    case DType::f32: return {1.3e-6, 1e-5};
    case DType::f16: return {1e-3, 1e-5};
    case DType::bf16: return {1.6e-2, 1e-5};
    default: return {0, 0};
  }
}

using Numbers = std::vector<double>;

bool close_to(const Numbers& expected, const Numbers& actual, double rtol, double atol) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double a = actual[i], e = expected[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (!(std::fabs(a - e) <= atol + rtol * std::fabs(e)) || std::isinf(e)) return false;
  }
  return true;
}

bool below_everywhere(const Numbers& expected, const Numbers& actual, double atol) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(actual[i] == expected[i] || std::fabs(actual[i] - expected[i]) < atol)) return false;
  return true;
}

bool aligned(const Numbers& expected, const Numbers& actual, double least) {
  double dot = 0, left = 0, right = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // Masked logits are equal infinities: such tests leave them out.
    if (std::isinf(expected[i]) && expected[i] == actual[i]) continue;
    dot += expected[i] * actual[i];
    left += expected[i] * expected[i];
    right += actual[i] * actual[i];
  }
  return dot / std::sqrt(left * right) > least;
}

void sort_rows(Numbers& values, std::int64_t width) {
  if (width <= 0) return;
  for (auto row = values.begin(); row != values.end(); row += width) std::sort(row, row + width);
}

/// Elements that the contract speaks of.
Numbers numbers_of(const Tensor& tensor, const ReferenceOutput* reference) {
  Numbers values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    if (reference == nullptr || reference->unspecified.empty() || !reference->unspecified[static_cast<std::size_t>(i)])
      values.push_back(quant::get(tensor, i));
  return values;
}

/// Rows that are scattered by one permutation and gathered by the other come home: token[row[i]] is what golden's pair says.
bool comes_home(const GoldenRun& golden, const NamedTensors& actual) {
  const Tensor &tokens = *find(actual, "input_permutation"), &rows = *find(actual, "output_permutation");
  const Tensor &golden_tokens = *find(golden.outputs, "input_permutation"), &golden_rows = *find(golden.outputs, "output_permutation");
  for (std::int64_t i = 0; i < rows.elements(); ++i) {
    const auto row = static_cast<std::int64_t>(quant::get(rows, i)), golden_row = static_cast<std::int64_t>(quant::get(golden_rows, i));
    if (row < 0 || row >= tokens.elements() || quant::get(tokens, row) != quant::get(golden_tokens, golden_row)) return false;
  }
  return true;
}

bool passes(const Customary& check, const Op& op, const GoldenRun& golden, const NamedTensors& actual, const std::string& name) {
  if (check.kind == unchecked) return true;
  if (check.kind == round_trip) return comes_home(golden, actual);
  const ReferenceOutput* reference = golden.reference.find(name);
  const Storage& storage = op.schema().find_tensor(name)->storage;
  const Tensor expected_tensor = as_codes(*find(golden.outputs, name), storage);
  Numbers expected = numbers_of(expected_tensor, reference), found = numbers_of(as_codes(*find(actual, name), storage), reference);
  switch (check.kind) {
    case below: return below_everywhere(expected, found, check.atol);
    case cosine: return aligned(expected, found, check.atol);
    case sorted:
      if (static_cast<std::int64_t>(expected.size()) == expected_tensor.elements()) {
        sort_rows(expected, expected_tensor.size(-1));
        sort_rows(found, expected_tensor.size(-1));
      }
      [[fallthrough]];
    default: return close_to(expected, found, check.rtol, check.atol);
  }
}

}  // namespace

Customary customary_check(const Op& op, std::string_view output, DType type) {
  const Tolerance usual = framework_default(type);
  for (const std::string_view wanted : {output, std::string_view("*")})
    for (const Customary& check : op.customary())
      if (check.output == wanted) {
        Customary fitted = check;
        if (check.kind == close && check.rtol > 0) fitted.rtol = std::max(check.rtol, usual.rtol);
        return fitted;
      }
  return {output, close, usual.rtol, usual.atol, "no test recorded: torch.testing.assert_close"};
}

bool customary_pass(const Op& op, const GoldenRun& golden, const NamedTensors& actual) {
  for (const auto& [name, tensor] : golden.outputs)
    if (!passes(customary_check(op, name, tensor.dtype()), op, golden, actual, name)) return false;
  return true;
}

}  // namespace dodona::oracle
