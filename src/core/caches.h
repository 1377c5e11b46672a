// What this process sees of the machine's caches and memory, and how much to go through so that no cache holds it: limits, benchmarks
// and `dodona layer --cold` size their buffers by it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace dodona {

/// Sizes in bytes.
struct MemoryFacts {
  std::int64_t cache = 0;      ///< the last-level caches of the processors that this process may run on, together
  std::string cache_source;    ///< "DODONA_LLC_MIB", "sysfs", "sysconf" or "assumed"
  std::int64_t available = 0;  ///< memory that can still be taken
};
/// The cache is DODONA_LLC_MIB where it is set (in MiB, 1 to 65536; otherwise throws Error, bad_option), else what the kernel says of each
/// processor, else what the C library says, else 256 MiB. What is available is asked anew each time.
MemoryFacts memory_facts();

/// The last-level caches of some processors as `root`/sys/devices/system/cpu/cpuN/cache tells: of each processor the highest level that
/// holds data; one that several processors share counts once. 0 where nothing is told.
std::int64_t last_level_cache_in(const std::string& root, std::span<const int> processors);
/// Memory that can be taken without swapping, as `root`/proc/meminfo says, or what the control groups of this process leave where that is
/// less (versions 1 and 2; the page cache that they count is given back). The largest number where nothing is told.
std::int64_t available_memory_in(const std::string& root);

/// Whether so much memory can be had, swap included. What is small is not asked for. The system promises more than there is, and kills who
/// comes to use it.
bool memory_allows(std::int64_t bytes);

/// What is gone through is this many times the last-level cache, for replacement is not always of the oldest line.
inline constexpr std::int64_t cold_factor = 3;
/// And no less than this: what a guest is told of its host's caches may be too small.
inline constexpr std::int64_t least_cold_bytes = std::int64_t{512} << 20;

/// Copies of something that are used in turn.
struct Rotation {
  std::int64_t copies = 1;
  bool cold = false;  ///< when a copy's turn comes again, no cache holds it any more; false where memory does not allow enough copies
};
/// `touched`: bytes that one use reads or writes; `footprint`: bytes that a copy takes. At most half of what is available is taken.
Rotation cold_rotation(const MemoryFacts& facts, double touched, double footprint);

/// A buffer that is gone through.
struct ColdBytes {
  std::int64_t bytes = 0;
  bool cold = false;
};
ColdBytes cold_bytes(const MemoryFacts& facts);

/// "cold", or why not: "not cold: memory allows 200 MiB, three times the last-level cache are 900 MiB".
std::string cold_text(const MemoryFacts& facts, const ColdBytes& size);

/// The share of `bytes`, used again and again, that the last-level cache could hold from one use to the next.
double share_that_stays(const MemoryFacts& facts, double bytes);

}  // namespace dodona
