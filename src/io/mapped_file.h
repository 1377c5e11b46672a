// Read-only files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct stat;

namespace dodona::io {

enum class Access {
  map,   ///< memory map, or a plain read where the file system cannot map
  read,  ///< plain read: a copy, safe from programs that shorten the file in place meanwhile
};

/// The bytes of a regular file, at a stable address for the lifetime of the object, also when it is moved.
/// A mapped file that is replaced by rename keeps its old bytes; one that is cut short in place by another program
/// raises SIGBUS when the lost pages are read, as with any memory map.
class MappedFile {
 public:
  /// Throws Error(bad_file), naming the file, if it is missing, unreadable, or anything but a regular file
  /// (a FIFO is refused without waiting for its writer), and Error(out_of_memory) if a plain read does not fit.
  static MappedFile open(const std::string& path, Access access = Access::map);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  bool mapped() const { return mapping_ != nullptr; }
  /// Throws Error(bad_file) where the path leads to another file by now, or to one of another size or time of change. A look, no lock: what
  /// changes later raises SIGBUS at worst.
  void require_unchanged() const;

 private:
  /// Which file it was, and in which state.
  struct State {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const State&) const = default;
  };
  static State state_of(const struct stat& status);

  explicit MappedFile(std::string path) : path_(std::move(path)) {}
  void swap(MappedFile& other) noexcept;

  std::string path_;
  State state_;
  std::span<const std::byte> bytes_;
  void* mapping_ = nullptr;
  std::vector<std::byte> copy_;
};

/// Whether `bytes` are the text that Git LFS leaves in a checkout in place of a large file.
bool is_lfs_pointer(std::span<const std::byte> bytes);
inline constexpr const char* lfs_pointer_advice = "this is a Git LFS pointer, not the file it stands for; fetch that with `git lfs pull`";

}  // namespace dodona::io
