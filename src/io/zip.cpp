#include "io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "dodona/error.h"
#include "dodona/tensor.h"
#include "io/tensor_bytes.h"
#include "io/text.h"

namespace dodona::io {
namespace {

constexpr std::uint32_t local_mark = 0x04034b50;
constexpr std::uint32_t central_mark = 0x02014b50;
constexpr std::uint32_t end_mark = 0x06054b50;
constexpr std::size_t local_size = 30;
constexpr std::size_t central_size = 46;
constexpr std::size_t end_size = 22;
constexpr std::uint16_t flag_encrypted = 1;
constexpr std::uint16_t flag_utf8 = 1 << 11;
constexpr std::uint16_t method_stored = 0;
constexpr std::uint16_t method_deflated = 8;
constexpr std::uint32_t in_zip64_32 = 0xFFFFFFFF;  // the value is in a zip64 record
constexpr std::uint16_t in_zip64_16 = 0xFFFF;
/// Deflate codes at best 258 bytes in 2 bits; the rest is room for tiny members.
constexpr std::uint64_t max_expansion = 1040;

using Bytes = std::span<const std::byte>;

[[noreturn]] void fail(ErrorCode code, const std::string& source, const std::string& message) {
  throw Error(code, "", "", source + ": " + message);
}
[[noreturn]] void fail(const std::string& source, const std::string& message) {
  fail(ErrorCode::bad_file, source, message);
}

// ---- reading ----

struct EndRecord {
  std::size_t entries, directory_begin, directory_end;
};

std::optional<std::size_t> find_end(Bytes archive) {
  constexpr std::size_t longest_comment = 0xFFFF;
  if (archive.size() < end_size) return std::nullopt;
  const std::size_t last = archive.size() - end_size;
  const std::size_t first = last - std::min(last, longest_comment);
  for (std::size_t at = last + 1; at-- > first;)
    if (load_le<std::uint32_t>(archive, at) == end_mark && at + end_size + load_le<std::uint16_t>(archive, at + 20) == archive.size())
      return at;
  return std::nullopt;
}

EndRecord read_end(Bytes archive, const std::string& source) {
  if (archive.size() < 4 || (load_le<std::uint32_t>(archive, 0) != local_mark && load_le<std::uint32_t>(archive, 0) != end_mark))
    fail(source, "does not begin as a zip archive");
  const std::optional<std::size_t> end = find_end(archive);
  if (!end) fail(source, "no end-of-directory record: not a zip archive, or cut short");
  const auto u16 = [&](std::size_t offset) { return load_le<std::uint16_t>(archive, *end + offset); };
  const auto u32 = [&](std::size_t offset) { return load_le<std::uint32_t>(archive, *end + offset); };
  if (u16(8) == in_zip64_16 || u16(10) == in_zip64_16 || u32(12) == in_zip64_32 || u32(16) == in_zip64_32)
    fail(ErrorCode::unsupported, source, "zip64 archives (4 GiB or 65535 members and more) cannot be read; safetensors has no such limit");
  if (u16(4) != 0 || u16(6) != 0 || u16(8) != u16(10)) fail(ErrorCode::unsupported, source, "archives of several volumes cannot be read");
  const std::size_t size = u32(12);
  const std::size_t begin = u32(16);
  if (begin > *end || size != *end - begin) fail(source, "the directory does not end where the end-of-directory record begins");
  return {u16(10), begin, *end};
}

/// Checks the local header and finds the data behind it.
void locate_data(Bytes archive, std::size_t local, std::size_t limit, std::uint16_t flags, std::uint16_t method, ZipMember& member,
                 const std::string& place) {
  if (local > limit || limit - local < local_size) fail(place, "the local header lies outside the archive");
  const Bytes header = archive.subspan(local, local_size);
  if (load_le<std::uint32_t>(header, 0) != local_mark) fail(place, "no local header where the directory says");
  const std::size_t name_length = load_le<std::uint16_t>(header, 26);
  const std::size_t extra_length = load_le<std::uint16_t>(header, 28);
  if (limit - local - local_size < name_length + extra_length) fail(place, "the local header lies outside the archive");
  if (as_text(archive.subspan(local + local_size, name_length)) != member.name) fail(place, "the local header has another name");
  if (load_le<std::uint16_t>(header, 8) != method) fail(place, "the local header has another method of compression");
  if ((load_le<std::uint16_t>(header, 6) & flag_encrypted) != (flags & flag_encrypted))
    fail(place, "the local header disagrees on encryption");
  // Sizes in the local header may be absent (streamed archives) or in a zip64 field (numpy.savez); the directory has them too.
  member.data = local + local_size + name_length + extra_length;
  if (member.compressed > limit - member.data) fail(place, "the data lie outside the archive");
}

void check_overlap(std::vector<std::pair<std::uint64_t, std::uint64_t>>& spans, const std::string& source) {
  std::sort(spans.begin(), spans.end());
  for (std::size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second) fail(source, "members overlap at byte " + std::to_string(spans[i].first));
}

void check_names(const std::vector<ZipMember>& members, const std::string& source) {
  std::vector<std::string_view> names;
  names.reserve(members.size());
  for (const ZipMember& member : members) names.emplace_back(member.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) fail(source, "two members are called " + quote(*twin));
}

class Inflater {
 public:
  explicit Inflater(const std::string& place) {
    // Negative: no zlib header around the deflated data.
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) fail(ErrorCode::out_of_memory, place, "cannot start zlib");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Whether `in` ends exactly where the deflated data end, and these fill `out` exactly.
  bool run(Bytes in, std::span<std::byte> out) {
    // zlib takes no null pointers, and does not write through next_in.
    std::byte none{};
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.empty() ? &none : in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.empty() ? &none : out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    return inflate(&stream_, Z_FINISH) == Z_STREAM_END && stream_.avail_in == 0 && stream_.avail_out == 0;
  }

 private:
  z_stream stream_{};
};

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// ---- writing ----

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::bad_value, "", "", "cannot write zip: " + message);
}

struct Fields {
  std::uint16_t flags;
  std::uint32_t crc, size;
  std::uint16_t name_length;
};

/// What local and central headers have in common, from the version needed to the length of the extra field.
void append_common(std::vector<std::byte>& out, const Fields& fields) {
  constexpr std::uint16_t version_needed = 20;
  constexpr std::uint16_t midnight = 0;
  constexpr std::uint16_t first_of_january_1980 = (1 << 5) | 1;
  append_le(out, version_needed);
  append_le(out, fields.flags);
  append_le(out, method_stored);
  append_le(out, midnight);
  append_le(out, first_of_january_1980);
  append_le(out, fields.crc);
  append_le(out, fields.size);
  append_le(out, fields.size);
  append_le(out, fields.name_length);
  append_le(out, std::uint16_t{0});
}

}  // namespace

std::vector<ZipMember> read_zip_directory(Bytes archive, const std::string& source, std::uint64_t max_expanded) {
  const EndRecord end = read_end(archive, source);
  std::vector<ZipMember> members;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  std::uint64_t total = 0;
  std::size_t at = end.directory_begin;
  for (std::size_t i = 0; i < end.entries; ++i) {
    if (end.directory_end - at < central_size || load_le<std::uint32_t>(archive, at) != central_mark)
      fail(source, "entry " + std::to_string(i) + " of the directory is damaged");
    const auto u16 = [&](std::size_t offset) { return load_le<std::uint16_t>(archive, at + offset); };
    const auto u32 = [&](std::size_t offset) { return load_le<std::uint32_t>(archive, at + offset); };
    const std::size_t name_length = u16(28);
    const std::size_t length = central_size + name_length + u16(30) + u16(32);
    if (length > end.directory_end - at) fail(source, "entry " + std::to_string(i) + " of the directory is damaged");

    ZipMember member;
    member.name = as_text(archive.subspan(at + central_size, name_length));
    const std::string place = source + ": member " + quote(member.name);
    const std::uint16_t flags = u16(8);
    const std::uint16_t method = u16(10);
    if (flags & flag_encrypted) fail(ErrorCode::unsupported, place, "encrypted members cannot be read");
    if (method != method_stored && method != method_deflated)
      fail(ErrorCode::unsupported, place, "method " + std::to_string(method) + " of compression, expected 0 (stored) or 8 (deflate)");
    if (u32(20) == in_zip64_32 || u32(24) == in_zip64_32 || u32(42) == in_zip64_32)
      fail(ErrorCode::unsupported, place, "zip64 members (4 GiB and more) cannot be read; safetensors has no such limit");
    member.deflated = method == method_deflated;
    member.crc = u32(16);
    member.compressed = u32(20);
    member.expanded = u32(24);
    if (!member.deflated && member.compressed != member.expanded) fail(place, "stored, but its two sizes differ");
    if (member.expanded > max_expansion * member.compressed)
      fail(place, "claims to expand " + std::to_string(member.compressed) + " bytes to " + std::to_string(member.expanded) +
                      ", more than deflate can");
    locate_data(archive, u32(42), end.directory_begin, flags, method, member, place);
    spans.emplace_back(u32(42), member.data + member.compressed);
    total += member.expanded;
    if (total > max_expanded) fail(source, "expands to more than the limit of " + std::to_string(max_expanded) + " bytes");
    members.push_back(std::move(member));
    at += length;
  }
  if (at != end.directory_end) fail(source, "the directory has more bytes than its " + std::to_string(end.entries) + " entries");
  check_overlap(spans, source);
  check_names(members, source);
  return members;
}

OwnedBytes expand(Bytes archive, const std::shared_ptr<const void>& owner, const ZipMember& member, const std::string& source) {
  const std::string place = source + ": member " + quote(member.name);
  const Bytes packed = archive.subspan(member.data, member.compressed);
  OwnedBytes result{packed, owner};
  if (member.deflated) {
    // A tensor for its alignment: what is inside is likely to be one.
    const Tensor memory(DType::u8, {static_cast<std::int64_t>(member.expanded)});
    if (!Inflater(place).run(packed, {memory.as<std::byte>(), static_cast<std::size_t>(member.expanded)}))
      fail(place,
           "the deflated data are damaged, or do not expand to the " + std::to_string(member.expanded) + " bytes that the directory says");
    result = {bytes_of(memory), memory.owner()};
  }
  if (checksum(result.bytes) != member.crc) fail(place, "the checksum does not match: the data are damaged");
  return result;
}

void ZipWriter::put(Bytes bytes) {
  sink_(bytes);
  position_ += bytes.size();
}

void ZipWriter::add(std::string_view name, Bytes bytes) {
  constexpr std::uint64_t largest = in_zip64_32 - 1;
  if (name.empty() || name.size() >= in_zip64_16) refuse("a name of " + std::to_string(name.size()) + " bytes");
  if (first_invalid_utf8(name) != std::string_view::npos) refuse("the name " + quote(name) + " is not valid UTF-8");
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) refuse("two members are called " + quote(name));
  if (bytes.size() > largest || position_ + local_size + name.size() > largest - bytes.size() || names_.size() + 1 >= in_zip64_16)
    refuse("more than 4 GiB or 65534 members; write safetensors");
  names_.emplace_back(name);

  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  const Fields fields{ascii ? std::uint16_t{0} : flag_utf8, checksum(bytes), static_cast<std::uint32_t>(bytes.size()),
                      static_cast<std::uint16_t>(name.size())};
  constexpr std::uint16_t made_by = 20;
  append_le(directory_, central_mark);
  append_le(directory_, made_by);
  append_common(directory_, fields);
  append_le(directory_, std::uint16_t{0});  // comment
  append_le(directory_, std::uint16_t{0});  // volume
  append_le(directory_, std::uint16_t{0});  // internal attributes
  append_le(directory_, std::uint32_t{0});  // external attributes
  append_le(directory_, static_cast<std::uint32_t>(position_));
  append(directory_, as_bytes(name));

  std::vector<std::byte> local;
  append_le(local, local_mark);
  append_common(local, fields);
  append(local, as_bytes(name));
  put(local);
  put(bytes);
}

void ZipWriter::finish() {
  if (position_ + directory_.size() >= in_zip64_32) refuse("more than 4 GiB; write safetensors");
  const auto begin = static_cast<std::uint32_t>(position_);
  const auto count = static_cast<std::uint16_t>(names_.size());
  put(directory_);
  std::vector<std::byte> end;
  append_le(end, end_mark);
  append_le(end, std::uint16_t{0});
  append_le(end, std::uint16_t{0});
  append_le(end, count);
  append_le(end, count);
  append_le(end, static_cast<std::uint32_t>(directory_.size()));
  append_le(end, begin);
  append_le(end, std::uint16_t{0});  // comment
  put(end);
}

}  // namespace dodona::io
