// A block of threads at work: warps, their registers, shared memory, and what is watched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "dodona/isa.h"
#include "ptx/dead_reads.h"
#include "ptx/products.h"
#include "ptx/program.h"

namespace dodona::ptx {

/// Memory of an argument.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool read_only = false;
  std::uint8_t* written = nullptr;  ///< a byte each, of memory that is watched
};

/// What all blocks of a launch share.
struct LaunchState {
  const Program* program = nullptr;
  const Code* code = nullptr;
  const CompiledKernel* kernel = nullptr;
  Dim3 grid, block;
  std::size_t shared_bytes = 0, dynamic_shared = 0;
  std::vector<Buffer> buffers;
  std::vector<std::byte> parameters, variables;
  bool check_races = false, check_uninitialised = false;
  std::uint64_t limit = 0;
  std::size_t findings = 0;
  Isa isa{};
};

enum class GroupState : std::uint8_t { runs, at_barrier, at_meeting };

/// Lanes of a warp that are at the same place.
struct Group {
  std::uint32_t pc = 0, mask = 0;
  GroupState state = GroupState::runs;
  std::uint32_t barrier = 0;
  bool waited = false;  ///< for lanes of its warp, at this very place
};

using Clock = std::vector<std::uint32_t>;

struct Warp {
  std::byte* registers = nullptr;
  std::vector<Group> groups;
  std::size_t current = 0;
  std::uint32_t live = 0, begun = 0, index = 0;  ///< lanes: that are there, that were at the beginning
  bool yields = false;
  std::uint64_t executed = 0;
  Clock clock;               ///< of every warp, what this one has seen
  std::uint32_t synced = 0;  ///< how often its lanes have met
  std::vector<std::byte> local;
  std::uint64_t fenced = 0;   ///< when it last did fence.proxy.async
  bool wgmma_fenced = false;  ///< since its first instruction
  /// What wgmma left in accumulators, by their first register, since the last wgmma.fence.
  std::map<Slot, std::vector<std::uint32_t>> accumulators;
  /// Groups of cp.async and of wgmma: the one that is open, and that all before this one have been waited for.
  std::uint32_t copies_open = 1, copies_done = 0, products_open = 1;
  std::map<Slot, std::uint32_t> in_flight;  ///< accumulators that wgmma may still write, by their group
};

/// Bytes of shared memory of which the last write is known.
inline constexpr std::uint64_t shared_page = 1024;

inline constexpr std::uint32_t barrier_of_clusters = 16;

struct BlockBarrier {
  std::uint32_t arrived = 0, expected = 0, truths = 0;
  std::uint32_t last_truths = 0, last_threads = 0;  ///< of when it opened last
  Clock clock;
};

/// The last who touched a byte.
struct Touch {
  std::uint32_t pc = 0, time = 0, synced = 0;
  std::uint64_t when = 0;
  std::uint16_t thread = 0xFFFF;
  std::uint8_t atomic = 0, asynchronous = 0;  ///< asynchronous: by a bulk copy (2) or cp.async (1), then of this group
  std::uint32_t group = 0;
};
struct TouchedByte {
  Touch write, read;
};

/// Strong ones (volatile, relaxed, acquire, release) and atomics do not race with each other.
enum class AccessKind : std::uint8_t { load, store, atomic, strong_load, strong_store };
constexpr bool reads(AccessKind kind) {
  return kind == AccessKind::load || kind == AccessKind::atomic || kind == AccessKind::strong_load;
}
constexpr bool writes(AccessKind kind) {
  return kind == AccessKind::store || kind == AccessKind::atomic || kind == AccessKind::strong_store;
}

/// Sees instructions before they run; for tracing.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before(Machine& machine, const Instruction& instruction) = 0;
};

class Machine {
 public:
  explicit Machine(const LaunchState& launch);

  void run_block(std::uint64_t linear);

  // ---- what handlers use; they run for the lanes in `mask` of the current warp

  std::uint32_t mask = 0;
  std::byte* registers = nullptr;
  Warp* warp = nullptr;

  std::uint32_t* narrow(Slot slot) { return reinterpret_cast<std::uint32_t*>(registers + slot * row_bytes); }
  std::uint64_t* wide(Slot slot) { return reinterpret_cast<std::uint64_t*>(registers + slot * row_bytes); }
  std::uint32_t& predicate(Slot slot) { return *narrow(slot); }
  std::byte* row(Slot slot) { return registers + slot * row_bytes; }
  const Slot* list(const Instruction& i) const { return launch_.code->lists.data() + i.list; }
  Group& group() { return warp->groups[warp->current]; }

  /// Memory of this lane's access, or nullptr where there is none: then a finding has been kept.
  std::byte* at(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind, int lane, const Instruction& i);
  /// The same where nothing is watched and all is well; else `at`.
  std::byte* quick(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind, int lane, const Instruction& i) {
    if (!watching_) {
      const std::uint64_t offset = address & 0xFFFFFFFFu;
      if (space == Space::shared && offset + bytes <= launch_.shared_bytes && (offset & (bytes - 1)) == 0) {
        if (writes(kind)) note_write(offset, bytes);
        return shared_.data() + offset;
      }
      const std::uint64_t index = (address >> 36) - 1;
      if (index < launch_.buffers.size() && (address & (bytes - 1)) == 0) {
        const Buffer& b = launch_.buffers[index];
        const std::uint64_t from = address & ((std::uint64_t{1} << 36) - 1);
        if (from + bytes <= b.bytes && !(b.read_only && writes(kind))) return b.data + from;
      }
    }
    return at(space, address, bytes, kind, lane, i);
  }
  void branch(std::uint32_t target);
  void leave();
  void jump(const std::uint32_t* targets);  ///< each lane of `mask` to its own
  void arrive(std::uint32_t barrier, std::uint32_t threads, bool waits, const Instruction& i);
  void yield() { warp->yields = true; }
  void meet() { ++warp->synced; }
  /// Writes of this warp to shared memory are there for asynchronous copies and wgmma.
  void fence() { warp->fenced = executed_; }
  /// Predicates of threads that arrive at a barrier, and of how many they are true when all have come.
  void offer(std::uint32_t barrier, std::uint32_t lanes);
  struct Offered {
    std::uint32_t truths, threads;
  };
  Offered offered(std::uint32_t barrier) const;

  void finding(const char* kind, const char* space, const std::string& address, int lane, const Instruction& i,
               const Touch* other = nullptr);
  [[noreturn]] void fail(const std::string& what, const Instruction& i) const;

  // Synchronisation through memory (mbarriers, atomics): what is known is left there, and taken.
  void release(std::uint64_t place);
  void acquire(std::uint64_t place);

  bool watching() const { return watching_; }
  /// Accesses that follow are those of copies.
  void set_asynchronous(int kind) { asynchronous_ = static_cast<std::uint8_t>(kind); }
  /// What the next store stores; threads that store the same by the same instruction do not race. nullptr: not known.
  void set_stored(const void* bytes) { storing_ = static_cast<const std::byte*>(bytes); }
  /// Of shared memory that wgmma or a bulk copy reads: writes of threads must have been fenced for them.
  void check_proxy(std::uint64_t offset, std::size_t bytes, int lane, const Instruction& i);
  const LaunchState& launch() const { return launch_; }
  std::byte* shared() { return shared_.data(); }
  Dim3 block_index() const { return block_; }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(launch_.block.count()); }
  /// Writes to shared memory are counted; the count at the last one to any of these pages, and the next one's.
  std::uint64_t last_write(std::uint32_t first_page, std::uint32_t last_page) const {
    std::uint64_t last = 0;
    for (std::uint32_t page = first_page; page <= last_page && page < page_writes_.size(); ++page)
      last = last < page_writes_[page] ? page_writes_[page] : last;
    return last;
  }
  std::uint64_t write_stamp() const { return writes_ + 1; }
  std::uint64_t time() const { return executed_; }
  std::size_t warps() const { return warps_.size(); }
  Tiles& tiles() { return tiles_; }

  Observer* observer = nullptr;

  // ---- what it leaves behind

  struct FindingKey {
    std::string kind;
    std::int32_t statement, other;
    auto operator<=>(const FindingKey&) const = default;
  };
  struct Kept {
    Finding finding;
    std::uint64_t block;
  };
  std::map<FindingKey, Kept> findings;
  std::uint64_t warp_instructions = 0, lane_instructions = 0;

 private:
  void begin_block(std::uint64_t linear);
  void note_write(std::uint64_t offset, std::size_t bytes) {
    ++writes_;
    for (std::uint64_t page = offset / shared_page; page <= (offset + bytes - 1) / shared_page; ++page) page_writes_[page] = writes_;
  }
  void fill_registers(Warp& w);
  bool run_warp(Warp& w);
  void regroup(Warp& w);
  void check_in_flight(const Instruction& i);
  bool wait_for_meeting(const Instruction& i);
  bool settle_barriers();
  void break_deadlock();
  std::uint32_t live_threads() const;
  Place place_of(int lane, const Instruction& i) const;
  Place place_of(const Touch& touch) const;
  std::byte* outside(const char* space, std::uint64_t address, std::size_t bytes, AccessKind kind, int lane, const Instruction& i);
  void watch(TouchedByte* touched, const std::byte* memory, std::size_t count, AccessKind kind, const char* space, std::uint64_t address,
             int lane, const Instruction& i);
  bool saw(const Touch& touch) const;
  TouchedByte* touched_global(std::uint64_t address, std::size_t bytes);
  void join(Clock& into, const Clock& from) const;
  std::string name_of(std::uint64_t address) const;
  Finding told(const char* kind, const char* space, const std::string& address, int lane, const Instruction& i, const Touch* other) const;
  void keep(Finding finding, const FindingKey& key, std::uint64_t times);
  void settle_races();

  /// Who raced by reading: one thread, or, where a write came behind reads of which only one is remembered, any thread but the writer.
  struct Readers {
    std::uint32_t pc;
    std::uint16_t thread;
    bool all_but_this;
    auto operator<=>(const Readers&) const = default;
  };
  template <class Where>
  void race_of_readers(const Readers& readers, const char* space, Where where, int lane, const Instruction& i, const Touch& other);
  struct RaceOfReaders {
    FindingKey key;
    Finding finding;
    std::uint64_t times = 0;
  };
  /// Races that are told when the block is done, unless the numbers that were read went nowhere; by the instruction that met the other's.
  std::map<std::tuple<std::uint32_t, std::uint32_t, Readers>, RaceOfReaders> races_of_readers_;
  std::optional<DeadReads> dead_reads_;

  const LaunchState& launch_;
  Tiles tiles_;
  std::vector<std::byte> file_;  ///< registers of all warps
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;
  std::vector<std::uint64_t> page_writes_;
  std::uint64_t writes_ = 0;
  std::vector<std::uint8_t> shared_written_;
  std::vector<TouchedByte> shared_touched_;
  std::unordered_map<std::uint64_t, std::vector<TouchedByte>> global_touched_;
  std::vector<BlockBarrier> barriers_;
  std::unordered_map<std::uint64_t, Clock> clocks_;
  Dim3 block_{0, 0, 0};
  std::uint64_t linear_ = 0;
  std::uint64_t executed_ = 0;
  bool watching_ = false;
  std::uint8_t asynchronous_ = 0;
  const std::byte* storing_ = nullptr;
};

}  // namespace dodona::ptx
