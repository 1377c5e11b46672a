// Calling BitProbe from tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "dodona/exec.h"
#include "simd/bit_probe.h"
#include "tests/simd/samples.h"

namespace dodona::simd_tests {

inline const ProbeInfo& info_of(ProbeOp op) {
  return probe_table[static_cast<int>(op)];
}

inline std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float from_bits(std::uint32_t x) {
  return std::bit_cast<float>(x);
}

/// The bytes that `op` gives on `isa`.
inline std::vector<std::uint8_t> run(ProbeOp op, Isa isa, std::int64_t n, const void* a, const void* b = nullptr, const void* c = nullptr) {
  // Whole words, so that results can be looked at as such; one word more, to see that it stays as it was.
  const auto bytes = static_cast<std::size_t>(samples::result_bytes(info_of(op), n));
  std::vector<std::uint32_t> out((bytes + 3) / 4 + 1, 0xA5A5A5A5u);
  dispatch<BitProbe>(isa, op, a, b, c, static_cast<void*>(out.data()), n);
  const auto* data = reinterpret_cast<const std::uint8_t*>(out.data());
  for (std::size_t i = bytes; i < 4 * out.size(); ++i)
    EXPECT_EQ(data[i], 0xA5) << info_of(op).name << " wrote past its " << n << " results";
  if (info_of(op).bits_out == 32) samples::settle_nans(info_of(op), out.data(), static_cast<std::int64_t>(bytes / 4));
  return {data, data + bytes};
}

/// One result for every element of `a`.
template <class Out, class In>
std::vector<Out> map(ProbeOp op, Isa isa, const std::vector<In>& a, const std::vector<In>& b = {}, const std::vector<In>& c = {}) {
  const std::int64_t n = static_cast<std::int64_t>(a.size() * sizeof(In) * 8) / info_of(op).bits_in;
  const std::vector<std::uint8_t> bytes = run(op, isa, n, a.data(), b.data(), c.data());
  std::vector<Out> out(bytes.size() / sizeof(Out));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Out));
  return out;
}

/// The fastest tier: what the others are compared with.
inline Isa best() {
  return available_isas().back();
}

}  // namespace dodona::simd_tests
