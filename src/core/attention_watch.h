// Who asks is shown what golden mode's attention adds up for a query, and tells by it what weights a kernel must have had.
#pragma once

#include <cstdint>
#include <vector>

namespace dodona {

class AttentionWatch {
 public:
  virtual ~AttentionWatch() = default;

  virtual bool wants(std::int64_t) const { return false; }
  /// weights [keys], with the output's scale in them; values [keys][width]. By whichever thread computes the row.
  virtual void see(std::int64_t, const std::vector<double>&, const std::vector<double>&) {}
  /// The largest score of every row that sees a key, as its exponential has it: times scale and cap.
  virtual void see_largest(std::int64_t, double) {}
};

}  // namespace dodona
