#include "core/caches.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/environment.h"

namespace dodona {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t mib = std::int64_t{1} << 20;
/// Where nobody tells: as much as the larger servers have.
constexpr std::int64_t assumed_cache = 256 * mib;
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// The first line; empty where there is no such file.
std::string line_of(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// "32768K", "300M", "4096"; `otherwise` where it is no number ("max").
std::int64_t bytes_of(const std::string& text, std::int64_t otherwise) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || value < 0) return otherwise;
  const std::int64_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? mib : *end == 'G' ? 1024 * mib : 1;
  return value > no_limit / unit ? no_limit : value * unit;
}

/// The number behind `name` in a file of lines "name value", in bytes; `otherwise` where there is none.
std::int64_t field_of(const fs::path& file, const std::string& name, std::int64_t otherwise) {
  std::ifstream stream(file);
  std::string line, key, value, unit;
  while (std::getline(stream, line)) {
    std::istringstream words(line);
    if (!(words >> key >> value) || key != name) continue;
    return bytes_of(value + (words >> unit && unit == "kB" ? "K" : ""), otherwise);
  }
  return otherwise;
}

struct Cache {
  int level = 0;
  std::string shared_by;
  std::int64_t bytes = 0;
};
Cache last_level_of(const fs::path& processor) {
  Cache last;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(processor / "cache", none)) {
    const int level = std::atoi(line_of(entry.path() / "level").c_str());
    const std::int64_t bytes = bytes_of(line_of(entry.path() / "size"), 0);
    if (level <= last.level || bytes == 0 || line_of(entry.path() / "type") == "Instruction") continue;
    last = {level, line_of(entry.path() / "shared_cpu_map"), bytes};
  }
  return last;
}

std::vector<int> processors_of_this_process() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

std::int64_t cache_by_sysconf() {
  std::int64_t bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  for (const int level : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE})
    bytes = std::max<std::int64_t>(bytes, ::sysconf(level));
#endif
  return bytes;
}

/// What is left of a control group and of those around it; no_limit without one.
std::int64_t left_by_groups(const fs::path& hierarchy, const std::string& group, const char* limit, const char* usage) {
  std::int64_t least = no_limit;
  for (fs::path at = fs::path(group).relative_path();; at = at.parent_path()) {
    const fs::path folder = hierarchy / at;
    const std::int64_t most = bytes_of(line_of(folder / limit), no_limit);
    if (most < no_limit) {
      const std::int64_t page_cache = field_of(folder / "memory.stat", "inactive_file", 0);
      least = std::min(least, std::max<std::int64_t>(0, most - bytes_of(line_of(folder / usage), 0) + page_cache));
    }
    if (at.empty()) return least;
  }
}

std::string mib_text(std::int64_t bytes) {
  return std::to_string((bytes + mib / 2) / mib) + " MiB";
}

std::int64_t beyond(const MemoryFacts& facts) {
  return cold_factor * facts.cache;
}
std::int64_t to_be_taken(const MemoryFacts& facts) {
  return facts.available / 2;
}

}  // namespace

std::int64_t last_level_cache_in(const std::string& root, std::span<const int> processors) {
  std::map<std::pair<int, std::string>, std::int64_t> caches;
  for (const int i : processors) {
    const Cache cache = last_level_of(fs::path(root) / "sys/devices/system/cpu" / ("cpu" + std::to_string(i)));
    if (cache.level > 0) caches[{cache.level, cache.shared_by}] = cache.bytes;
  }
  std::int64_t bytes = 0;
  for (const auto& entry : caches) bytes += entry.second;
  return bytes;
}

std::int64_t available_memory_in(const std::string& root) {
  const fs::path base(root);
  std::int64_t least = field_of(base / "proc/meminfo", "MemAvailable:", no_limit);
  std::ifstream groups(base / "proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/path" of version 2, "7:memory:/path" of version 1.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) least = std::min(least, left_by_groups(base / "sys/fs/cgroup", group, "memory.max", "memory.current"));
    if (controllers == "memory")
      least = std::min(least, left_by_groups(base / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
  }
  return least;
}

bool memory_allows(std::int64_t bytes) {
  constexpr std::int64_t small = 1024 * mib;
  if (bytes < small) return true;
  const std::int64_t available = available_memory_in("/"), swap = field_of("/proc/meminfo", "SwapFree:", 0);
  return bytes <= available || bytes - available <= swap;
}

MemoryFacts memory_facts() {
  MemoryFacts facts;
  facts.available = available_memory_in("/");
  const auto take = [&](std::int64_t bytes, const char* source) {
    if (facts.cache > 0 || bytes <= 0) return;
    facts.cache = bytes;
    facts.cache_source = source;
  };
  take(whole_number_from_environment("DODONA_LLC_MIB", 1, 65536).value_or(0) * mib, "DODONA_LLC_MIB");
  if (facts.cache == 0) take(last_level_cache_in("/", processors_of_this_process()), "sysfs");
  take(cache_by_sysconf(), "sysconf");
  take(assumed_cache, "assumed");
  return facts;
}

Rotation cold_rotation(const MemoryFacts& facts, double touched, double footprint) {
  const double wanted = std::ceil(static_cast<double>(std::max(beyond(facts), least_cold_bytes)) / std::max(touched, 1.0));
  const double allowed = std::floor(static_cast<double>(to_be_taken(facts)) / std::max({touched, footprint, 1.0}));
  const double copies = std::max(1.0, std::min(wanted, allowed));
  return {static_cast<std::int64_t>(copies), copies * touched >= static_cast<double>(beyond(facts))};
}

ColdBytes cold_bytes(const MemoryFacts& facts) {
  constexpr std::int64_t least = 1 * mib;  // there is something to measure
  const std::int64_t bytes = std::max(least, std::min(std::max(beyond(facts), least_cold_bytes), to_be_taken(facts)));
  return {bytes, bytes >= beyond(facts)};
}

std::string cold_text(const MemoryFacts& facts, const ColdBytes& size) {
  if (size.cold) return "cold";
  return "not cold: memory allows " + mib_text(size.bytes) + ", three times the last-level cache are " + mib_text(beyond(facts));
}

double share_that_stays(const MemoryFacts& facts, double bytes) {
  return bytes > 0 ? std::min(1.0, static_cast<double>(facts.cache) / bytes) : 1.0;
}

}  // namespace dodona
