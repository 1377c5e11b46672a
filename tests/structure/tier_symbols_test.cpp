// Objects of vector code may not define shared inline symbols: the linker would keep one copy, perhaps the one with instructions that
// this CPU lacks.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> buffer;
  while (pipe && std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe.get()) != nullptr) text += buffer.data();
  return text;
}

TEST(TierObjects, DefineNoWeakSymbolOutsideTheirTier) {
  int objects = 0;
  for (const char* tier : {"v3", "v4", "v4_vnni"}) {
    const fs::path folder = fs::path(DODONA_BUILD_DIR) / "CMakeFiles" / ("dodona_tier_" + std::string(tier) + ".dir");
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      ++objects;
      std::string symbols = output_of("nm -C --defined-only '" + entry.path().string() + "'");
      std::size_t begin = 0;
      while (begin < symbols.size()) {
        const std::size_t end = std::min(symbols.find('\n', begin), symbols.size());
        const std::string line = symbols.substr(begin, end - begin);
        begin = end + 1;
        const bool weak = line.size() > 18 && (line[17] == 'W' || line[17] == 'V' || line[17] == 'u');
        const bool own = line.find("::" + std::string(tier)) != std::string::npos || line.find("xsimd::") != std::string::npos ||
                         line.find("DW.ref.") != std::string::npos;  // a reference, no code
        EXPECT_TRUE(!weak || own) << entry.path().filename() << ": " << line;
      }
    }
  }
#if defined(__x86_64__)
  EXPECT_GT(objects, 0);
#endif
}

}  // namespace
