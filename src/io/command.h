// Running somebody else's command, with a time limit.
#pragma once

#include <string>

namespace dodona::io {

struct CommandResult {
  bool timed_out = false;
  int status = 0;      ///< exit status; 128 + signal for a command that was killed
  std::string output;  ///< the last 4096 bytes of what it printed, stdout and stderr together
};

/// Runs `command` by the shell, with its stdin empty. A command that is not done after `seconds` is ended, its children with it.
/// Throws Error(bad_option) if it cannot be started.
CommandResult run_command(const std::string& command, double seconds);

/// `text` as one word of the shell.
std::string shell_quoted(const std::string& text);

}  // namespace dodona::io
