#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
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

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "no regular file";
}

std::vector<std::byte> read_all(int fd, std::size_t size, const std::string& path) {
  std::vector<std::byte> result;
  try {
    result.resize(size);
  } catch (const std::exception&) {
    throw Error(ErrorCode::out_of_memory, "", "", path + ": cannot hold " + std::to_string(size) + " bytes");
  }
  constexpr std::size_t chunk = std::size_t{1} << 30;
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::read(fd, result.data() + done, std::min(size - done, chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "cannot read", errno);
    if (got == 0) fail(path, "ended after " + std::to_string(done) + " of " + std::to_string(size) + " bytes while it was read");
    done += static_cast<std::size_t>(got);
  }
  return result;
}

}  // namespace

MappedFile MappedFile::open(const std::string& path, Access access) {
  if (path.find('\0') != std::string::npos) fail(path.substr(0, path.find('\0')), "the path contains a NUL byte");
  // O_NONBLOCK: opening a FIFO must not wait for a writer before it can be refused.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail_errno(path, "cannot open", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_errno(path, "cannot inspect", errno);
  if (!S_ISREG(status.st_mode)) fail(path, std::string("expected a regular file, this is ") + kind_of(status.st_mode));

  MappedFile file(path);
  file.state_ = state_of(status);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return file;
  if (access == Access::map) {
    void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapping != MAP_FAILED) {
      file.mapping_ = mapping;
      file.bytes_ = {static_cast<const std::byte*>(mapping), size};
      return file;
    }
  }
  file.copy_ = read_all(fd.get(), size, path);
  file.bytes_ = file.copy_;
  return file;
}

MappedFile::State MappedFile::state_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec};
}

void MappedFile::require_unchanged() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail_errno(path_, "is gone since it was opened", errno);
  const State now = state_of(status);
  if (now == state_) return;
  if (now.size != state_.size)
    fail(path_, "changed while it was in use: it had " + std::to_string(state_.size) + " bytes, and has " + std::to_string(now.size));
  fail(path_, now.inode != state_.inode || now.device != state_.device ? "was replaced by another file while it was in use"
                                                                       : "was written to while it was in use");
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  swap(other);
}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  MappedFile taken(std::move(other));
  swap(taken);
  return *this;
}
MappedFile::~MappedFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_.size());
}
void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(state_, other.state_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(copy_, other.copy_);
}

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view first_line = "version https://git-lfs.github.com/spec/v";
  constexpr std::size_t largest_pointer = 1024;
  return bytes.size() >= first_line.size() && bytes.size() < largest_pointer &&
         std::memcmp(bytes.data(), first_line.data(), first_line.size()) == 0;
}

}  // namespace dodona::io
