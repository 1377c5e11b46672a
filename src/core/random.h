// Random access to random numbers: element i of tensor t under seed s is a pure function of (s, t, i), so any part of any tensor can be
// made alone, on any machine, by any number of threads.
//
// Layout (everything below can be rebuilt in a few lines of NumPy or CUDA):
//   words     Philox4x32-10 with key (low, high half of seed) and counter (low, high half of i / 4, low, high half of tensor):
//             word i = element i % 4 of that block. In cuRAND's terms curand_init(seed, subsequence = tensor, offset = i).
//   tensor    64-bit FNV-1a of the tensor's name, in UTF-8 bytes.
//   uniform   element i = fp32(fp32(word i) * 2^-32 + 2^-33), in (0, 1].
//   normal    elements 2p and 2p+1 are one Box-Muller pair made of words 2p and 2p+1. In double precision:
//               radius = sqrt(-2 * log((word(2p) + 0.5) * 2^-32))
//               angle  = word(2p+1) * (pi * 2^-31)                 with pi * 2^-31 = 0x1.921fb54442d18p-30
//               element 2p = fp32(radius * cos(angle)),  element 2p+1 = fp32(radius * sin(angle))
//             |element| <= 6.77. log, sin and cos are core/fixed_math.h's; another library's may give a neighbouring float where the double
//             lies within its error of a tie (with glibc's, none of 3 * 10^8 elements differed).
//   below n   draw i = floor(v * n / 2^64), v = word(2i) + 2^32 * word(2i+1), i < 2^63. Any n >= 1; the bias is below n * 2^-64.
//   shuffle   for i = n-1 down to 1: swap elements i and j, j = draw i below i+1.
// All of them read the same words, so numbers that must be independent come from tensors of different names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dodona {

/// 64-bit FNV-1a.
constexpr std::uint64_t fnv1a_64(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

/// All the random numbers of one tensor.
struct Stream {
  std::uint64_t seed = 0;
  std::uint64_t tensor = 0;

  constexpr Stream() = default;
  constexpr Stream(std::uint64_t seed_, std::uint64_t tensor_) : seed(seed_), tensor(tensor_) {}
  constexpr Stream(std::uint64_t seed_, std::string_view tensor_name) : seed(seed_), tensor(fnv1a_64(tensor_name)) {}
};

std::uint32_t word(Stream stream, std::uint64_t index);
float uniform(Stream stream, std::uint64_t index);
float normal(Stream stream, std::uint64_t index);

/// out[i] = word(stream, begin + i), and so on: the same values as one by one, sooner.
void fill_words(Stream stream, std::uint64_t begin, std::span<std::uint32_t> out);
void fill_uniform(Stream stream, std::uint64_t begin, std::span<float> out);
void fill_normal(Stream stream, std::uint64_t begin, std::span<float> out);

/// An integer in [0, n). Throws Error (bad_value) for n = 0.
std::uint64_t integer_below(Stream stream, std::uint64_t index, std::uint64_t n);

/// What the inputs of a case line are drawn from: the numbers of docs/inputs.md, a pure function of (seed, argument, element).
struct InputDraw {
  Stream values, choices;
  InputDraw(std::uint64_t seed, std::string_view argument) : values(seed, argument), choices(seed, std::string(argument) + "/choice") {}
  double uniform(std::int64_t i) const { return static_cast<double>(dodona::uniform(values, static_cast<std::uint64_t>(i))); }
  std::uint64_t below(std::int64_t i, std::uint64_t n) const { return integer_below(choices, static_cast<std::uint64_t>(i), n); }
  /// A second choice about the same element.
  std::uint64_t below_again(std::int64_t i, std::uint64_t n) const { return below(i + (std::int64_t{1} << 40), n); }
};

/// Shuffles in place (Fisher-Yates).
void shuffle(Stream stream, std::span<std::int32_t> values);
void shuffle(Stream stream, std::span<std::int64_t> values);

/// 0 ... n-1, shuffled. Throws Error (bad_value) for n < 0.
std::vector<std::int64_t> permutation(Stream stream, std::int64_t n);

}  // namespace dodona
