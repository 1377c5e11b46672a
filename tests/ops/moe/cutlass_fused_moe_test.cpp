// Rules of cutlass_fused_moe: its five forms against a straight line of matrices, ranks, quantization inside the call, bad input.
#include "ops/moe/whole/cutlass_fused_moe.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/quantization/fp4_quantize.h"
#include "quant/e2m1.h"
#include "quant/nibble.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/moe/whole_moe_curve.h"

namespace dodona {
namespace {

using namespace helpers;
using Matrix = Eigen::MatrixXd;

const NamedOp op{"cutlass_fused_moe"};
constexpr Mode own_modes[] = {Mode::golden, Mode::fast, Mode::blackwell};
constexpr std::int64_t tokens = 7, hidden = 128, width = 128, experts = 4, slots = 2;
const std::string sizes = "T=7 K=2 L=4 H=128 I=128 X=128 ";
const std::string half = sizes + "X1=128 Y=128", with_f16 = " --dtype input=f16 --dtype fc1_expert_weights=f16 --attr output_dtype=f16",
                  fp8 = sizes +
                        "X1=128 Y=128 A2=4 --dtype input=f8_e4m3 --dtype fc1_expert_weights=f8_e4m3 --with fc1_dequant --with fc2_dequant",
                  blocks = sizes +
                           "X1=128 Y=128 R1=2 C1=1 R2=1 C2=1 --dtype fc1_expert_weights=f8_e4m3 "
                           "--attr use_deepseek_fp8_block_scale=true",
                  fp4_weights =
                      "X1=64 Y=64 R1=256 C1=8 A2=4 R2=128 C2=8 --dtype fc1_expert_weights=u8 --dtype fc1_weight_scale=f8_e4m3 "
                      "--with fc1_dequant --with fc2_dequant",
                  fp4_here = sizes + "A1=1 " + fp4_weights,
                  fp4 = "T=7 K=2 L=4 H=128 I=128 X=64 --dtype input=u8 --with input_sf " + fp4_weights;

double rounded(DType type, double x) {
  return quant::round_to(type, x);
}
double number(const Tensor& t, std::int64_t i) {
  return t.dtype() == DType::u8 ? static_cast<double>(quant::e2m1_to_f32(quant::nibble(t.as<std::uint8_t>(), i))) : quant::get(t, i);
}
double tile_scale(const Tensor& t, std::int64_t first, std::int64_t row, std::int64_t k) {
  return quant::get(t, first + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, row, k / 16, hidden / 16));
}
double each(const Arguments& a, const char* name, std::int64_t e, double otherwise) {
  const Tensor* const t = a.find(name);
  return t == nullptr || !t->defined() ? otherwise : quant::get(*t, t->elements() == 1 ? 0 : e);
}

/// The weight of an expert, its scales in it.
Matrix weight(const Arguments& a, const std::string& name, std::int64_t e, std::int64_t n) {
  const Tensor& codes = *a.find(name + "_expert_weights");
  const Tensor* const scales = a.find(name + "_weight_scale");
  return Matrix::NullaryExpr(n, 128, [&](Eigen::Index i, Eigen::Index k) {
    const double value = number(codes, (e * n + i) * 128 + k);
    if (scales == nullptr) return value;
    if (scales->dtype() == DType::f8_e4m3) return value * tile_scale(*scales, e * n * 8, i, k);
    return value * quant::get(*scales, e * (n / 128) + i / 128);
  });
}

/// Numbers that groups of a row become: NVFP4 with an encode scale, or e4m3 by the inverse of the scale.
void to_groups(Matrix& x, Eigen::Index group, double encode) {
  for (Eigen::Index i = 0; i < x.rows(); ++i)
    for (Eigen::Index j = 0; j < x.cols(); j += group) {
      auto block = x.block(i, j, 1, group);
      const double amax = block.cwiseAbs().maxCoeff();
      const double scale = group == 16 ? rounded(DType::f8_e4m3, std::min(448.0, encode * amax / 6.0)) : amax / 448.0;
      block = block.unaryExpr([&](double v) {
        if (scale == 0) return 0.0;
        return group == 16 ? static_cast<double>(quant::e2m1_to_f32(quant::to_e2m1(v * encode / scale))) * scale
                           : rounded(DType::f8_e4m3, v / scale) * scale;
      });
    }
}

Matrix rows(const Arguments& a, std::int64_t e) {
  const Tensor &x = *a.find("input"), *const scales = a.find("input_sf");
  Matrix m = Matrix::NullaryExpr(tokens, hidden, [&](Eigen::Index t, Eigen::Index k) {
    return number(x, t * hidden + k) * (scales != nullptr ? tile_scale(*scales, 0, t, k) : 1.0);
  });
  if (const Tensor* s = a.find("fc1_weight_scale"); s != nullptr && x.dtype() == DType::bf16)
    to_groups(m, s->dtype() == DType::f32 ? 128 : 16, each(a, "fc1_act_scale", e, 1.0));
  return m;
}

Matrix mixture(const Arguments& a, DType type) {
  const Tensor &ids = *a.find("token_selected_experts"), &weights = *a.find("token_final_scales");
  const bool e4m3 = a.find("input")->dtype() == DType::f8_e4m3;
  const CurveOfCall curve(a);
  const Tensor* const scales = a.find("fc1_weight_scale");
  const auto narrow = [&](Matrix& m) { m = m.unaryExpr([&](double v) { return rounded(type, v); }); };
  Matrix out = Matrix::Zero(tokens, hidden);
  for (std::int64_t e = 0; e < experts; ++e) {
    Matrix sums = rows(a, e) * weight(a, "fc1", e, curve.halves() * width).transpose() * each(a, "fc1_dequant", e, 1.0);
    narrow(sums);
    const double limit = each(a, "swiglu_limit", e, std::numeric_limits<double>::infinity());
    Matrix h = sums.rightCols(width).unaryExpr(
        [&](double g) { return curve.limits_outcome ? std::min(curved(curve.name, g), limit) : curved(curve.name, std::min(g, limit)); });
    if (curve.gated) h = h.cwiseProduct(sums.leftCols(width).unaryExpr([&](double u) { return std::clamp(u, -limit, limit); }));
    const double encode = each(a, "fc2_act_scale", e, 1.0);
    if (e4m3) {
      h = h.unaryExpr([&](double v) { return rounded(DType::f8_e4m3, std::clamp(v * encode, -448.0, 448.0)); });
    } else {
      narrow(h);
      if (scales != nullptr) to_groups(h, scales->dtype() == DType::f32 ? 128 : 16, encode);
    }
    Matrix y = h * weight(a, "fc2", e, hidden).transpose() * each(a, "fc2_dequant", e, 1.0);
    narrow(y);
    for (std::int64_t i = 0; i < tokens * slots; ++i)
      if (quant::get(ids, i) == static_cast<double>(e)) out.row(i / slots) += quant::get(weights, i) * y.row(i / slots);
  }
  return out;
}

Tensor stored(const Matrix& m, DType type) {
  const Tensor t(type, {tokens, hidden});
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, m(i / hidden, i % hidden));
  return t;
}

const std::string alone = " --attr gated=false --attr gate_activation=", fp4_alone = [] {
  std::string line = fp4_here;
  return line.replace(line.find("R1=256"), 6, "R1=128");
}();
const std::vector<std::string> forms{half,
                                     half + with_f16,
                                     fp8,
                                     blocks,
                                     fp4,
                                     fp4_here,
                                     fp4 + " --attr accumulator=tcgen05",
                                     half + " --attr gate_activation=gelu",
                                     half + " --attr gate_activation=gelu_tanh",
                                     half + " --attr limited=activated --with swiglu_limit",
                                     half + " --with swiglu_limit",
                                     fp8 + " --attr gate_activation=gelu",
                                     half + alone + "gelu",
                                     half + alone + "relu",
                                     fp8 + alone + "silu",
                                     fp4_alone + alone + "relu2",
                                     half + alone + "identity"};
DType type_of(const std::string& form) {
  return form == half + with_f16 ? DType::f16 : DType::bf16;
}

TEST(CutlassFusedMoe, AStraightLineOfMatricesLiesWithinTheDerivedBudget) {
  for (const std::string& form : forms)
    for (const char* drawn : {" --seed 1", " --dist outliers --seed 2"}) {
      const Arguments inputs = op.case_of(form + drawn);
      const DType type = type_of(form);
      EXPECT_EQ(op.failing(inputs, {{"output", stored(mixture(inputs, type), type)}}), 0) << form << drawn;
    }
}

TEST(CutlassFusedMoe, TheBudgetIsNoWiderThanAQuarterOfTheOutput) {
  for (const std::string& form : forms) {
    const auto golden = oracle::run_golden(op.op(), op.case_of(form), in_mode(Mode::golden));
    const ReferenceOutput& record = *golden.reference.find("output");
    double squares = 0, slack = 0;
    for (std::size_t i = 0; i < record.exact.size(); ++i) squares += record.exact[i] * record.exact[i], slack += record.slack[i];
    const auto count = static_cast<double>(record.exact.size());
    EXPECT_LT(slack / count, 0.25 * std::sqrt(squares / count)) << form;
    EXPECT_GT(squares, 0.0) << form;
  }
}

Arguments with(Arguments arguments, const char* name, const AttrValue& value) {
  arguments.set_attr(name, value);
  return arguments;
}
Tensor output(const Arguments& inputs, Mode mode) {
  return op.outputs(inputs, in_mode(mode)).front().second;
}

TEST(CutlassFusedMoe, RanksOfExpertsAddUpToOneWithAll) {
  const Arguments all = op.case_of(half);
  for (const Mode mode : own_modes) {
    std::vector<Tensor> parts;
    for (const std::int64_t rank : {0, 1}) {
      Arguments one = with(with(all, "ep_size", std::int64_t{2}), "ep_rank", rank);
      for (const char* weights : {"fc1_expert_weights", "fc2_expert_weights"})
        one.set(weights, one.find(weights)->slice(0, 2 * rank, 2 * rank + 2).clone());
      parts.push_back(output(one, mode));
    }
    const Tensor whole = output(all, mode);
    for (std::int64_t i = 0; i < whole.elements(); ++i) {
      const double a = quant::get(parts[0], i), b = quant::get(parts[1], i), sum = quant::get(whole, i);
      EXPECT_NEAR(a + b, sum, (std::fabs(a) + std::fabs(b) + std::fabs(sum)) * 0x1p-8);
    }
  }
}

TEST(CutlassFusedMoe, OfRanksThatShareAWidthTheFirstAloneAddsTheBiasesOfResults) {
  const Arguments with_biases = with(op.case_of(half + " --with fc2_expert_biases"), "tp_size", std::int64_t{2});
  const Tensor first = output(with_biases, Mode::golden), second = output(with(with_biases, "tp_rank", std::int64_t{1}), Mode::golden);
  Arguments without = with_biases;
  without.set("fc2_expert_biases", filled(DType::bf16, {experts, hidden}, 0.0));
  EXPECT_TRUE(same_bits(second, output(without, Mode::golden)));
  EXPECT_FALSE(same_bits(first, second));
}

TEST(CutlassFusedMoe, IdsOfOtherRanksAddNothing) {
  for (const std::string& form : {half, fp8, fp4}) {
    Arguments inputs = op.case_of(form);
    const Tensor ids = filled(DType::i32, {tokens, slots}, -1.0);
    quant::set(ids, 3, 2.0);   // token 1, slot 1
    quant::set(ids, 4, 99.0);  // token 2: no rank's
    inputs.set("token_selected_experts", ids);
    for (const Mode mode : own_modes) {
      const Tensor out = output(inputs, mode);
      double here = 0;
      for (std::int64_t i = 0; i < out.elements(); ++i)
        if (i / hidden == 1) {
          here += std::fabs(quant::get(out, i));
        } else {
          EXPECT_EQ(quant::get(out, i), 0.0);
        }
      EXPECT_GT(here, 0.0) << form;
    }
  }
}

TEST(CutlassFusedMoe, AllTokensMayVisitOneExpertAndNoneAtAll) {
  for (const std::string& form : forms) {
    Arguments inputs = op.case_of(form);
    inputs.set("token_selected_experts", filled(DType::i32, {tokens, slots}, 3.0));
    EXPECT_EQ(op.failing(inputs, op.outputs(inputs, in_mode(Mode::fast))), 0) << form;
  }
  const Tensor none = output(op.case_of("T=0 K=2 L=4 H=128 I=128 X=128 X1=128 Y=128"), Mode::fast);
  EXPECT_EQ(none.shape(), (Dims{0, 128}));
}

TEST(CutlassFusedMoe, TokensQuantizedHereGiveTheBitsOfTokensQuantizedBefore) {
  for (const Mode mode : own_modes) {
    const Arguments here = op.case_of(fp4_here);
    Arguments before = here;
    const auto quantized =
        ops::run(ops::Fp4Quantize{.input = *here.find("input"), .global_scale = *here.find("fc1_act_scale")}, in_mode(Mode::golden));
    before.set("input", quantized.x_q);
    before.set("input_sf", quantized.sf);
    before.set("fc1_act_scale", Tensor());
    EXPECT_TRUE(same_bits(output(here, mode), output(before, mode))) << name(mode);
  }
}

TEST(CutlassFusedMoe, TokensMayHaveAnEncodeScaleForEachExpert) {
  Arguments inputs = op.case_of("T=7 K=2 L=4 H=128 I=128 X=128 A1=4 " + fp4_weights);
  const Tensor& each_scale = *inputs.find("fc1_act_scale");
  const Tensor before = output(inputs, Mode::golden);
  const Tensor doubled = each_scale.clone();
  doubled.as<float>()[1] *= 4.0f;
  inputs.set("fc1_act_scale", doubled);
  const Tensor after = output(inputs, Mode::golden), &ids = *inputs.find("token_selected_experts");
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool visits = quant::get(ids, 2 * t) == 1.0 || quant::get(ids, 2 * t + 1) == 1.0;
    EXPECT_EQ(same_bits(before.slice(0, t, t + 1).clone(), after.slice(0, t, t + 1).clone()), !visits) << "token " << t;
  }
}

/// Sums that are rounded after each slot, as atomics in the output's type do, in slot order.
Tensor by_atomics(const Arguments& inputs, bool ascending) {
  Matrix sum = Matrix::Zero(tokens, hidden);
  for (std::int64_t s = 0; s < slots; ++s) {
    Arguments one = inputs;
    const Tensor ids = inputs.find("token_selected_experts")->clone();
    for (std::int64_t t = 0; t < tokens; ++t) quant::set(ids, t * slots + (ascending ? 1 - s : s), -1.0);
    one.set("token_selected_experts", ids);
    const Tensor term = output(with(one, "finalize", std::string("fused")), Mode::fast);
    for (std::int64_t i = 0; i < term.elements(); ++i)
      sum(i / hidden, i % hidden) = rounded(DType::bf16, sum(i / hidden, i % hidden) + quant::get(term, i));
  }
  return stored(sum, DType::bf16);
}

TEST(CutlassFusedMoe, AtomicsInTheOutputsTypeAreWithinTheFusedBudgetAloneInEitherOrder) {
  const Arguments separate = op.case_of("T=7 K=2 L=4 H=128 I=128 X=128 X1=128 Y=128 --seed 5"),
                  fused = with(separate, "finalize", std::string("fused"));
  for (const bool ascending : {true, false}) {
    const Tensor out = by_atomics(separate, ascending);
    EXPECT_EQ(op.failing(fused, {{"output", out}}), 0);
    EXPECT_GT(op.failing(separate, {{"output", out}}), 0);
  }
}

TEST(CutlassFusedMoe, SumsOfAtomicsInF16MayLeaveItsRangeOnTheWay) {
  Arguments fused = op.case_of("T=7 K=3 L=4 H=128 I=128 X=128 X1=128 Y=128" + with_f16 + " --attr finalize=fused");
  fused.set("token_selected_experts", filled(DType::i32, {tokens, 3}, 2.0));
  const Tensor weights = filled(DType::f32, {tokens, 3}, 1.0);
  for (std::int64_t i = 0; i < tokens * 3; ++i) quant::set(weights, i, i % 3 == 2 ? -1.0 : 1.0);
  fused.set("token_final_scales", weights);
  double most = 0;
  const Tensor plain = output(fused, Mode::golden);
  for (std::int64_t i = 0; i < plain.elements(); ++i) most = std::max(most, std::fabs(quant::get(plain, i)));
  for (std::int64_t i = 0; i < tokens * 3; ++i) quant::set(weights, i, quant::get(weights, i) * 40000.0 / most);
  const Tensor out = output(fused, Mode::golden).clone();
  std::int64_t lost = 0;
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const double y = quant::get(out, i);
    if (std::fabs(y) > 36000.0) quant::set(out, i, std::copysign(INFINITY, y)), ++lost;
  }
  EXPECT_GT(lost, 0);
  EXPECT_EQ(op.failing(fused, {{"output", out}}), 0);
  for (std::int64_t i = 0; i < tokens * 3; ++i) quant::set(weights, i, quant::get(weights, i) / 4.0);
  EXPECT_GT(op.failing(fused, {{"output", out}}), 0);
}

// ---- bad input

void expect_refused(const Arguments& inputs, const std::string& argument) {
  Arguments arguments = oracle::runnable(op.op(), inputs);
  const Error error = error_from([&] { op.op().run(arguments, in_mode(Mode::fast)); });
  EXPECT_EQ(error.argument(), argument) << error.what();
}
Arguments with(Arguments arguments, const char* name, const Tensor& tensor) {
  arguments.set(name, tensor);
  return arguments;
}

TEST(CutlassFusedMoe, WhatDoesNotFitIsRefusedByName) {
  const Arguments plain = op.case_of(half);
  expect_refused(with(plain, "ep_rank", std::int64_t{1}), "ep_rank");
  expect_refused(with(plain, "tp_rank", std::int64_t{1}), "tp_rank");
  expect_refused(with(plain, "output_dtype", DType::f16), "output_dtype");
  expect_refused(with(plain, "gated", false), "fc2_expert_weights");
  expect_refused(with(with(plain, "swiglu_alpha", filled(DType::f32, {experts}, 1.0)), "gate_activation", std::string("gelu")),
                 "swiglu_alpha");
  expect_refused(with(op.case_of(half + " --with swiglu_limit"), "gate_activation", std::string("relu2")), "swiglu_limit");
  expect_refused(with(op.case_of(half + " --with swiglu_beta"), "limited", std::string("activated")), "swiglu_beta");
  expect_refused(with(plain, "input", filled(DType::f16, {tokens, hidden}, 1.0)), "fc1_expert_weights");
  expect_refused(with(plain, "input", filled(DType::bf16, {tokens, 64}, 1.0)), "input");
  expect_refused(with(plain, "fc1_dequant", filled(DType::f32, {experts}, 1.0)), "fc1_dequant");
  expect_refused(with(plain, "use_deepseek_fp8_block_scale", true), "fc1_expert_weights");
  expect_refused(with(op.case_of(fp8), "fc2_act_scale", Tensor()), "fc2_act_scale");
  expect_refused(with(op.case_of(fp8), "fc2_act_scale", filled(DType::f32, {3}, 1.0)), "fc2_act_scale");
  expect_refused(with(op.case_of(blocks), "fc1_weight_scale", filled(DType::f32, {experts, 1, 1}, 1.0)), "fc1_weight_scale");
  expect_refused(with(op.case_of(blocks), "input", filled(DType::f16, {tokens, hidden}, 1.0)), "input");
  expect_refused(with(op.case_of(fp4), "input_sf", Tensor()), "input_sf");
  expect_refused(with(op.case_of(fp4_here), "input", filled(DType::f8_e4m3, {tokens, hidden}, 1.0)), "input");
  expect_refused(op.case_of("T=2 K=1 L=2 H=32 I=32 X=32 A1=1 A2=1 X1=16 Y=16 R1=128 C1=4 R2=128 C2=4 --dtype fc1_expert_weights=u8 "
                            "--dtype fc1_weight_scale=f8_e4m3 --with fc1_dequant --with fc2_dequant"),
                 "input");
}

TEST(CutlassFusedMoe, AGpusModeSaysWhatNoneComputes) {
  for (const std::string& form : {blocks, half + " --attr finalize=fused"})
    EXPECT_THROW(op.outputs(op.case_of(form), in_mode(Mode::blackwell)), Error) << form;
  for (const std::string& form : {fp4, fp4_here, half + " --attr finalize=fused"})
    EXPECT_THROW(op.outputs(op.case_of(form), in_mode(Mode::hopper)), Error) << form;
}

TEST(CutlassFusedMoe, HopperModeHasEveryActivationWithinTheBudget) {
  for (const char* curve : {"gelu", "gelu_tanh", "relu", "relu2", "identity"})
    for (const std::string& form : {half + " --attr gate_activation=", half + alone}) {
      const Arguments a = op.case_of(form + curve);
      EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(Mode::hopper))), 0) << form << curve;
    }
  const Arguments step = op.case_of(half + " --attr limited=activated --with swiglu_limit");
  EXPECT_EQ(op.failing(step, op.outputs(step, in_mode(Mode::hopper))), 0);
}

}  // namespace
}  // namespace dodona
