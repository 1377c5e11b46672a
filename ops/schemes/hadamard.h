// What the Hadamard transforms of the last dimension share.
#pragma once

#include <string>
#include <vector>

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// out = scale * (H_chunks (x) H_n) x: element j of chunk c is element c * n + j, H_n in Sylvester's order, H_chunks a fixed matrix of
/// signs (1 for one chunk). Elements behind the last dimension are zero, and of the result as many are kept as there are of x.
struct HadamardCall {
  Tensor x, out;
  double scale = 1.0;

  void describe_transform(auto& op, std::int64_t longest) {
    op.in("x", x, {bf16, f16, f32}, "T... D").doc("rows, which may be strided slices of wider ones");
    op.attr("scale", scale).doc("factor of every output; narrowed to fp32");
    op.out("out", out, same_as("x"), "T... D").doc("rounded once; may be the memory of x");
    op.symbol("D", {.minimum = 1, .maximum = longest});
    op.rows_independent("T");
    op.in_place("out", "x");
  }
};

/// How upstream pads a row: `chunks` of n elements, n a power of two.
struct HadamardSize {
  std::int64_t chunks, n;
};
/// A single chunk is padded to a multiple of 8 first, others to one of 4 elements a chunk.
HadamardSize hadamard_size(std::int64_t width, std::int64_t chunks);

/// The rule itself, and mistakes of such kernels.
enum class HadamardRule {
  right,
  last_pass_left_out,    ///< the butterflies of the largest stride, or the mixing of chunks, do not happen
  outputs_bit_reversed,  ///< within each chunk
};

void hadamard_golden(const HadamardCall& op, std::int64_t chunks, HadamardRule rule, const Exec& exec, Reference* reference);
void hadamard_fast(const HadamardCall& op, std::int64_t chunks, const Exec& exec);
void hadamard_hopper(const HadamardCall& op, std::int64_t chunks, const Exec& exec);

/// The contract's words, and those about what comes behind the butterflies.
std::string hadamard_contract(std::int64_t chunks);

/// The op: `O` is a HadamardCall with a number of chunks.
template <class O>
// NOLINTNEXTLINE(performance-unnecessary-value-param): they are moved
Implementation<O> hadamard_op(std::vector<std::string> cases, std::vector<std::string> bench_cases) {
  return {
      .contract = hadamard_contract(O::chunks),
      .contract_version = 2,
      .golden = [](const O& op, const Exec& exec,
                   Reference* reference) { hadamard_golden(op, O::chunks, HadamardRule::right, exec, reference); },
      .fast = [](const O& op, const Exec& exec) { hadamard_fast(op, O::chunks, exec); },
      .hopper = [](const O& op, const Exec& exec) { hadamard_hopper(op, O::chunks, exec); },
      .mistakes = {{"last-pass-left-out", O::chunks == 1 ? "the butterflies of the largest stride are left out" : "chunks are not mixed",
                    [](const O& op, const Exec& exec, Reference* reference) {
                      hadamard_golden(op, O::chunks, HadamardRule::last_pass_left_out, exec, reference);
                    }},
                   {"outputs-bit-reversed", "outputs stand in the order of their reversed bits",
                    [](const O& op, const Exec& exec, Reference* reference) {
                      hadamard_golden(op, O::chunks, HadamardRule::outputs_bit_reversed, exec, reference);
                    }}},
      .customary = {{"out", CustomaryKind::close, 3e-3, 5e-3, "sgl-kernel/tests/test_hadamard.py (f16; 1e-2 and 5e-2 for bf16)"}},
      .cases = std::move(cases),
      .bench_cases = std::move(bench_cases),
  };
}

}  // namespace dodona::ops
