// Files that a command writes: refused before the work, not after it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dodona/error.h"
#include "io/atomic_file.h"

namespace dodona::tools {

/// Options and the paths that they name; those without one are not given. Throws Error for a path where nothing can be written, and
/// (bad_option) for one that two of them name.
inline void check_output_files(const std::vector<std::pair<const char*, std::string>>& files) {
  const auto place = [](const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [option, path] = files[i];
    if (path.empty()) continue;
    for (std::size_t j = i + 1; j < files.size(); ++j)
      if (!files[j].second.empty() && place(files[j].second) == place(path))
        throw Error(ErrorCode::bad_option, "", option,
                    "and " + std::string(files[j].first) + " name one file, " + path + ": one of them would be lost");
    const io::AtomicFile probe(path);
  }
}

}  // namespace dodona::tools
