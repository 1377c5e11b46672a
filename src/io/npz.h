// NumPy's .npz format: a zip archive of .npy files.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/tensor.h"
#include "io/mapped_file.h"
#include "io/zip.h"

namespace dodona::io {

/// An archive that was read and found sound. Copies share the memory.
class NpzFile {
 public:
  /// Throws as read_zip_directory; `max_expanded` bounds the bytes of all arrays together.
  static NpzFile open(const std::string& path, std::uint64_t max_expanded = default_max_expanded, Access access = Access::map);
  /// The same for an archive in memory, which `owner` keeps alive; without an owner the caller does.
  static NpzFile from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner = {}, std::string source = "npz",
                            std::uint64_t max_expanded = default_max_expanded);

  /// Names of the arrays (without .npy), in the order of the archive. Members that are no .npy files are passed over.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& source() const { return source_; }

  /// The array called `name`, expanded, its checksum verified; `override` as for read_npy. Throws Error(missing_argument) if there is none.
  Tensor tensor(std::string_view name, std::optional<DType> override = std::nullopt) const;

 private:
  NpzFile() = default;

  std::string source_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
  std::vector<std::string> names_;
  std::vector<ZipMember> members_;  // as names_
};

/// Writes stored (uncompressed) members in the given order; types as in write_npy. The file appears whole or not at all.
/// Throws as write_npy and ZipWriter.
void write_npz(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors);
/// The same in memory.
std::vector<std::byte> npz_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace dodona::io
