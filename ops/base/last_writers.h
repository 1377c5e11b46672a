// Writes to slots that several tokens may name: the last one counts, whatever the number of threads.
#pragma once

#include <cstdint>
#include <vector>

namespace dodona::ops {

/// For each of `count` writes, 1 where a later one names the same of `slots` slots, and then other(slot) is called; 0 for the others.
/// slot_of(i) may be negative: nowhere.
template <class SlotOf, class Other>
std::vector<std::uint8_t> superseded_writes(std::int64_t count, std::int64_t slots, const SlotOf& slot_of, const Other& other) {
  std::vector<std::uint8_t> superseded(static_cast<std::size_t>(count)), named(static_cast<std::size_t>(slots));
  for (std::int64_t i = count - 1; i >= 0; --i) {
    const std::int64_t slot = slot_of(i);
    if (slot < 0) continue;
    std::uint8_t& before = named[static_cast<std::size_t>(slot)];
    if (before != 0) superseded[static_cast<std::size_t>(i)] = 1, other(slot);
    before = 1;
  }
  return superseded;
}
template <class SlotOf>
std::vector<std::uint8_t> superseded_writes(std::int64_t count, std::int64_t slots, const SlotOf& slot_of) {
  return superseded_writes(count, slots, slot_of, [](std::int64_t) {});
}

}  // namespace dodona::ops
