#include "oracle/trust/customary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quant/element.h"

namespace dodona::oracle {
namespace {

using enum CustomaryKind;

constexpr std::array table{
    Customary{"rmsnorm", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_norm.py test_norm (f16)"},
    Customary{"fused_add_rmsnorm", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_norm.py test_fused_add_rmsnorm (f16)"},
    Customary{"silu_and_mul", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_silu_mul (f16)"},
    Customary{"gelu_and_mul", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_mul (f16)"},
    Customary{"gelu_tanh_and_mul", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_tanh_mul (f16)"},
    Customary{"apply_rope_with_cos_sin_cache_inplace", "*", close, 1e-2, 1e-2, "sgl-kernel/tests/test_rotary_embedding.py (bf16)"},
    Customary{"rotary_embedding", "*", below, 0, 1e-2, "sgl-kernel/tests/test_mm_rotary_embedding.py (bf16, f16)"},
    Customary{"concat_mla_k", "*", close, 0, 0, "sglang jit_kernel tests of concat_mla (bf16)"},
    Customary{"concat_mla_absorb_q", "*", close, 0, 0, "sglang jit_kernel tests of concat_mla (bf16)"},
    Customary{"merge_state", "*", close, 1e-5, 1e-2, "sgl-kernel/tests/test_merge_state.py (f16), torch.allclose"},
    Customary{"merge_state_v2", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_merge_state_v2.py (rtol 1e-2 for bf16)"},
    Customary{"moe_fused_gate", "topk_weights", sorted, 1e-2, 1e-3, "sgl-kernel/tests/test_moe_fused_gate.py (f32)"},
    Customary{"moe_fused_gate", "topk_ids", sorted, 1e-4, 1e-5, "sgl-kernel/tests/test_moe_fused_gate.py (f32)"},
    Customary{"bmm_fp8", "*", cosine, 0, 0.99, "sgl-kernel/tests/test_bmm_fp8.py"},
    Customary{"fp8_blockwise_scaled_mm", "*", close, 2e-2, 1, "sgl-kernel/tests/test_fp8_blockwise_gemm.py"},
    Customary{"scaled_fp4_quant", "*", close, 1.3e-6, 1e-5, "sgl-kernel/tests/test_fp4_quantize.py, decoded to f32"},
    Customary{"sgl_per_token_quant_fp8", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_per_token_quant_fp8.py (f16), decoded to f32"},
    Customary{"sgl_per_tensor_quant_fp8", "*", close, 1e-3, 1e-3, "sgl-kernel/tests/test_per_tensor_quant_fp8.py, decoded to f32"},
    Customary{"prepare_moe_input", "expert_offsets", close, 0, 0, "sgl-kernel test_prepare_input_moe (as its XPU port has it)"},
    Customary{"prepare_moe_input", "input_permutation", round_trip, 0, 0,
              "sgl-kernel test_prepare_input_moe (as its XPU port has it): scatter, then gather"},
    Customary{"prepare_moe_input", "*", unchecked, 0, 0, "sgl-kernel test_prepare_input_moe (as its XPU port has it)"},
    Customary{"shuffle_rows", "*", close, 1.3e-6, 1e-5,
              "sgl-kernel test_prepare_input_moe (as its XPU port has it): scatter, then gather (f32, bf16, f16)"},
    Customary{"apply_shuffle_mul_sum", "*", close, 1.3e-6, 1e-5,
              "sgl-kernel test_prepare_input_moe (as its XPU port has it), assert_allclose (f32, bf16, f16)"},
};

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

/// Codes that are packed in bytes, decoded.
Tensor decoded(const Tensor& tensor, const ReferenceOutput* reference) {
  if (reference == nullptr || !reference->code) return tensor;
  const Tensor dense = tensor.clone();
  Dims shape = dense.shape();
  shape[shape.rank() - 1] *= bits(dense.dtype()) / bits(*reference->code);
  return {dense.owner(), dense.data(), *reference->code, shape, contiguous_strides(shape), true};
}

/// Elements that the contract speaks of.
Numbers numbers_of(const Tensor& tensor, const ReferenceOutput* reference) {
  Numbers values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    if (reference == nullptr || reference->unspecified.empty() || !reference->unspecified[static_cast<std::size_t>(i)])
      values.push_back(quant::get(tensor, i));
  return values;
}

const Tensor* find(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
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

bool passes(const Customary& check, const GoldenRun& golden, const NamedTensors& actual, const std::string& name) {
  if (check.kind == unchecked) return true;
  if (check.kind == round_trip) return comes_home(golden, actual);
  const ReferenceOutput* reference = golden.reference.find(name);
  const Tensor expected_tensor = decoded(*find(golden.outputs, name), reference);
  Numbers expected = numbers_of(expected_tensor, reference), found = numbers_of(decoded(*find(actual, name), reference), reference);
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

std::span<const Customary> customary_checks() {
  return table;
}

Customary customary_check(std::string_view op, std::string_view output, DType type) {
  const Tolerance usual = framework_default(type);
  for (const std::string_view wanted : {output, std::string_view("*")})
    for (const Customary& check : table)
      if (check.op == op && check.output == wanted) {
        Customary fitted = check;
        if (check.kind == close && check.rtol > 0) fitted.rtol = std::max(check.rtol, usual.rtol);
        return fitted;
      }
  return {op, output, close, usual.rtol, usual.atol, "no test recorded: torch.testing.assert_close"};
}

bool customary_pass(const Op& op, const GoldenRun& golden, const NamedTensors& actual) {
  for (const auto& [name, tensor] : golden.outputs)
    if (!passes(customary_check(op.name(), name, tensor.dtype()), golden, actual, name)) return false;
  return true;
}

}  // namespace dodona::oracle
