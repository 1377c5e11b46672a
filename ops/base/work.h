// Work of one call cut into pieces, and the scratch memory it takes. How pieces are shared out never shows in the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "dodona/exec.h"

namespace dodona::ops {

/// Pieces of equal cost that follow one another.
struct WorkRun {
  std::int64_t pieces;
  std::int64_t cost = 1;
};

/// Into how many pieces each of so many products is cut, where it can be: some for each thread, so that none waits long for the last one.
inline std::int64_t pieces_wanted(int threads, std::int64_t products = 1) {
  return threads > 1 && products > 0 ? (4 * threads + products - 1) / products : 1;
}

class Work {
 public:
  /// At most exec.threads workers, and no more than `pieces`. `worker_bytes` of scratch for each worker, and `shared_bytes` for all of
  /// them; both begin on cache lines.
  Work(const Exec& exec, std::int64_t pieces, std::size_t worker_bytes, std::size_t shared_bytes = 0);

  std::byte* shared() const { return memory_.as(); }

  /// One stretch of pieces for each worker, in order and of equal cost as nearly as whole pieces allow: what is read in order of the pieces
  /// is read in long streams. body(run, first, last, scratch) for every run of which the stretch has pieces [first, last). `operations`
  /// estimates a unit of cost in element operations.
  using Stretch = std::function<void(std::size_t run, std::int64_t first, std::int64_t last, std::byte* scratch)>;
  void split(std::span<const WorkRun> runs, double operations, const Stretch& body) const;

  /// Each worker takes the next piece when it is done with one, for pieces of whose costs nothing is known. body(piece, scratch).
  using Piece = std::function<void(std::int64_t piece, std::byte* scratch)>;
  void take(double operations, const Piece& body) const;

 private:
  const Exec& exec_;
  std::int64_t pieces_, workers_;
  std::size_t worker_bytes_;
  Scratch memory_;  ///< of all, then of each worker
  std::byte* scratch_;
};

}  // namespace dodona::ops
