#include "ops/sampling/apply_token_bitmask_inplace_cuda.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

/// Bit 31 - i for bit i.
std::uint32_t reversed(std::uint32_t bits) {
  std::uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result = result << 1 | (bits >> i & 1);
  return result;
}

/// Those of 32 logits, or of `count`, whose bit is set become `lowest`.
template <class Element>
void mask_word(std::uint32_t forbidden, Element* logits, std::int64_t count, Element lowest) {
  if (count < 32) forbidden &= (std::uint32_t{1} << count) - 1;
  if (forbidden == ~std::uint32_t{0}) return static_cast<void>(std::fill_n(logits, 32, lowest));
  for (; forbidden != 0; forbidden &= forbidden - 1) logits[std::countr_zero(forbidden)] = lowest;
}

template <bool bits_reversed, class Element>
void masked_as(const ApplyTokenBitmaskInplaceCuda& op, const Exec& exec, Element lowest) {
  const std::int64_t rows = op.indices.defined() ? op.indices.size(0) : op.logits.size(0), width = op.logits.size(1);
  const std::int64_t words = std::min(op.bitmask.size(1), (width + 31) / 32);
  parallel_for(exec.threads, rows, static_cast<double>(width), [&](std::int64_t n) {
    const std::int64_t b = op.indices.defined() ? static_cast<std::int64_t>(quant::get(op.indices, n)) : n;
    const std::int32_t* mask = op.bitmask.as<const std::int32_t>() + b * op.bitmask.stride(0);
    Element* const logits = reinterpret_cast<Element*>(op.logits.data()) + b * op.logits.stride(0);
    for (std::int64_t w = 0; w < words; ++w) {
      const auto forbidden = ~static_cast<std::uint32_t>(mask[w]);
      mask_word(bits_reversed ? reversed(forbidden) : forbidden, logits + 32 * w, std::min<std::int64_t>(32, width - 32 * w), lowest);
    }
  });
}

/// Infinities of the logits' type, as bits.
template <bool bits_reversed>
void masked(const ApplyTokenBitmaskInplaceCuda& op, const Exec& exec) {
  const DType type = op.logits.dtype();
  if (type == f32) return masked_as<bits_reversed>(op, exec, std::uint32_t{0xFF800000});
  masked_as<bits_reversed>(op, exec, static_cast<std::uint16_t>(type == f16 ? 0xFC00 : 0xFF80));
}

void fast(const ApplyTokenBitmaskInplaceCuda& op, const Exec& exec) {
  masked<false>(op, exec);
}

template <bool bits_reversed>
void golden(const ApplyTokenBitmaskInplaceCuda& op, const Exec& exec, Reference* reference) {
  masked<bits_reversed>(op, exec);
  record_exact(op.logits, reference, "logits");
}

/// A row of the grid for each row of logits, of which CUDA has 65535: beyond, the launch fails, and upstream does not ask.
bool is_not_launched(const ApplyTokenBitmaskInplaceCuda& op) {
  return (op.indices.defined() ? op.indices : op.logits).size(0) > 65535;
}

/// No logit changes that the mask allows. What it forbids should be as before the call; a defect is told by its place alone.
bool explains_unmasked(const ApplyTokenBitmaskInplaceCuda& actual, std::string_view, std::int64_t linear) {
  const std::int64_t width = actual.logits.size(1), b = linear / width, v = linear % width;
  if (!is_not_launched(actual) || v / 32 >= actual.bitmask.size(1)) return false;
  const auto word = static_cast<std::uint32_t>(actual.bitmask.as<const std::int32_t>()[b * actual.bitmask.stride(0) + v / 32]);
  return (word >> (v % 32) & 1) == 0;
}

std::optional<Refusal> unsupported(const ApplyTokenBitmaskInplaceCuda& op, Mode mode) {
  if (mode == Mode::hopper && is_not_launched(op))
    return Refusal{"logits", "has more than 65535 rows, for which upstream's kernel does not launch: there is no hopper mode for that"};
  return {};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_apply_token_bitmask_inplace_cuda() {
  return define<ops::ApplyTokenBitmaskInplaceCuda>({
      .contract = R"(
Where bit v % 32 of word v / 32 of the row's mask is 0, and v is below 32 W, the logit becomes -infinity; every other logit is left as it is, bit
for bit. Rows that indices do not name are left alone.)",
      .contract_version = 2,
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .unsupported = ops::unsupported,
      .defects =
          {{"no-launch-65536-rows", "logits",
            "with more than 65535 rows nothing is masked: the grid is too high, and the error is not asked for (what the mask allows is "
            "compared; what it forbids may be any number)",
            ops::explains_unmasked}},
      .mistakes = {{"highest-bit-first", "the first token of a word is read from its highest bit", ops::golden<true>}},
      .cases = {"B=4 V=1000 W=32", "B=3 V=70 W=2 --dtype logits=bf16", "B=5 V=64 W=2 N=3 --with indices --dtype logits=f16"},
      .bench_cases = {"B=64 V=129280 W=4040"},
  });
}
}  // namespace dodona
