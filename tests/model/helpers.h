// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "dodona/tensor.h"

namespace dodona::model::testing {

/// A folder that goes away with its contents.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dodona-model-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

/// `action` must throw an Error of that code whose text contains every part.
inline void expect_error(const std::function<void()>& action, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_STREQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "in \"" << error.what() << "\" there is no \"" << part << "\"";
    return;
  }
  ADD_FAILURE() << "no error; expected one with \"" << parts.front() << "\"";
}

inline std::string bytes(const Tensor& tensor) {
  return {tensor.as<char>(), static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements()))};
}

}  // namespace dodona::model::testing
