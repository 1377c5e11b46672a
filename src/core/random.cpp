#include "core/random.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "core/box_muller.h"
#include "core/philox.h"
#include "dodona/error.h"

namespace dodona {
namespace {

__extension__ using Uint128 = unsigned __int128;

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

PhiloxBlock block(Stream stream, std::uint64_t index) {
  return philox4x32_10({low(index), high(index), low(stream.tensor), high(stream.tensor)}, {low(stream.seed), high(stream.seed)});
}

/// Calls make(block index) for the blocks of four that cover [begin, begin + out.size()), and keeps what falls inside.
template <class T, class MakeFour>
void fill_by_blocks(std::uint64_t begin, std::span<T> out, MakeFour make) {
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t index = begin + done;
    const auto lane = static_cast<std::size_t>(index % 4);
    const std::size_t count = std::min(4 - lane, out.size() - done);
    const std::array<T, 4> four = make(index / 4);
    std::copy_n(four.begin() + lane, count, out.begin() + done);
    done += count;
  }
}

template <class T>
void shuffle_any(Stream stream, std::span<T> values) {
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[integer_below(stream, i, i + 1)]);
}

}  // namespace

std::uint32_t word(Stream stream, std::uint64_t index) {
  return block(stream, index / 4)[index % 4];
}

float uniform(Stream stream, std::uint64_t index) {
  return philox_uniform(word(stream, index));
}

float normal(Stream stream, std::uint64_t index) {
  const PhiloxBlock words = block(stream, index / 4);
  const std::size_t pair = index % 4 / 2 * 2;
  return box_muller(words[pair], words[pair + 1])[index % 2];
}

void fill_words(Stream stream, std::uint64_t begin, std::span<std::uint32_t> out) {
  fill_by_blocks(begin, out, [&](std::uint64_t index) { return block(stream, index); });
}

void fill_uniform(Stream stream, std::uint64_t begin, std::span<float> out) {
  fill_by_blocks(begin, out, [&](std::uint64_t index) {
    const PhiloxBlock words = block(stream, index);
    return std::array{philox_uniform(words[0]), philox_uniform(words[1]), philox_uniform(words[2]), philox_uniform(words[3])};
  });
}

void fill_normal(Stream stream, std::uint64_t begin, std::span<float> out) {
  fill_by_blocks(begin, out, [&](std::uint64_t index) {
    const PhiloxBlock words = block(stream, index);
    const auto [a, b] = box_muller(words[0], words[1]);
    const auto [c, d] = box_muller(words[2], words[3]);
    return std::array{a, b, c, d};
  });
}

std::uint64_t integer_below(Stream stream, std::uint64_t index, std::uint64_t n) {
  if (n == 0) throw Error(ErrorCode::bad_value, "integer_below", "n", "expected at least 1, got 0");
  const PhiloxBlock words = block(stream, index / 2);
  const std::size_t pair = index % 2 * 2;
  const std::uint64_t value = words[pair] | static_cast<std::uint64_t>(words[pair + 1]) << 32;
  return static_cast<std::uint64_t>(static_cast<Uint128>(value) * n >> 64);
}

void shuffle(Stream stream, std::span<std::int32_t> values) {
  shuffle_any(stream, values);
}
void shuffle(Stream stream, std::span<std::int64_t> values) {
  shuffle_any(stream, values);
}

std::vector<std::int64_t> permutation(Stream stream, std::int64_t n) {
  if (n < 0) throw Error(ErrorCode::bad_value, "permutation", "n", "expected at least 0, got " + std::to_string(n));
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  shuffle(stream, values);
  return values;
}

}  // namespace dodona
