#include "io/atomic_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <system_error>

#include "dodona/error.h"

namespace dodona::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_open = 256;  // of the 1024 that a process may usually have

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", path + ": " + message);
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& target, std::size_t files) : target_(fs::path(target).lexically_normal()) {
  if (target_.filename().empty()) target_ = target_.parent_path();
  std::error_code error;
  if (target_.empty() || target_ == "." || target_ == "..") fail(target, "not the name of a new folder");
  if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error)))
    fail(target, "exists already and is no empty folder");
  parent_ = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (!fs::is_directory(parent_, error)) fail(target, "there is no folder " + parent_.string() + " to put it in");
  temporary_ = parent_ / ("." + target_.filename().string() + "." + std::to_string(::getpid()) + ".part");
  nameless_ = files <= most_open && AtomicFile::may_be_nameless(parent_.string());
  if (!nameless_) make_temporary();
}

AtomicFolder::~AtomicFolder() {
  files_.clear();
  std::error_code ignored;
  if (made_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::make_temporary() {
  std::error_code error;
  if (!fs::create_directory(temporary_, error)) fail(target_.string(), "cannot create a folder in " + parent_.string());
  made_ = true;
}

void AtomicFolder::require_space(std::int64_t bytes) const {
  struct statvfs disk {};
  if (::statvfs(parent_.c_str(), &disk) != 0) return;
  const auto free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (static_cast<double>(bytes) > free)
    fail(target_.string(),
         "needs " + std::to_string(bytes) + " bytes, the disk has " + std::to_string(static_cast<std::int64_t>(free)) + " left");
}

void AtomicFolder::finish_last() {
  if (files_.empty()) return;
  if (nameless_) {
    files_.back()->flush();  // so that nothing waits for the disk when names are given
  } else {
    files_.back()->commit();
    files_.clear();
  }
}

AtomicFile& AtomicFolder::add(const std::string& name) {
  finish_last();
  files_.push_back(std::make_unique<AtomicFile>((temporary_ / name).string(), (nameless_ ? parent_ : temporary_).string()));
  return *files_.back();
}

void AtomicFolder::commit() {
  finish_last();
  if (nameless_) make_temporary();
  for (const auto& file : files_) file->commit();
  files_.clear();
  std::error_code error;
  fs::rename(temporary_, target_, error);
  if (error) fail(target_.string(), "cannot rename the finished folder: " + error.message());
  made_ = false;
}

}  // namespace dodona::io
