// Who asks is shown what golden mode's attention adds up for a query, and tells by it what weights a kernel must have had.
#pragma once

#include <cstdint>
#include <vector>

namespace dodona {

/// Sees the attention of golden runs that its thread begins, as long as it lives; one at a time.
class AttentionWatch {
 public:
  AttentionWatch();
  virtual ~AttentionWatch();
  AttentionWatch(const AttentionWatch&) = delete;
  AttentionWatch& operator=(const AttentionWatch&) = delete;

  virtual bool wants(std::int64_t out_row) const = 0;
  /// weights [keys], with the output's scale in them; values [keys][width]. By whichever thread computes the row.
  virtual void see(std::int64_t out_row, const std::vector<double>& weights, const std::vector<double>& values) = 0;

  /// Of this thread; nullptr for none.
  static AttentionWatch* current();
};

}  // namespace dodona
