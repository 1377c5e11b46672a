// A function of numbers, done for the lanes of a warp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ptx/machine.h"

namespace dodona::ptx {

/// Sixteen bits that are a number by themselves, and two of them.
struct F16 {
  std::uint16_t code;
};
struct Bf16 {
  std::uint16_t code;
};
struct F16x2 {
  std::uint32_t code;
};
struct Bf16x2 {
  std::uint32_t code;
};

template <class T>
T lane_of(const std::byte* row, int lane) {
  if constexpr (std::is_same_v<T, bool>) {
    return (*reinterpret_cast<const std::uint32_t*>(row) >> lane & 1u) != 0;
  } else if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(reinterpret_cast<const std::uint64_t*>(row)[lane]);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(reinterpret_cast<const std::uint32_t*>(row)[lane]);
  } else if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(static_cast<std::uint16_t>(reinterpret_cast<const std::uint32_t*>(row)[lane]));
  } else {
    return std::bit_cast<T>(static_cast<std::uint8_t>(reinterpret_cast<const std::uint32_t*>(row)[lane]));
  }
}

template <class T>
void set_lane(std::byte* row, int lane, T x) {
  if constexpr (sizeof(T) == 8) {
    reinterpret_cast<std::uint64_t*>(row)[lane] = std::bit_cast<std::uint64_t>(x);
  } else if constexpr (sizeof(T) == 4) {
    reinterpret_cast<std::uint32_t*>(row)[lane] = std::bit_cast<std::uint32_t>(x);
  } else if constexpr (sizeof(T) == 2) {
    reinterpret_cast<std::uint32_t*>(row)[lane] = std::bit_cast<std::uint16_t>(x);
  } else {
    reinterpret_cast<std::uint32_t*>(row)[lane] = std::bit_cast<std::uint8_t>(x);
  }
}

/// body(lane) for the lanes of the mask.
template <class Body>
inline void for_lanes(std::uint32_t mask, const Body& body) {
  if (mask == all_lanes) {
    for (int lane = 0; lane < warp_lanes; ++lane) body(lane);
  } else {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) body(std::countr_zero(rest));
  }
}

template <auto function, class Signature = decltype(function)>
struct Lanes;
template <auto function, class R, class... A>
struct Lanes<function, R (*)(A...)> {
  static void run(Machine& m, const Instruction& i) { run(m, i, std::index_sequence_for<A...>()); }

 private:
  template <std::size_t... k>
  static void run(Machine& m, const Instruction& i, std::index_sequence<k...>) {
    std::byte* const to = m.row(i.slots[0]);
    const std::byte* const from[] = {m.row(i.slots[k + 1])...};
    if constexpr (std::is_same_v<R, bool>) {
      std::uint32_t bits = 0;
      for (int lane = 0; lane < warp_lanes; ++lane) bits |= static_cast<std::uint32_t>(function(lane_of<A>(from[k], lane)...)) << lane;
      std::uint32_t& word = *reinterpret_cast<std::uint32_t*>(to);
      word = (word & ~m.mask) | (bits & m.mask);
    } else if (m.mask == all_lanes) {
// Some functions stay scalar, of which clang would warn.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#pragma omp simd
      for (int lane = 0; lane < warp_lanes; ++lane) set_lane<R>(to, lane, function(lane_of<A>(from[k], lane)...));
#ifdef __clang__
#pragma clang diagnostic pop
#endif
    } else {
      for (std::uint32_t rest = m.mask; rest != 0; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        set_lane<R>(to, lane, function(lane_of<A>(from[k], lane)...));
      }
    }
  }
};

/// The handler of a function of one lane's numbers.
template <auto function>
inline constexpr Handler lanes = Lanes<function>::run;

/// An instruction that is a function of each lane's numbers, under its whole name.
struct Operation {
  std::string_view opcode;
  Handler run;
  int sources;
  std::array<std::uint8_t, 6> bytes;  ///< of the result and the sources; 0: a predicate
};

namespace detail {
template <class T>
constexpr std::uint8_t register_bytes() {
  return std::is_same_v<T, bool> ? 0 : static_cast<std::uint8_t>(sizeof(T));
}
template <class Signature>
struct Shape;
template <class R, class... A>
struct Shape<R (*)(A...)> {
  static constexpr int sources = sizeof...(A);
  static constexpr std::array<std::uint8_t, 6> bytes{register_bytes<R>(), register_bytes<A>()...};
};
}  // namespace detail

template <auto function>
constexpr Operation operation(std::string_view opcode) {
  using Shape = detail::Shape<decltype(function)>;
  return {opcode, lanes<function>, Shape::sources, Shape::bytes};
}

/// nullptr where there is none. The families' tables: whole numbers, floats, conversions.
const Operation* find_integer(std::string_view opcode);
const Operation* find_float(std::string_view opcode);
const Operation* find_half(std::string_view opcode);

template <std::size_t count>
const Operation* find_in(const Operation (&table)[count], std::string_view opcode) {
  for (const Operation& o : table)
    if (o.opcode == opcode) return &o;
  return nullptr;
}

}  // namespace dodona::ptx
