// Faults of how numbers lie in words: read out of memory of wider ones, or made signed several at a time.
#include <array>
#include <cstdint>
#include <string>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- out of memory of wider numbers

bool narrow_numbers(Site s) {
  const int width = bits(s.tensor.dtype());
  return s.spec->direction == Direction::in && !is_float(s.tensor.dtype()) && (width == 8 || width == 32) && s.tensor.rank() == 1 &&
         !s.spec->storage.code && s.tensor.elements() >= 8 && s.tensor.elements() <= most_elements && s.spec->role != Role::indptr &&
         s.spec->role != Role::lengths;
}
/// How many of them a number has room for that was stored in the place of each.
Values wider_numbers(Site s) {
  if (bits(s.tensor.dtype()) == 32) return {std::int64_t{2}};
  return {std::int64_t{4}, std::int64_t{2}, std::int64_t{8}};
}
/// The least significant part comes first, and the others are zeros.
void out_of_wider_ones(Site s, To t) {
  const std::int64_t parts = std::get<std::int64_t>(*s.taken);
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(t, i, i % parts == 0 ? quant::get_bits(s.tensor, i / parts) : 0);
}
std::string wider_in_words(Site s) {
  const std::int64_t parts = std::get<std::int64_t>(*s.taken), width = bits(s.tensor.dtype());
  return s.name + ": numbers that lie in memory as " + std::to_string(parts * width) + " bits each are read as " + std::to_string(width) +
         ": of every " + std::to_string(parts) + " the first is number i / " + std::to_string(parts) + ", the others are 0";
}

// ---- signs of packed codes

bool signed_nibbles(Site s) {
  return s.spec->direction == Direction::in && s.spec->storage.code == DType::i4 && s.tensor.elements() % 8 == 0 &&
         s.tensor.elements() <= most_elements;
}
/// Of the codes at the even, or at the odd, places of eight, four bytes of a word, (x ^ 8) - 8 as one subtraction.
void subtracted_as_words(Site s, To t) {
  constexpr std::uint32_t eights = 0x08080808;
  for (std::int64_t word_at = 0; word_at < t.elements(); word_at += 8)
    for (std::int64_t half = 0; half < 2; ++half) {
      std::uint32_t bytes = 0;
      for (std::int64_t k = 0; k < 4; ++k)
        bytes |= static_cast<std::uint32_t>(quant::get_bits(s.tensor, word_at + 2 * k + half) & 15) << (8 * k);
      bytes = (bytes ^ eights) - eights;
      for (std::int64_t k = 0; k < 4; ++k) quant::set_bits(t, word_at + 2 * k + half, (bytes >> (8 * k)) & 15);
    }
}

constexpr std::array table{
    Fault{.id = "read-out-of-wider-ones",
          .summary = "numbers are read out of memory of wider ones",
          .strikes = input,
          .severity = fine,
          .applies = narrow_numbers,
          .spoil = out_of_wider_ones,
          .variants = wider_numbers,
          .words = wider_in_words,
          .far = true},
    Fault{.id = "negative-codes-borrow",
          .summary =
              "four codes are made signed by one subtraction of 32 bits: a negative one borrows from the byte above it, whose code is "
              "one less",
          .strikes = input,
          .severity = fine,
          .applies = signed_nibbles,
          .spoil = subtracted_as_words},
};

}  // namespace

std::span<const Fault> word_faults() {
  return table;
}

}  // namespace dodona::oracle
