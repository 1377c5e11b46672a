// The recorded cases, as files: every one is read whole, and comes back from being written anew.
#include "io/json.h"
#include "io/safetensors.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {

/// Those of the repository, and those beside it.
std::vector<std::string> golden_files() {
  std::vector<std::string> paths;
  for (const char* folder : {DODONA_SOURCE_DIR "/tests/golden", DODONA_SOURCE_DIR "/../shared/golden"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder))
      if (item.path().extension() == ".safetensors") paths.push_back(item.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

TEST(GoldenFiles, AreReadWholeAndComeBackFromBeingWritten) {
  const std::vector<std::string> paths = golden_files();
  ASSERT_GE(paths.size(), 80u);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_FALSE(file.entries().empty());
    // Some hardware tables have unsigned types that tensors here have not.
    if (!std::all_of(file.entries().begin(), file.entries().end(), [](const SafetensorsEntry& entry) { return entry.dtype.has_value(); }))
      continue;
    NamedTensors tensors;
    for (const SafetensorsEntry& entry : file.entries()) {
      tensors.emplace_back(entry.name, file.tensor(entry));
      EXPECT_TRUE(tensors.back().second.contiguous());
      EXPECT_FALSE(tensors.back().second.writable());
    }
    const Buffer written = safetensors_bytes(tensors, file.metadata());
    const SafetensorsFile again = SafetensorsFile::from_bytes(written);
    EXPECT_EQ(again.metadata(), file.metadata());
    ASSERT_EQ(again.entries().size(), file.entries().size());
    for (const SafetensorsEntry& entry : file.entries()) {
      const SafetensorsEntry* twin = again.find(entry.name);
      ASSERT_NE(twin, nullptr) << entry.name;
      EXPECT_EQ(twin->dtype_name, entry.dtype_name);
      EXPECT_EQ(twin->shape, entry.shape);
      EXPECT_TRUE(same_bytes(again.bytes(*twin), file.bytes(entry))) << entry.name;
    }
  }
}

TEST(GoldenFiles, SayWhichCaseTheyAre) {
  const std::vector<std::string> paths = golden_files();
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const std::filesystem::path where(path);
    if (where.parent_path().parent_path().filename() != "golden") continue;  // models have words of their own
    const SafetensorsFile file = SafetensorsFile::open(path);
    const Metadata& metadata = file.metadata();
    ASSERT_TRUE(metadata.count("op") && metadata.count("case") && metadata.count("attrs"));
    EXPECT_EQ(metadata.at("op"), where.parent_path().filename().string());
    // A recording of a line goes by that line, others by their file.
    EXPECT_EQ(metadata.at("case"), metadata.count("line") ? metadata.at("line") : where.stem().string());
    EXPECT_TRUE(parse_json(metadata.at("attrs"), "attrs").is_object());
    EXPECT_TRUE(!metadata.count("provenance") || parse_json(metadata.at("provenance"), "provenance").is_object());
    for (const SafetensorsEntry& entry : file.entries())
      EXPECT_TRUE(entry.name.starts_with("in.") || entry.name.starts_with("out.")) << entry.name;
  }
}
