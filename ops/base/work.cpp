#include "ops/base/work.h"

#include <algorithm>
#include <atomic>

#include "core/threads.h"

namespace dodona::ops {
namespace {

std::size_t lines(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}
std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

}  // namespace

Work::Work(const Exec& exec, std::int64_t pieces, std::size_t worker_bytes, std::size_t shared_bytes)
    : exec_(exec),
      pieces_(pieces),
      workers_(std::clamp<std::int64_t>(pieces, 1, std::max(exec.threads, 1))),
      worker_bytes_(lines(worker_bytes)),
      memory_(exec.scratch.take(lines(shared_bytes) + static_cast<std::size_t>(workers_) * worker_bytes_)),
      scratch_(memory_.as() + lines(shared_bytes)) {}

void Work::split(std::span<const WorkRun> runs, double operations, const Stretch& body) const {
  std::int64_t total = 0;
  for (const WorkRun& run : runs) total += run.pieces * run.cost;
  if (total == 0) return;
  parallel_for(exec_.threads, workers_, operations * static_cast<double>(total) / static_cast<double>(workers_), [&](std::int64_t worker) {
    std::byte* const scratch = scratch_ + static_cast<std::size_t>(worker) * worker_bytes_;
    // The pieces whose share of the cost begins here.
    const std::int64_t begin = total * worker / workers_, end = total * (worker + 1) / workers_;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto [pieces, cost] = runs[i];
      const std::int64_t first = std::clamp<std::int64_t>(ceil_div(begin - before, cost), 0, pieces);
      const std::int64_t last = std::clamp<std::int64_t>(ceil_div(end - before, cost), 0, pieces);
      if (first < last) body(i, first, last, scratch);
      before += pieces * cost;
    }
  });
}

void Work::take(double operations, const Piece& body) const {
  std::atomic<std::int64_t> next{0};
  parallel_for(exec_.threads, workers_, operations * static_cast<double>(pieces_) / static_cast<double>(workers_),
               [&](std::int64_t worker) {
                 std::byte* const scratch = scratch_ + static_cast<std::size_t>(worker) * worker_bytes_;
                 for (std::int64_t piece = next++; piece < pieces_; piece = next++) body(piece, scratch);
               });
}

}  // namespace dodona::ops
