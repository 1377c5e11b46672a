// Pages made from the inventory and from the command's own options: documentation, manual, shell completion.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dodona::tools {

/// docs/ops.md: every op of the inventory. `recordings` is a folder of recorded cases to cite as evidence, `speeds` what tools/bench
/// wrote down; empty for none.
std::string ops_page(const std::string& recordings, const std::string& speeds);
/// docs/cli.md: the help of every command.
std::string cli_page(const CLI::App& app);
/// dodona.1, for man.
std::string man_page(const CLI::App& app);
/// Completion scripts of the two shells.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);

}  // namespace dodona::tools
