// Files that a command writes: refused before the work, not after it.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "dodona/error.h"
#include "io/atomic_file.h"

namespace dodona::tools {

/// Options and the paths that they name; those without one are not given. Throws Error for a path where nothing can be written, and
/// (bad_option) for one that two of them name, or that is among the files that are `read`.
inline void check_output_files(const std::vector<std::pair<const char*, std::string>>& files, const std::vector<std::string>& read = {}) {
  // Folders may be links; a link in the file's own place is replaced.
  const auto place = [](const std::string& path) {
    const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
    std::error_code none;
    const std::filesystem::path folder = std::filesystem::canonical(file.parent_path(), none);
    return none ? file : folder / file.filename();
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [option, path] = files[i];
    if (path.empty()) continue;
    for (std::size_t j = i + 1; j < files.size(); ++j)
      if (!files[j].second.empty() && place(files[j].second) == place(path))
        throw Error(ErrorCode::bad_option, "", option,
                    "and " + std::string(files[j].first) + " name one file, " + path + ": one of them would be lost");
    for (const std::string& input : read)
      if (!input.empty() && place(input) == place(path))
        throw Error(ErrorCode::bad_option, "", option, "names " + path + ", which is read: it would be lost");
    const io::AtomicFile probe(path);
  }
}

}  // namespace dodona::tools
