#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// y[t,d] = (x[t,d] - m[t]) * r[t] * gemma[d] + beta[d], m the row's mean, r = 1 / sqrt(mean_d((x[t,:] - m)^2) + eps).
/// Source: FlashInfer `layernorm`.
struct Layernorm {
  Tensor input, gemma, beta, out;
  double eps = 1e-6;

  static constexpr OpInfo info{"layernorm", Category::normalization, Source::flashinfer};
  void describe(auto& op) {
    op.signature("input, gemma, beta, eps");
    op.in("input", input, {bf16}, "T D").doc("rows to normalise; rows may be strided slices of a wider tensor");
    op.in("gemma", gemma, {f32}, "D").role(Role::weight).doc("one factor per column: gamma, nothing is added to it");
    op.in("beta", beta, {f32}, "D").doc("what is added to each column");
    op.attr("eps", eps, at_least(0.0)).doc("added to the variance; narrowed to fp32");
    op.out("out", out, {bf16}, "T D").doc("rounded once");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
