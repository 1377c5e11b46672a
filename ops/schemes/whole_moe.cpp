#include "ops/schemes/whole_moe.h"

#include "ops/schemes/whole_moe/rows.h"

namespace dodona::ops {

const std::string_view whole_moe_contract = R"(
For each token and each slot whose expert is local: [u; g] = W1 x, rows of up before rows of gate; h = silu(g) * u, or with alpha, beta
and limit: g' = min(g, limit), u' = clamp(u, -limit, limit), h = g' / (1 + exp(-alpha g')) * (u' + beta), fp32 (where an op has
activation, gated and limited: silu, gelu (erf), gelu_tanh, relu, relu2 = max(g, 0)^2 or identity stand for silu, alpha as in
act(alpha g') / alpha; gated=false has rows of gate alone and h = act(g); limited=activated: min(act(g), limit) * u'); y = W2 h; output = rn of
the sum over slots of weight * y in fp32. Slots of experts elsewhere add nothing. Budget: that of the sums; silu, gelu and gelu_tanh (of the documented instruction) as in
silu_and_mul and its kin, a rounding of relu2, and what is open of g and u carried through them; of numbers that are quantized again, the farthest that any number within reach becomes under any
scale within reach, 2 ulp for divisions; that, times the magnitudes of W2's numbers, added to the second sums' own budget; the reach of
rounding y; of the sum over slots, in any order, a rounding for each. Tokens whose choice of experts the keys' intervals leave open, and
what infinities and NaN reach, are not compared; nor, beside such a token, any rows that are not added up and their places, for it may lie before them.)";

std::int64_t plain_row(const MoeMatrix& matrix, std::int64_t r) {
  if (matrix.shuffled > 0) {
    const std::int64_t in = r % matrix.shuffled;
    r = r - in + in % 8 * (matrix.shuffled / 8) + in / 8;
  }
  return matrix.alternating ? r % 2 * (matrix.n / 2) + r / 2 : r;
}

double whole_moe_flops(const WholeMoe& moe) {
  double rows = 0;
  for (const whole_moe::Group& group : whole_moe::groups_of(moe)) rows += static_cast<double>(group.rows());
  return 2.0 * rows * static_cast<double>(moe.first.n * moe.first.k + moe.second.n * moe.second.k);
}

double whole_moe_bytes(const WholeMoe& moe) {
  const double number = moe.scheme.numbers == MoeNumbers::bf16 ? 2.0 : moe.scheme.numbers == MoeNumbers::nvfp4 ? 0.5625 : 1.0;
  const auto experts = static_cast<double>(whole_moe::groups_of(moe).size());
  return number * (experts * static_cast<double>(moe.first.n * moe.first.k + moe.second.n * moe.second.k) +
                   static_cast<double>(moe.tokens() * moe.first.k));
}

}  // namespace dodona::ops
