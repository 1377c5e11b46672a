// Whole MoE kernels against a straight line of matrices in double: dequantize, multiply, activate, quantize again, multiply, add up.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <string>
#include <vector>

#include "quant/e2m1.h"
#include "quant/nibble.h"
#include "quant/swizzle.h"
#include "tests/ops/helpers.h"
#include "tests/ops/moe/whole_moe_curve.h"

namespace dodona {
namespace {

using namespace helpers;
using Matrix = Eigen::MatrixXd;

constexpr std::int64_t tokens = 9, hidden = 256, width = 128, experts = 4;
const std::string line =
    "T=9 H=256 --attr num_experts=4 --attr top_k=2 --attr routing_method_type=Renormalize --attr intermediate_size=128 "
    "--attr local_num_experts=4 --attr use_shuffled_weight=false";

double rounded(DType type, double x) {
  return quant::round_to(type, x);
}

/// A kernel's numbers, and what it rounds h to.
struct Straight {
  std::string name, more;
  Matrix (*rows)(const Arguments&);
  Matrix (*weight)(const Arguments&, const std::string& name, std::int64_t expert, std::int64_t n, std::int64_t k);
  void (*between)(Matrix&);    ///< the first product's sums
  void (*activated)(Matrix&);  ///< h
};

void keep(Matrix&) {}
void to_bf16(Matrix& h) {
  h = h.unaryExpr([](double x) { return rounded(DType::bf16, x); });
}
/// Groups of a row: scale = the scale type's amax / largest, never below `least`; numbers are codes times it.
template <class Scale, class Code>
void by_groups(Matrix& h, Eigen::Index group, const Scale& scale_of, const Code& code) {
  for (Eigen::Index i = 0; i < h.rows(); ++i)
    for (Eigen::Index j = 0; j < h.cols(); j += group) {
      auto block = h.block(i, j, 1, group);
      const double scale = scale_of(block.cwiseAbs().maxCoeff());
      block = block.unaryExpr([&](double x) { return scale == 0 ? 0.0 : code(x / scale) * scale; });
    }
}
void to_fp8(Matrix& h) {
  by_groups(
      h, 128, [](double amax) { return std::max(amax / 448.0, 0x1p-126); }, [](double x) { return rounded(DType::f8_e4m3, x); });
}
void to_fp8_as_it_is(Matrix& h) {
  h = h.unaryExpr([](double x) { return rounded(DType::f8_e4m3, std::clamp(x, -448.0, 448.0)); });
}
void to_nvfp4(Matrix& h) {
  by_groups(
      h, 16, [](double amax) { return rounded(DType::f8_e4m3, std::min(448.0, amax / 6.0)); },
      [](double x) { return static_cast<double>(quant::e2m1_to_f32(quant::to_e2m1(x))); });
}

double number(const Tensor& t, std::int64_t i) {
  return t.dtype() == DType::u8 ? static_cast<double>(quant::e2m1_to_f32(quant::nibble(t.as<std::uint8_t>(), i))) : quant::get(t, i);
}
Matrix plain_rows(const Arguments& a) {
  return Matrix::NullaryExpr(tokens, hidden,
                             [&](Eigen::Index t, Eigen::Index h) { return number(*a.find("hidden_states"), t * hidden + h); });
}
Matrix fp8_rows(const Arguments& a) {
  const Tensor& scales = *a.find("hidden_states_scale");
  return plain_rows(a).cwiseProduct(
      Matrix::NullaryExpr(tokens, hidden, [&](Eigen::Index t, Eigen::Index h) { return quant::get(scales, h / 128 * tokens + t); }));
}
Matrix fp4_rows(const Arguments& a) {
  const Tensor& scales = *a.find("hidden_states_scale");
  return plain_rows(a).cwiseProduct(
      Matrix::NullaryExpr(tokens, hidden, [&](Eigen::Index t, Eigen::Index h) { return quant::get(scales, (t * hidden + h) / 16); }));
}
Matrix plain_weight(const Arguments& a, const std::string& name, std::int64_t e, std::int64_t n, std::int64_t k) {
  return Matrix::NullaryExpr(n, k, [&](Eigen::Index i, Eigen::Index j) { return number(*a.find(name), (e * n + i) * k + j); });
}
Matrix fp8_weight(const Arguments& a, const std::string& name, std::int64_t e, std::int64_t n, std::int64_t k) {
  const Tensor& scales = *a.find(name + "_scale");
  return plain_weight(a, name, e, n, k).cwiseProduct(Matrix::NullaryExpr(n, k, [&](Eigen::Index i, Eigen::Index j) {
    return quant::get(scales, (e * n / 128 + i / 128) * (k / 128) + j / 128);
  }));
}
Matrix fp4_weight(const Arguments& a, const std::string& name, std::int64_t e, std::int64_t n, std::int64_t k) {
  const Tensor& scales = *a.find(name + "_scale");
  return plain_weight(a, name, e, n, k).cwiseProduct(Matrix::NullaryExpr(n, k, [&](Eigen::Index i, Eigen::Index j) {
    return quant::get(scales, e * n * k / 16 + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, i, j / 16, k / 16));
  }));
}

double factor(const Arguments& a, const std::string& name, std::int64_t e) {
  const Tensor* t = a.find(name + "_scalar");
  if (t == nullptr) t = a.find(name.substr(0, name.find("_scale")) + "_scales" + name.substr(name.find("_scale") + 6) + "_scalar");
  return t == nullptr ? 1.0 : quant::get(*t, e);
}

/// The two best logits and their softmax, in bf16.
std::vector<std::pair<std::int64_t, double>> route(const Arguments& a, std::int64_t t) {
  const auto logit = [&](std::int64_t e) { return quant::get(*a.find("routing_logits"), t * experts + e); };
  std::vector<std::int64_t> order{0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) { return logit(x) > logit(y); });
  const double first = 1.0 / (1.0 + std::exp(logit(order[1]) - logit(order[0])));
  return {{order[0], rounded(DType::bf16, first)}, {order[1], rounded(DType::bf16, 1.0 - first)}};
}

Matrix mixture(const Straight& kernel, const Arguments& a) {
  const CurveOfCall curve(a);
  const Matrix x = kernel.rows(a);
  Matrix out = Matrix::Zero(tokens, hidden);
  for (std::int64_t e = 0; e < experts; ++e) {
    const Matrix first = kernel.weight(a, "gemm1_weights", e, curve.halves() * width, hidden),
                 second = kernel.weight(a, "gemm2_weights", e, hidden, width);
    Matrix sums = x * first.transpose();
    if (curve.gated) sums.leftCols(width) *= factor(a, "output1_scale", e);
    sums.rightCols(width) *= factor(a, "output1_scale_gate", e);
    kernel.between(sums);
    Matrix h = sums.rightCols(width).unaryExpr([&](double g) { return curved(curve.name, g); });
    h = curve.gated ? Matrix(h.cwiseProduct(sums.leftCols(width))) : Matrix(h * factor(a, "output1_scale", e));
    kernel.activated(h);
    Matrix y = h * second.transpose() * factor(a, "output2_scale", e);
    to_bf16(y);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (const auto& [expert, weight] : route(a, t))
        if (expert == e) out.row(t) += weight * y.row(t);
  }
  return out;
}

const std::vector<Straight> straight{
    {"trtllm_bf16_moe", " --attr weight_layout=0", plain_rows, plain_weight, keep, to_bf16},
    {"trtllm_fp8_block_scale_moe", "", fp8_rows, fp8_weight, to_fp8, to_fp8},
    {"trtllm_fp4_block_scale_moe", "", fp4_rows, fp4_weight, keep, to_nvfp4},
    {"trtllm_fp8_per_tensor_scale_moe", "", plain_rows, plain_weight, keep, to_fp8_as_it_is},
    {"trtllm_fp4_block_scale_moe", " --attr accumulator=tcgen05", fp4_rows, fp4_weight, keep, to_nvfp4},
    {"trtllm_bf16_moe", " --attr weight_layout=0 --attr gate_activation=gelu", plain_rows, plain_weight, keep, to_bf16},
    {"trtllm_bf16_moe", " --attr weight_layout=0 --attr gate_activation=gelu --attr gated=false", plain_rows, plain_weight, keep, to_bf16},
    {"trtllm_fp4_block_scale_moe", " --attr gate_activation=gelu", fp4_rows, fp4_weight, keep, to_nvfp4},
    {"trtllm_fp4_block_scale_moe", " --attr gate_activation=relu2 --attr gated=false", fp4_rows, fp4_weight, keep, to_nvfp4},
    {"trtllm_fp4_block_scale_moe", " --attr gate_activation=identity --attr gated=false", fp4_rows, fp4_weight, keep, to_nvfp4},
    {"trtllm_fp8_per_tensor_scale_moe", " --attr gate_activation=relu2 --attr gated=false", plain_rows, plain_weight, keep,
     to_fp8_as_it_is},
    {"trtllm_fp8_per_tensor_scale_moe", " --attr gate_activation=gelu_tanh", plain_rows, plain_weight, keep, to_fp8_as_it_is},
};

TEST(WholeMoe, AStraightLineOfMatricesLiesWithinTheDerivedBudget) {
  for (const Straight& kernel : straight) {
    const NamedOp op{kernel.name};
    for (const char* drawn : {" --seed 1", " --dist outliers --seed 2"}) {
      const Arguments inputs = op.case_of(line + kernel.more + drawn);
      const Matrix out = mixture(kernel, inputs);
      const Tensor actual(DType::bf16, {tokens, hidden});
      for (std::int64_t i = 0; i < actual.elements(); ++i) quant::set(actual, i, out(i / hidden, i % hidden));
      EXPECT_EQ(op.failing(inputs, {{"output", actual}}), 0) << kernel.name << kernel.more << drawn;
    }
  }
}

TEST(WholeMoe, TheBudgetIsNoWiderThanAQuarterOfTheOutput) {
  for (const Straight& kernel : straight) {
    const NamedOp op{kernel.name};
    const auto golden = oracle::run_golden(op.op(), op.case_of(line + kernel.more), in_mode(Mode::golden));
    const ReferenceOutput& record = *golden.reference.find("output");
    double squares = 0, slack = 0;
    for (std::size_t i = 0; i < record.exact.size(); ++i) squares += record.exact[i] * record.exact[i], slack += record.slack[i];
    const auto count = static_cast<double>(record.exact.size());
    EXPECT_LT(slack / count, 0.25 * std::sqrt(squares / count)) << kernel.name;
  }
}

}  // namespace
}  // namespace dodona
