#include "ops/speculative/segment_packbits.h"

#include <algorithm>
#include <string>

#include "core/random.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, first_bit_on_top };

std::int64_t begin_of(const SegmentPackbits& op, std::int64_t b) {
  return op.input_indptr.as<const std::int32_t>()[b];
}
std::int64_t bytes_of(const SegmentPackbits& op, std::int64_t b) {
  return (begin_of(op, b + 1) - begin_of(op, b) + 7) / 8;
}

void make_inputs(SegmentPackbits& op, std::uint64_t seed) {
  const InputDraw draw(seed, "input_indptr");
  auto *from = op.input_indptr.as<std::int32_t>(), *to = op.output_indptr.as<std::int32_t>();
  const std::int64_t n = op.x.elements();
  from[0] = to[0] = 0;
  for (std::int64_t b = 1; b <= op.batch_size; ++b)
    from[b] =
        static_cast<std::int32_t>(b == op.batch_size ? n : static_cast<std::int64_t>(draw.below(b - 1, static_cast<std::uint64_t>(n + 1))));
  std::sort(from, from + op.batch_size + 1);
  for (std::int64_t b = 0; b < op.batch_size; ++b) to[b + 1] = to[b] + static_cast<std::int32_t>(bytes_of(op, b));
}

void check(const SegmentPackbits& op) {
  const auto fail = [](const char* argument, std::int64_t got, std::int64_t b, const std::string& wanted) {
    throw Error(ErrorCode::bad_value, "", argument,
                "holds " + std::to_string(got) + " at element " + std::to_string(b) + ", expected " + wanted);
  };
  const auto* const at = op.output_indptr.as<const std::int32_t>();
  std::int64_t free_from = 0;
  for (std::int64_t b = 0; b < op.batch_size; ++b) {
    const std::int64_t begin = begin_of(op, b), end = begin_of(op, b + 1);
    if (begin < 0) fail("input_indptr", begin, b, "0 or more");
    if (end < begin) fail("input_indptr", end, b + 1, "at least the " + std::to_string(begin) + " before it");
    if (at[b] < free_from)
      fail("output_indptr", at[b], b, "at least " + std::to_string(free_from) + ", where the segments of input_indptr before it end");
    if (end > op.x.elements()) fail("input_indptr", end, b + 1, "at most the " + std::to_string(op.x.elements()) + " elements of x");
    free_from = at[b] + bytes_of(op, b);
    if (free_from > op.y.elements())
      fail("output_indptr", at[b], b,
           "room for " + std::to_string(bytes_of(op, b)) + " bytes in the " + std::to_string(op.y.elements()) + " of y");
  }
}

/// Of eight elements, each a byte, the first in the lowest bit.
unsigned byte_of(const std::uint8_t* x, std::int64_t count) {
  unsigned byte = 0;
  for (std::int64_t j = 0; j < count; ++j) byte |= (x[j] != 0 ? 1u : 0u) << j;
  return byte;
}

template <Rule rule>
void pack(const SegmentPackbits& op) {
  const auto* const x = op.x.as<const std::uint8_t>();
  for (std::int64_t b = 0; b < op.batch_size; ++b) {
    std::uint8_t* byte = op.y.as<std::uint8_t>() + op.output_indptr.as<const std::int32_t>()[b];
    const std::int64_t end = begin_of(op, b + 1);
    std::int64_t i = begin_of(op, b);
    for (; i + 8 <= end; i += 8) *byte++ = static_cast<std::uint8_t>(byte_of(x + i, 8));
    if (i < end) *byte++ = static_cast<std::uint8_t>(byte_of(x + i, end - i));
    if (rule == Rule::first_bit_on_top)
      for (std::int64_t k = bytes_of(op, b); k-- > 0;) {
        --byte;
        unsigned turned = 0;
        for (unsigned j = 0; j < 8; ++j) turned |= (*byte >> j & 1u) << (7 - j);
        *byte = static_cast<std::uint8_t>(turned);
      }
  }
}

void fast(const SegmentPackbits& op, const Exec&) {
  pack<Rule::right>(op);
}

template <Rule rule>
void golden(const SegmentPackbits& op, const Exec&, Reference* reference) {
  pack<rule>(op);
  record_exact(op.y, reference, "y");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_segment_packbits() {
  return define<ops::SegmentPackbits>({
      .contract = "Bits, packed; what lies outside the segments' bytes is left as it was. Segments whose bytes overlap are an error here.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"first-bit-on-top", "the first element of eight becomes the highest bit", ops::golden<ops::Rule::first_bit_on_top>}},
      .cases = {"N=300 M=50 --attr batch_size=4", "N=2049 M=300 --attr batch_size=9", "N=7 M=1 --attr batch_size=1"},
      .bench_cases = {"N=257024 M=32192 --attr batch_size=64"},
  });
}
}  // namespace dodona
