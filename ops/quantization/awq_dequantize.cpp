#include "ops/quantization/awq_dequantize.h"

#include <array>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/rows/quantize/awq_row.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t word_codes = 8;
using Nibbles = std::array<int, word_codes>;  // that hold the columns of a word
constexpr Nibbles awq_order{0, 4, 1, 5, 2, 6, 3, 7}, in_order{0, 1, 2, 3, 4, 5, 6, 7};

void check(const AwqDequantize& op) {
  const std::int64_t rows = op.qweight.size(0), groups = op.scales.size(0);
  if (groups == 0 ? rows != 0 : rows % groups != 0)
    throw Error(ErrorCode::bad_shape, "", "scales",
                "has " + std::to_string(groups) + " rows, expected a number that divides the " + std::to_string(rows) + " of qweight");
}

/// Row k of words, as numbers.
std::vector<double> codes_of(const Tensor& words, std::int64_t row, const Nibbles& nibbles) {
  std::vector<double> codes;
  const auto* const word = words.as<std::uint32_t>() + row * words.size(1);
  for (std::int64_t w = 0; w < words.size(1); ++w)
    for (const int nibble : nibbles) codes.push_back(word[w] >> (4 * nibble) & 0xFu);
  return codes;
}

/// put(linear, value before its rounding) for every element.
template <class Put>
void dequantize(const AwqDequantize& op, const Nibbles& nibbles, const Nibbles& of_zeros, bool with_zeros, const Exec& exec,
                const Put& put) {
  const std::int64_t rows = op.out.size(0), columns = op.out.size(1), groups = op.scales.size(0);
  parallel_for(exec.threads, rows, 4.0 * static_cast<double>(columns), [&](std::int64_t k) {
    const std::int64_t g = k / (rows / groups);
    const std::vector<double> codes = codes_of(op.qweight, k, nibbles), zeros = codes_of(op.qzeros, g, of_zeros);
    std::vector<double> scales(codes.size());
    quant::to_f64(op.scales.dtype(), op.scales.as<std::uint16_t>() + g * columns, scales.data(), columns);
    for (std::size_t n = 0; n < codes.size(); ++n)
      put(k * columns + static_cast<std::int64_t>(n), (codes[n] - (with_zeros ? zeros[n] : 0.0)) * scales[n]);
  });
}

template <const Nibbles& nibbles, bool with_zeros, const Nibbles& of_zeros = nibbles>
void golden(const AwqDequantize& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  dequantize(op, nibbles, of_zeros, with_zeros, exec, [&](std::int64_t linear, double value) { out.put(linear, {value}); });
}

void fast(const AwqDequantize& op, const Exec& exec) {
  const std::int64_t rows = op.out.size(0), columns = op.out.size(1), words = op.qweight.size(1), groups = op.scales.size(0);
  parallel_for(exec.threads, rows, static_cast<double>(columns), [&](std::int64_t k) {
    const std::int64_t g = k / (rows / groups);
    dispatch<AwqRowKernel>(exec.isa, AwqRow{.codes = op.qweight.as<std::int32_t>() + k * words,
                                            .zeros = op.qzeros.as<std::int32_t>() + g * words,
                                            .scales = op.scales.as<std::uint16_t>() + g * columns,
                                            .out = op.out.as<std::uint16_t>() + k * columns,
                                            .n = columns,
                                            .type = op.out.dtype()});
  });
}

/// There is one result.
void hopper(const AwqDequantize& op, const Exec& exec) {
  golden<awq_order, true>(op, exec, nullptr);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_awq_dequantize() {
  return define<ops::AwqDequantize>({
      .contract = R"(
out = rn((code - zero) * scale) in the type of scales, to nearest even: the difference is exact and the product is rounded once, denormals kept,
overflow to infinity. Nothing is open.)",
      .golden = ops::golden<ops::awq_order, true>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .mistakes = {{"nibbles-in-order", "the codes of a word are taken from the low end on", ops::golden<ops::in_order, true>},
                   {"zeros-in-order", "the zero points of a word are taken from the low end on, its codes as they lie",
                    ops::golden<ops::awq_order, true, ops::in_order>},
                   {"zeros-left-out", "zero points are not subtracted", ops::golden<ops::awq_order, false>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-5, "sgl-kernel/tests/test_awq_dequant.py"}},
      .cases = {"K=64 N=64 G=2", "K=48 N=40 G=3 --dtype scales=bf16 --dist wide-exponent", "K=7 N=16 G=1 --dist edge"},
      .bench_cases = {"K=7168 N=2112 G=56", "K=2048 N=7168 G=16"},
  });
}
}  // namespace dodona
