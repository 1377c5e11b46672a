// The command for kernels as PTX.
#pragma once

#include <CLI/CLI.hpp>

namespace dodona::tools {

void add_ptx(CLI::App& app, int& exit_code);

}  // namespace dodona::tools
