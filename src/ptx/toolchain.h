// ptxas and a disassembler, run.
#pragma once

#include <string>

#include "dodona/ptx.h"

namespace dodona::ptx {

/// The machine code of PTX, as a disassembler writes it. Throws bad_option where a program is missing or fails.
std::string assembled(const Toolchain& tools, const std::string& ptx, const std::string& target);
/// A cubin's; what is no cubin is text already. Throws bad_file.
std::string disassembled(const Toolchain& tools, const std::string& path);

}  // namespace dodona::ptx
