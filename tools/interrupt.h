// Ctrl-C in a command that has something to take back.
#pragma once

#include <string>

namespace dodona::tools {

/// While one lives, the first SIGINT or SIGTERM is remembered instead of ending the process, and `check` throws, so that what was begun is
/// taken back; a second one ends it at once, unless it follows within half a second: wrappers such as timeout(1) send each twice.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool asked();
  /// Throws Error (bad_value): "interrupted: " and what became of the work.
  void check(const std::string& outcome) const;
};

}  // namespace dodona::tools
