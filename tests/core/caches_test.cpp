// What is planned for a machine, from what it says of itself: no test measures anything.
#include "core/caches.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace dodona {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20, gib = 1024 * mib;

MemoryFacts machine(std::int64_t cache, std::int64_t available) {
  return {.cache = cache, .cache_source = "test", .available = available};
}

/// A machine's /sys and /proc.
class FakeRoot : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void cache(int processor, int index, int level, const char* type, const char* size, const char* shared_by) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(processor) + "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", std::to_string(level));
    write(folder + "type", type);
    write(folder + "size", size);
    write(folder + "shared_cpu_map", shared_by);
  }
  const std::string& root() const { return folder_.path(); }
  std::int64_t last_level(const std::vector<int>& processors) const { return last_level_cache_in(root(), processors); }

 private:
  const helpers::TempFolder folder_;
};

TEST_F(FakeRoot, ACacheThatProcessorsShareCountsOnce) {
  for (const int processor : {0, 1, 2, 3}) {
    cache(processor, 0, 1, "Data", "48K", std::to_string(1 << processor).c_str());
    cache(processor, 1, 1, "Instruction", "9999999K", std::to_string(1 << processor).c_str());
    cache(processor, 2, 2, "Unified", "2048K", std::to_string(1 << processor).c_str());
    cache(processor, 3, 3, "Unified", "32M", processor < 2 ? "3" : "c");
  }
  EXPECT_EQ(last_level({0, 1, 2, 3}), 64 * mib);
  EXPECT_EQ(last_level({0, 1}), 32 * mib);
  EXPECT_EQ(last_level({2}), 32 * mib) << "only the processors that this process may run on";
  EXPECT_EQ(last_level({}), 0);
}

TEST_F(FakeRoot, ProcessorsWithoutALargeCacheCountTheirOwn) {
  cache(0, 0, 1, "Data", "32K", "1");
  cache(0, 1, 2, "Unified", "512K", "1");
  cache(1, 0, 1, "Data", "64K", "2");
  EXPECT_EQ(last_level({0, 1}), 576 << 10);
}

TEST_F(FakeRoot, WhereNothingIsToldNothingIsKnown) {
  EXPECT_EQ(last_level({0, 1}), 0);
  EXPECT_EQ(available_memory_in(root()), std::numeric_limits<std::int64_t>::max());
}

TEST_F(FakeRoot, AvailableIsWhatTheMachineHas) {
  write("proc/meminfo", "MemTotal:       20480000 kB\nMemAvailable:    4194304 kB\nBuffers: 1 kB");
  EXPECT_EQ(available_memory_in(root()), 4 * gib);
}

TEST_F(FakeRoot, OrWhatItsControlGroupsLeave) {
  write("proc/meminfo", "MemAvailable:    4194304 kB");
  write("proc/self/cgroup", "0::/outer/inner");
  write("sys/fs/cgroup/outer/inner/memory.max", "max");
  EXPECT_EQ(available_memory_in(root()), 4 * gib);
  // A limit of the group around it holds too; the page cache that it counts can be given back.
  write("sys/fs/cgroup/outer/memory.max", std::to_string(2 * gib));
  write("sys/fs/cgroup/outer/memory.current", std::to_string(gib));
  EXPECT_EQ(available_memory_in(root()), gib);
  write("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file " + std::to_string(gib / 2));
  EXPECT_EQ(available_memory_in(root()), gib + gib / 2);
  write("sys/fs/cgroup/outer/memory.current", std::to_string(5 * gib));
  EXPECT_EQ(available_memory_in(root()), 0);
}

TEST_F(FakeRoot, OrThoseOfTheFirstVersion) {
  write("proc/meminfo", "MemAvailable:    4194304 kB");
  write("proc/self/cgroup", "7:cpu,cpuacct:/a\n4:memory:/elsewhere/of/the/host");
  // In a container the hierarchy is mounted at the group itself.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(gib));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(gib / 4));
  EXPECT_EQ(available_memory_in(root()), gib / 4 * 3);
}

TEST(Caches, ThisMachineHasSome) {
  const MemoryFacts facts = memory_facts();
  EXPECT_GT(facts.cache, 0);
  EXPECT_GT(facts.available, 0);
  EXPECT_FALSE(facts.cache_source.empty());
}

TEST(ColdBytes, AreThreeTimesTheCacheAndNeverLessThanHalfAGibibyte) {
  EXPECT_EQ(cold_bytes(machine(300 * mib, 64 * gib)).bytes, 900 * mib);
  EXPECT_EQ(cold_bytes(machine(32 * mib, 64 * gib)).bytes, 512 * mib);
  EXPECT_TRUE(cold_bytes(machine(300 * mib, 64 * gib)).cold);
  EXPECT_EQ(cold_text(machine(300 * mib, 64 * gib), cold_bytes(machine(300 * mib, 64 * gib))), "cold");
}

TEST(ColdBytes, AreHalfOfWhatIsAvailableAtMostAndThenSaidNotToBeCold) {
  const MemoryFacts small = machine(300 * mib, 400 * mib);
  const ColdBytes size = cold_bytes(small);
  EXPECT_EQ(size.bytes, 200 * mib);
  EXPECT_FALSE(size.cold);
  EXPECT_EQ(cold_text(small, size), "not cold: memory allows 200 MiB, three times the last-level cache are 900 MiB");
  // Less than was wanted, yet beyond the caches.
  EXPECT_EQ(cold_bytes(machine(32 * mib, 400 * mib)).bytes, 200 * mib);
  EXPECT_TRUE(cold_bytes(machine(32 * mib, 400 * mib)).cold);
  EXPECT_FALSE(cold_bytes(machine(32 * mib, 0)).cold);
  EXPECT_GT(cold_bytes(machine(32 * mib, 0)).bytes, 0);
}

TEST(ColdRotation, TakesAsManyCopiesAsTheCachesAskFor) {
  for (const std::int64_t cache : {mib, 32 * mib, 300 * mib, 2 * gib})
    for (const double touched : {4e6, 16.5e6, 76e6, 300e6}) {
      const Rotation rotation = cold_rotation(machine(cache, 1024 * gib), touched, touched);
      EXPECT_TRUE(rotation.cold);
      EXPECT_GE(static_cast<double>(rotation.copies) * touched, 3.0 * static_cast<double>(cache)) << cache << " " << touched;
      EXPECT_LT(static_cast<double>(rotation.copies - 1) * touched, static_cast<double>(std::max(3 * cache, 512 * mib)));
    }
  EXPECT_EQ(cold_rotation(machine(32 * mib, 64 * gib), 1e9, 1e9).copies, 1) << "one alone is beyond the caches";
}

TEST(ColdRotation, IsSaidNotToBeColdWhereMemoryDoesNotAllowIt) {
  const Rotation rotation = cold_rotation(machine(300 * mib, gib), 64.0 * mib, 64.0 * mib);
  EXPECT_EQ(rotation.copies, 8);
  EXPECT_FALSE(rotation.cold);
  // A copy may take more than a use of it touches.
  EXPECT_TRUE(cold_rotation(machine(32 * mib, 8 * gib), 16.0 * mib, 64.0 * mib).cold);
  EXPECT_EQ(cold_rotation(machine(32 * mib, gib), 4.0 * mib, 256.0 * mib).copies, 2);
  EXPECT_FALSE(cold_rotation(machine(32 * mib, gib), 4.0 * mib, 256.0 * mib).cold);
  EXPECT_EQ(cold_rotation(machine(32 * mib, mib), 4.0 * mib, 4.0 * mib).copies, 1) << "there is one in any case";
}

TEST(ShareThatStays, IsWhatTheCacheCanHold) {
  EXPECT_DOUBLE_EQ(share_that_stays(machine(300 * mib, gib), 400.0 * mib), 0.75);
  EXPECT_DOUBLE_EQ(share_that_stays(machine(300 * mib, gib), 100.0 * mib), 1.0);
  EXPECT_DOUBLE_EQ(share_that_stays(machine(300 * mib, gib), 0), 1.0);
}

}  // namespace
}  // namespace dodona
