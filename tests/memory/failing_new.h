// An operator new that fails on demand, for the whole program.
#pragma once

#include <cstdint>

namespace dodona::failing_new {

enum class Where { anywhere, other_threads };

/// While it lives, the allocation after `successes` further ones fails, and with `lasting` all that follow it. `other_threads` neither
/// counts nor fails those of the thread that made this.
class Failure {
 public:
  explicit Failure(std::int64_t successes, Where where = Where::anywhere, bool lasting = false);
  ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  /// Whether some allocation has failed.
  bool happened() const;
};

}  // namespace dodona::failing_new
