#include "io/npz.h"

#include <algorithm>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/npy.h"
#include "io/text.h"

namespace dodona::io {
namespace {

constexpr std::string_view suffix = ".npy";

void write_to(const std::vector<std::pair<std::string, Tensor>>& tensors, Sink sink) {
  ZipWriter zip(std::move(sink));
  for (const auto& [name, tensor] : tensors) zip.add(name + std::string(suffix), npy_bytes(tensor));
  zip.finish();
}

}  // namespace

NpzFile NpzFile::open(const std::string& path, std::uint64_t max_expanded, Access access) {
  auto file = std::make_shared<const MappedFile>(MappedFile::open(path, access));
  return from_bytes(file->bytes(), file, path, max_expanded);
}

NpzFile NpzFile::from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string source,
                            std::uint64_t max_expanded) {
  if (is_lfs_pointer(bytes)) throw Error(ErrorCode::bad_file, "", "", source + ": " + lfs_pointer_advice);
  NpzFile file;
  for (ZipMember& member : read_zip_directory(bytes, source, max_expanded)) {
    if (!member.name.ends_with(suffix)) continue;
    file.names_.push_back(member.name.substr(0, member.name.size() - suffix.size()));
    file.members_.push_back(std::move(member));
  }
  file.source_ = std::move(source);
  file.owner_ = std::move(owner);
  file.bytes_ = bytes;
  return file;
}

Tensor NpzFile::tensor(std::string_view name, std::optional<DType> override) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    throw Error(ErrorCode::missing_argument, "", "", source_ + ": no array " + quote(name) + " among its " + std::to_string(names_.size()));
  const ZipMember& member = members_[static_cast<std::size_t>(found - names_.begin())];
  const OwnedBytes npy = expand(bytes_, owner_, member, source_);
  return npy_from_bytes(npy.bytes, npy.owner, source_ + ": " + quote(member.name), override);
}

void write_npz(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  AtomicFile file(path);
  write_to(tensors, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

std::vector<std::byte> npz_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<std::byte> result;
  write_to(tensors, [&](std::span<const std::byte> bytes) { append(result, bytes); });
  return result;
}

}  // namespace dodona::io
