// Folders that appear whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/atomic_file.h"

namespace dodona::io {

/// A new folder, or one in the place of an empty one. Its files have no names before `commit`, which links them and renames the folder in
/// one step: a process that is killed leaves nothing. Where the file system knows no files without a name, or they are more than a process
/// may hold open, they grow in a folder beside it (.NAME.PID.part), which a killed process leaves behind.
class AtomicFolder {
 public:
  /// Throws Error(bad_file) for a target that is there and no empty folder, and one whose parent is no folder that can be written.
  AtomicFolder(const std::string& target, std::size_t files);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Throws Error(bad_file) when the disk has less room.
  void require_space(std::int64_t bytes) const;
  /// A file of the folder, to be written until the next one is asked for.
  AtomicFile& add(const std::string& name);
  void commit();

 private:
  void make_temporary();
  void finish_last();

  std::filesystem::path target_, parent_, temporary_;
  bool nameless_ = false, made_ = false;
  std::vector<std::unique_ptr<AtomicFile>> files_;
};

}  // namespace dodona::io
