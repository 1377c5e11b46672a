// Reads whose number goes nowhere. Layouts that are replicated over threads let every thread read what one of them writes: who drops
// what it has read cannot be harmed by a race.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ptx/program.h"

namespace dodona::ptx {

class DeadReads {
 public:
  explicit DeadReads(const Code& code);

  /// Whether what the load at `pc` gives is used by no instruction that the thread carries out, but to compute what goes nowhere either.
  /// `holds(slot)`: that predicate of the thread, at the end of the block.
  template <class Holds>
  bool dead(std::uint32_t pc, Holds holds) {
    for (const Use& use : uses_of(pc))
      if (use.guard == no_slot || holds(use.guard) != use.inverted) return false;
    return true;
  }

 private:
  /// An instruction that carries a number out of the registers: a store, a branch, an address... guard: a predicate that a thread's place
  /// alone decides; no_slot: it must be taken for carried out.
  struct Use {
    Slot guard;
    bool inverted;
  };
  const std::vector<Use>& uses_of(std::uint32_t pc);
  bool is_of_the_place(Slot slot, int depth) const;

  const Code& code_;
  std::vector<std::uint32_t> writers_;  ///< by slot: how many instructions write it
  std::vector<std::uint32_t> writer_;   ///< by slot: the last of them
  std::map<std::uint32_t, std::vector<Use>> uses_;
};

}  // namespace dodona::ptx
