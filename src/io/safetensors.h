// The safetensors format: 8 bytes of header length, a JSON header, the data.
// Source: the safetensors format description and its reference implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/tensor.h"
#include "io/mapped_file.h"

namespace dodona::io {

class AtomicFile;

inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

/// One tensor as the header describes it.
struct SafetensorsEntry {
  std::string name;                 ///< chosen by whoever wrote the file: never a path
  std::string_view dtype_name;      ///< the file's spelling, F32 BF16 F8_E4M3 F6_E2M3 ...
  std::optional<DType> dtype;       ///< nothing for a type that the format has and tensors here have not
  std::vector<std::int64_t> shape;  ///< F4 and F6 shapes count values, not bytes
  std::uint64_t begin = 0;          ///< offsets into the data section
  std::uint64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;
using dodona::NamedTensors;

/// A file that was read and found sound. Copies share the memory.
class SafetensorsFile {
 public:
  /// Throws Error(bad_file) on every violation of the format: no header, header over the limit, longer than the file, not UTF-8,
  /// not JSON, not an object; a name twice; unknown dtype; shape or offsets of the wrong kind; offsets that overlap,
  /// leave a hole or run backwards; counts that overflow; a count of bits that is no count of bytes; a shape that does not fit its
  /// offsets; bytes missing from the data or left over. Nothing of the data is read.
  static SafetensorsFile open(const std::string& path, Access access = Access::map);
  /// The same for a file in memory, which `owner` keeps alive; without an owner the caller does, longer than any tensor of it.
  static SafetensorsFile from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner = {},
                                    std::string source = "safetensors");

  /// In the order of the header. Not of a temporary, whose entries would be gone before a loop over them begins.
  const std::vector<SafetensorsEntry>& entries() const& { return contents_->entries; }
  const std::vector<SafetensorsEntry>& entries() const&& = delete;
  const Metadata& metadata() const { return contents_->metadata; }
  const std::string& source() const { return contents_->source; }
  /// See MappedFile; a file in memory never changes.
  void require_unchanged() const {
    if (contents_->file) contents_->file->require_unchanged();
  }

  /// The entry called `name`, or null.
  const SafetensorsEntry* find(std::string_view name) const;
  /// The bytes of an entry of this file, as they lie in it.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

  /// A read-only contiguous tensor. It shares the file's memory, and its ownership, where that is aligned for the element type,
  /// and owns a copy otherwise. Throws Error(missing_argument) if there is none of that name, Error(unsupported) if it has a type or a
  /// number of dimensions that tensors here cannot have, Error(bad_file) if a boolean is neither 0 nor 1.
  Tensor tensor(std::string_view name) const;
  Tensor tensor(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile() = default;

  struct Contents {
    std::string source;
    std::shared_ptr<const MappedFile> file;
    std::shared_ptr<const void> owner;
    std::span<const std::byte> data;
    std::vector<SafetensorsEntry> entries;
    std::vector<std::size_t> by_name;  // indices into entries, sorted by name
    Metadata metadata;
  };
  std::shared_ptr<Contents> contents_;
};

/// Writes tensors so that equal contents give equal bytes: sorted by dtype, the widest first (descending in the format's own order
/// of types), then by name; metadata sorted; the header padded with spaces to a multiple of 8. Strided tensors are written row-major. i4
/// has no name in the format and is written as U8 with half as many columns. Throws Error(bad_value) for a name that is used twice, is
/// `__metadata__` or is not UTF-8, for an undefined tensor, an odd number of f4 or columns of i4, a header over the limit; Error(bad_file)
/// if the file cannot be written, which then is as it was before.
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
/// What is written of a tensor whose data comes later.
struct PlannedTensor {
  std::string name;
  DType dtype{};
  Dims shape;
};
/// The same of tensors that need not be in memory together, into a file that is left to be committed: `data(i)` gives tensors[i] when its
/// turn comes, in the order of the file, and is let go of when written. Throws Error(bad_value) too if it gives another dtype or shape than
/// planned.
void write_safetensors(AtomicFile& file, const std::vector<PlannedTensor>& tensors, const std::function<Tensor(std::size_t)>& data,
                       const Metadata& metadata = {});
/// The same in memory.
std::vector<std::byte> safetensors_bytes(const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace dodona::io
