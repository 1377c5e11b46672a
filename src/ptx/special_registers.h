// %tid and its kin.
#pragma once

#include <string_view>

#include "ptx/machine.h"

namespace dodona::ptx {

/// Bytes of a special register: 4, 8, 1 for predicates; 0 for what is none that is known here.
int special_bytes(std::string_view name);
/// What the current warp's lanes find in it.
void fill_special(Machine& m, const SpecialRegister& s);

}  // namespace dodona::ptx
