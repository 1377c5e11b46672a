// The part of the zip format that npz files use: stored and deflated members of one volume below 4 GiB.
// Source: the .ZIP file format specification (APPNOTE), version 6.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes.h"

namespace dodona::io {

inline constexpr std::uint64_t default_max_expanded = std::uint64_t{4} << 30;

struct ZipMember {
  std::string name;  ///< chosen by whoever wrote the file: never a path
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t compressed = 0;  ///< bytes in the archive
  std::uint64_t expanded = 0;    ///< bytes when expanded
  std::uint64_t data = 0;        ///< offset of the compressed bytes
};

/// Bytes and what keeps them alive.
struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// The members of an archive, in the order of its directory. The directory is believed only where the members bear it out.
/// Throws Error(bad_file) if the archive is no zip, is cut short, has a directory that does not end at the end record, members that
/// overlap, lie outside, disagree with their local headers or bear a name twice, claims to expand further than deflate can, or to more than
/// `max_expanded` bytes altogether; Error(unsupported) for zip64, several volumes, encryption and other methods of compression.
std::vector<ZipMember> read_zip_directory(std::span<const std::byte> archive, const std::string& source,
                                          std::uint64_t max_expanded = default_max_expanded);

/// The expanded bytes of a member: a view of the archive if it is stored, memory of its own if it is deflated. Throws Error(bad_file) if
/// the member is damaged, is shorter or longer than the directory says, or fails its checksum; Error(out_of_memory).
OwnedBytes expand(std::span<const std::byte> archive, const std::shared_ptr<const void>& owner, const ZipMember& member,
                  const std::string& source);

/// Writes stored members one after the other; equal contents give equal bytes (no dates).
class ZipWriter {
 public:
  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}
  /// Throws Error(bad_value) for an empty, overlong, repeated or ill-formed name, and where the archive would need zip64.
  void add(std::string_view name, std::span<const std::byte> bytes);
  /// Writes the directory. Nothing may be added afterwards.
  void finish();

 private:
  void put(std::span<const std::byte> bytes);

  Sink sink_;
  std::vector<std::string> names_;
  std::vector<std::byte> directory_;
  std::uint64_t position_ = 0;
};

}  // namespace dodona::io
