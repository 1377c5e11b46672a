#include "model/ranks/turns.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "dodona/error.h"

namespace dodona::model {
namespace {

/// What is thrown in ranks that another one has left alone.
struct Abandoned {};

/// Where the ranks of a group meet.
struct Room {
  std::vector<std::int64_t> members = {};
  std::vector<Tensor> given = {}, met = {};  ///< of this meeting; of the last one
  std::size_t there = 0;
  std::int64_t held = 0;
};

class Turns {
 public:
  explicit Turns(std::int64_t ranks) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) ready_.insert(rank), here_.insert(rank);
  }

  void begin(std::int64_t rank) {
    std::unique_lock lock(mutex_);
    wait(lock, rank);
  }
  void end(std::int64_t rank) {
    const std::lock_guard lock(mutex_);
    here_.erase(rank);
    leave(rank);
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    changed_.notify_all();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  /// What all members give. The next meeting is over when all of them have come again, so this one's is read by then.
  std::vector<Tensor> meet(Room& room, std::int64_t rank, const Tensor& mine) {
    std::unique_lock lock(mutex_);
    std::size_t place = 0;
    while (room.members[place] != rank) ++place;
    room.given.resize(room.members.size());
    room.given[place] = mine;
    if (++room.there == room.members.size()) {
      room.met = std::exchange(room.given, {});
      room.there = 0;
      ready_.insert(room.members.begin(), room.members.end());
      running_ = false;
      changed_.notify_all();
    } else {
      leave(rank);
    }
    wait(lock, rank);
    return room.met;
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock, std::int64_t rank) {
    changed_.wait(lock, [&] { return error_ || (!running_ && !ready_.empty() && *ready_.begin() == rank); });
    if (error_) throw Abandoned{};
    running_ = true;
  }
  void leave(std::int64_t rank) {
    ready_.erase(rank);
    running_ = false;
    if (ready_.empty() && !here_.empty() && !error_) error_ = std::make_exception_ptr(std::logic_error("ranks wait for one that has left"));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::int64_t> ready_, here_;
  bool running_ = false;
  std::exception_ptr error_;
};

/// A rank's door to a room.
class Group final : public RankGroup {
 public:
  Group(Turns& turns, Room& room, std::int64_t rank) : turns_(turns), room_(room), rank_(rank) {}
  std::vector<Tensor> gather(const Tensor& mine) override { return turns_.meet(room_, rank_, mine); }

 private:
  Turns& turns_;
  Room& room_;
  std::int64_t rank_;
};

/// Rooms of one kind of group, by its number.
std::map<std::int64_t, Room> rooms(const Grid& grid, std::int64_t (Grid::*group)(std::int64_t) const) {
  std::map<std::int64_t, Room> all;
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank) all[(grid.*group)(rank)].members.push_back(rank);
  return all;
}

}  // namespace

void take_turns(const Grid& grid, const std::function<void(std::int64_t, const Ranks&)>& body) {
  Turns turns(grid.ranks());
  auto of_tensor = rooms(grid, &Grid::tensor_group), of_experts = rooms(grid, &Grid::experts_group),
       of_pipeline = rooms(grid, &Grid::pipeline_group);
  const auto one = [&](std::int64_t rank) {
    try {
      turns.begin(rank);
      Group tensor(turns, of_tensor.at(grid.tensor_group(rank)), rank), experts(turns, of_experts.at(grid.experts_group(rank)), rank),
          pipeline(turns, of_pipeline.at(grid.pipeline_group(rank)), rank);
      body(rank, groups_of(grid, rank, tensor, experts, pipeline));
      turns.end(rank);
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
