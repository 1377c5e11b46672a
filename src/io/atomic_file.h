// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dodona::io {

/// Writes a file without a name in the target's folder; `commit` makes it the target in one step. Readers and memory maps of the old
/// file keep the old bytes. Without `commit` (an exception on the way, or the process is killed) nothing remains and the old file is
/// untouched. Where the file system knows no files without a name, it has one (.dodona-*.tmp), which a killed process leaves behind.
/// An existing target hands its permissions on; a symbolic link at the target is replaced, not followed.
class AtomicFile {
 public:
  /// Throws Error(bad_file) if the folder cannot be written, or the target exists and is no regular file.
  explicit AtomicFile(std::string path);
  /// One that is written in the folder `before`, of the same file system, and must be without a name there where that may be: the target's
  /// own folder need not be there until `commit`.
  AtomicFile(std::string path, const std::string& before);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Throws Error(bad_file), e.g. when the disk is full.
  void write(std::span<const std::byte> bytes);
  /// Waits until the disk has what was written.
  void flush();
  /// Flushes and renames. Nothing may be written afterwards.
  void commit();

  /// Whether files in `folder` may be without a name.
  static bool may_be_nameless(const std::string& folder);

 private:
  void open(const std::string& before);

  std::string path_, folder_, temporary_;
  int fd_ = -1;
};

/// The whole of `bytes` as the file `path`.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace dodona::io
