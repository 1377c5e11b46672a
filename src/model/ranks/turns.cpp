#include "model/ranks/turns.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "dodona/error.h"

namespace dodona::model {
namespace {

/// What is thrown in ranks that another one has left alone.
struct Abandoned {};

class Turns {
 public:
  explicit Turns(std::int64_t ranks) : given_{std::vector<Tensor>(static_cast<std::size_t>(ranks)), given_[0]}, ranks_(ranks) {}

  void wait(std::int64_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || turn_ == rank; });
    if (failed_) throw Abandoned{};
  }
  void pass_on() {
    const std::lock_guard lock(mutex_);
    turn_ = (turn_ + 1) % ranks_;
    changed_.notify_all();
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) error_ = std::move(error);
    failed_ = true;
    changed_.notify_all();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  /// What all ranks give. Two meetings are kept: the first rank gives to the next one while the last still reads this one.
  std::vector<Tensor> gather(std::int64_t rank, std::int64_t meeting, const Tensor& mine) {
    std::vector<Tensor>& given = given_[static_cast<std::size_t>(meeting % 2)];
    given[static_cast<std::size_t>(rank)] = mine;
    pass_on();
    wait(rank);
    return given;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tensor> given_[2];
  std::int64_t ranks_, turn_ = 0;
  bool failed_ = false;
  std::exception_ptr error_;
};

/// The ranks of a group are some of all, who meet together.
class Group final : public RankGroup {
 public:
  Group(Turns& turns, std::int64_t rank, std::vector<std::int64_t> members, std::int64_t& meetings)
      : turns_(turns), rank_(rank), members_(std::move(members)), meetings_(meetings) {}
  std::vector<Tensor> gather(const Tensor& mine) override {
    const std::vector<Tensor> all = turns_.gather(rank_, meetings_++, mine);
    std::vector<Tensor> ours;
    for (const std::int64_t member : members_) ours.push_back(all[static_cast<std::size_t>(member)]);
    return ours;
  }

 private:
  Turns& turns_;
  std::int64_t rank_;
  std::vector<std::int64_t> members_;
  std::int64_t& meetings_;
};

std::vector<std::int64_t> members(const Grid& grid, bool (*same)(const Grid&, std::int64_t, std::int64_t), std::int64_t rank) {
  std::vector<std::int64_t> found;
  for (std::int64_t r = 0; r < grid.ranks(); ++r)
    if (same(grid, r, rank)) found.push_back(r);
  return found;
}
bool same_experts(const Grid& grid, std::int64_t a, std::int64_t b) {
  return grid.experts_of(a) == grid.experts_of(b);
}
bool same_columns(const Grid& grid, std::int64_t a, std::int64_t b) {
  return grid.tensor_of(a) == grid.tensor_of(b);
}

}  // namespace

void take_turns(const Grid& grid, const std::function<void(std::int64_t, const Ranks&)>& body) {
  Turns turns(grid.ranks());
  const auto one = [&](std::int64_t rank) {
    try {
      turns.wait(rank);
      std::int64_t meetings = 0;
      Group tensor(turns, rank, members(grid, same_experts, rank), meetings),
          experts(turns, rank, members(grid, same_columns, rank), meetings);
      body(rank, {grid.tensor > 1 ? &tensor : nullptr, grid.experts > 1 ? &experts : nullptr});
      turns.pass_on();
    } catch (const Abandoned&) {
      // The rank that failed says why.
    } catch (...) {
      turns.fail(std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) threads.emplace_back(one, rank);
  for (std::thread& thread : threads) thread.join();
  turns.rethrow();
}

}  // namespace dodona::model
