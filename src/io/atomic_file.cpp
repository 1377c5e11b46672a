#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "dodona/error.h"

namespace dodona::io {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", path + ": " + message);
}
[[noreturn]] void fail_errno(const std::string& path, const std::string& action, int error) {
  fail(path, action + ": " + std::generic_category().message(error));
}

std::string descriptor_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

/// No longer than any target's own name could be, and different for every writer: O_EXCL settles what chance does not.
std::string temporary_name(const std::string& folder, int attempt) {
  const auto ticks = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return folder + "/.dodona-" + std::to_string(::getpid()) + "-" + std::to_string(ticks % 1'000'000'000) + "-" + std::to_string(attempt) +
         ".tmp";
}

/// A file without a name, which is gone with the process, however that ends; -1 where the file system, or the lack of /proc, forbids it.
int open_nameless(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  if (::access(descriptor_path(fd).c_str(), F_OK) == 0) return fd;
  ::close(fd);
  return -1;
}

/// Calls `make(name)` with names that may be free until it says that one was; errno is that of the last one.
template <class Make>
std::string take_name(const std::string& folder, const Make& make) {
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::string name = temporary_name(folder, attempt);
    if (make(name)) return name;
    if (errno != EEXIST && errno != EINTR) break;
  }
  return {};
}

void sync_folder(const std::string& folder) {
  // Best effort: some file systems cannot sync a folder, and the file itself is complete.
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  open({});
}
AtomicFile::AtomicFile(std::string path, const std::string& before) : path_(std::move(path)) {
  open(before);
}

bool AtomicFile::may_be_nameless(const std::string& folder) {
  const int fd = open_nameless(folder);
  return fd >= 0 && ::close(fd) == 0;
}

void AtomicFile::open(const std::string& before) {
  if (path_.empty() || path_.back() == '/' || path_.find('\0') != std::string::npos) fail(path_.c_str(), "not the name of a file");
  folder_ = std::filesystem::path(path_).parent_path().string();
  if (folder_.empty()) folder_ = ".";
  struct stat target {};
  const bool exists = ::stat(path_.c_str(), &target) == 0;
  // Renaming over a device such as /dev/null would replace the device.
  if (exists && !S_ISREG(target.st_mode))
    fail(path_, S_ISDIR(target.st_mode) ? "cannot write: this is a directory" : "cannot write: no regular file");

  fd_ = open_nameless(before.empty() ? folder_ : before);
  if (fd_ < 0) {
    temporary_ = take_name(folder_, [&](const std::string& name) {
      fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      return fd_ >= 0;
    });
    if (fd_ < 0) fail_errno(path_, "cannot create a file in " + folder_, errno);
  }
  // Best effort: a file of another owner may refuse, and the contents matter more.
  if (exists) static_cast<void>(!::fchmod(fd_, target.st_mode & 0777));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) fail(path_, "written to after it was finished");
  constexpr std::size_t chunk = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), chunk));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno(path_, "cannot write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void AtomicFile::flush() {
  if (::fsync(fd_) != 0) fail_errno(path_, "cannot write", errno);
}

void AtomicFile::commit() {
  if (fd_ < 0) fail(path_, "finished twice");
  flush();
  // What has no name gets one, for nothing but a rename takes the place of a file that is there.
  if (temporary_.empty()) {
    temporary_ = take_name(folder_, [&](const std::string& name) {
      return ::linkat(AT_FDCWD, descriptor_path(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    });
    if (temporary_.empty()) fail_errno(path_, "cannot create a file in " + folder_, errno);
  }
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno(path_, "cannot write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_, "cannot rename the finished file", errno);
  temporary_.clear();
  sync_folder(folder_);
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace dodona::io
