// The rooms of the house and the direction of its arrows, held against the includes of every source file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dodona/op.h"

namespace {

namespace fs = std::filesystem;
const fs::path root = DODONA_SOURCE_DIR;

/// Room of a path relative to the repository: "quant", "ops", "core", "simd", "io", "model", "oracle", "trail", "tools", "public", or none.
/// What ops share has rooms of its own, and so has each part of the oracle and of the model.
std::string room_of(const std::string& path) {
  const auto starts = [&](const char* prefix) { return path.rfind(prefix, 0) == 0; };
  if (starts("include/dodona/") || starts("dodona/")) return "public";
  for (const char* room : {"ops/base", "ops/sums", "ops/tiles", "ops/rows", "ops/softmax", "ops/routing", "ops/draws", "ops/schemes"})
    if (starts((std::string(room) + "/").c_str())) return room;
  for (const char* part : {"cases", "judge", "faults", "trust", "records", "report", "fib", "alternatives", "schedules", "grade"}) {
    const std::string room = "oracle/" + std::string(part);
    if (starts((room + "/").c_str()) || starts(("src/" + room + "/").c_str())) return room;
  }
  for (const char* part : {"config", "weights", "layer"}) {
    const std::string room = "model/" + std::string(part);
    if (starts((room + "/").c_str()) || starts(("src/" + room + "/").c_str())) return room;
  }
  for (const char* room : {"quant", "ops", "tools", "python"})
    if (starts((std::string(room) + "/").c_str())) return room;
  for (const char* room : {"core", "simd", "io", "model", "oracle", "ptx", "trail", "capi"})
    if (starts((std::string(room) + "/").c_str()) || starts(("src/" + std::string(room) + "/").c_str())) return room;
  return {};
}

using Rooms = std::set<std::string>;
Rooms operator+(Rooms a, const Rooms& b) {
  a.insert(b.begin(), b.end());
  return a;
}
const Rooms shared_by_ops{"ops/base", "ops/sums", "ops/tiles", "ops/rows", "ops/softmax", "ops/routing", "ops/draws", "ops/schemes"};
const Rooms oracle{"oracle/cases",  "oracle/judge", "oracle/faults",    "oracle/trust", "oracle/records",
                   "oracle/report", "oracle/fib",   "oracle/schedules", "oracle/grade"};
const Rooms model{"model/config", "model/weights", "model/layer"};
const Rooms ground{"public", "core", "quant"}, below_ops = ground + Rooms{"simd"}, below_oracle = below_ops + Rooms{"io", "ops"};

/// What each room may include besides itself.
const std::map<std::string, Rooms> allowed{
    {"public", {}},
    {"core", {"public"}},
    {"quant", {"public"}},
    {"simd", {"public", "core"}},
    {"io", {"public"}},
    {"ops/base", below_ops},
    {"ops/sums", below_ops + Rooms{"ops/base", "ops/tiles"}},
    {"ops/tiles", below_ops + Rooms{"ops/base"}},
    {"ops/rows", below_ops + Rooms{"ops/base", "ops/sums"}},
    {"ops/softmax", below_ops + Rooms{"ops/base", "ops/rows", "ops/sums", "ops/tiles"}},
    {"ops/routing", below_ops + Rooms{"ops/base", "ops/sums"}},
    {"ops/draws", below_ops + Rooms{"ops/base"}},
    {"ops/schemes", below_ops + Rooms{"ops/base", "ops/routing", "ops/rows", "ops/sums", "ops/tiles"}},
    {"ops", below_ops + shared_by_ops},
    {"model/config", {"public", "core", "io"}},
    {"model/weights", below_ops + Rooms{"io", "model/config"}},
    {"model/layer", below_oracle + shared_by_ops + Rooms{"model/config", "model/weights"}},
    {"model", below_oracle + shared_by_ops + model},
    {"oracle/cases", below_oracle},
    {"oracle/judge", below_oracle + Rooms{"oracle/cases"}},
    {"oracle/faults", below_oracle + Rooms{"oracle/cases", "oracle/judge"}},
    {"oracle/alternatives", below_oracle + Rooms{"ops/tiles", "oracle/cases", "oracle/judge"}},
    {"oracle/trust", below_oracle + Rooms{"oracle/cases", "oracle/judge", "oracle/faults", "oracle/alternatives"}},
    {"oracle/records", below_oracle + Rooms{"oracle/cases", "oracle/judge"}},
    {"oracle/schedules", below_oracle + Rooms{"ops/sums", "oracle/cases"}},
    {"oracle/report", below_oracle + Rooms{"oracle/cases", "oracle/judge", "oracle/faults", "oracle/schedules"}},
    {"oracle/fib", below_oracle + Rooms{"oracle/cases", "oracle/judge"}},
    {"oracle/grade",
     below_oracle + Rooms{"oracle/cases", "oracle/judge", "oracle/faults", "oracle/records", "oracle/schedules", "oracle/report"}},
    {"trail", below_oracle + model + Rooms{"model", "oracle/cases", "oracle/judge"}},
    {"ptx", below_ops + Rooms{"io", "ops/tiles"}},
    {"capi", below_oracle + oracle + model + Rooms{"model", "ptx"}},
    {"tools", below_oracle + oracle + model + Rooms{"model", "trail", "oracle/alternatives", "ptx"}},
};

std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (const char* folder : {"include", "quant", "ops", "src", "tools"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".h" || entry.path().extension() == ".cpp") files.push_back(entry.path());
  return files;
}

/// The quoted includes of a file.
std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> found;
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    const auto at = line.find("#include \"");
    if (at == std::string::npos) continue;
    const auto begin = at + 10, end = line.find('"', begin);
    found.push_back(line.substr(begin, end - begin));
  }
  return found;
}

TEST(House, ArrowsRunOneWay) {
  int arrows = 0;
  for (const fs::path& file : sources()) {
    const std::string from = room_of(fs::relative(file, root).string());
    ASSERT_FALSE(from.empty()) << file << " is in no room";
    for (const std::string& include : includes_of(file)) {
      const std::string to = room_of(include);
      if (to.empty() || to == from) continue;  // a neighbour of the same folder, or the same room
      ++arrows;
      EXPECT_TRUE(allowed.at(from).count(to)) << fs::relative(file, root) << " (" << from << ") includes " << include << " (" << to << ")";
    }
  }
  EXPECT_GT(arrows, 50) << "the scan found nothing to check";
}

TEST(House, FoldersOfOpsHoldOpsOnly) {
  int ops = 0;
  for (const auto& folder : fs::directory_iterator(root / "ops")) {
    const std::string room = room_of("ops/" + folder.path().filename().string() + "/");
    if (!folder.is_directory() || room != "ops") continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_directory()) continue;
      const std::string name = entry.path().filename().string(), stem = name.substr(0, name.find('.'));
      EXPECT_NE(dodona::registry().find(stem), nullptr) << fs::relative(entry.path(), root) << " is no op of the inventory";
      ++ops;
    }
  }
  EXPECT_GT(ops, 50) << "the scan found nothing to check";
}

TEST(House, VectorHeadersAreIncludedByVectorCodeOnly) {
  // Headers that hold tier code: everything that reaches for DODONA_TIER as a namespace.
  std::set<std::string> tier_headers;
  for (const fs::path& file : sources()) {
    if (file.extension() != ".h") continue;
    std::ifstream stream(file);
    std::string line;
    while (std::getline(stream, line))
      if (line.find("namespace dodona::DODONA_TIER") == 0) tier_headers.insert(fs::relative(file, root).string());
  }
  EXPECT_FALSE(tier_headers.empty());
  const auto is_tier_header = [&](const std::string& include) {
    return tier_headers.count(include) + tier_headers.count("src/" + include) > 0;
  };
  for (const fs::path& file : sources()) {
    const std::string path = fs::relative(file, root).string();
    if (path.ends_with(".simd.cpp") || tier_headers.count(path)) continue;
    for (const std::string& include : includes_of(file)) EXPECT_FALSE(is_tier_header(include)) << path << " includes " << include;
  }
}

TEST(House, TopLevelHoldsOnlyWhatTheDesignNames) {
  const std::set<std::string> expected{
      "CMakeLists.txt", "CMakePresets.json", "README.md", "include", "src", "ops", "quant", "tests", "bench", "tools", "python", "docs",
      "build",          "examples"};
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.') EXPECT_TRUE(expected.count(name)) << name;
  }
}

}  // namespace
