// A folder of one's own that goes away with what is in it.
#pragma once

#include <string>

namespace dodona::io {

class TemporaryFolder {
 public:
  /// memory: a folder in memory where the system has a place for such, else on the disk.
  enum class Place { disk, memory };
  /// In the system's folder for what is temporary, called `name` and six characters. Throws Error(bad_file) if it cannot be made.
  explicit TemporaryFolder(const std::string& name, Place place = Place::disk);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace dodona::io
