#include "io/npy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/npy_header.h"
#include "io/tensor_bytes.h"
#include "io/text.h"

namespace dodona::io {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t boundary = 64;

[[noreturn]] void fail(ErrorCode code, const std::string& source, const std::string& message) {
  throw Error(code, "", "", source + ": " + message);
}
[[noreturn]] void fail(const std::string& source, const std::string& message) {
  fail(ErrorCode::bad_file, source, message);
}

struct NativeType {
  std::string_view descr;  // without byte order
  DType dtype;
};
constexpr std::array<NativeType, 9> native_types{{
    {"f8", DType::f64},
    {"f4", DType::f32},
    {"f2", DType::f16},
    {"i8", DType::i64},
    {"i4", DType::i32},
    {"i2", DType::i16},
    {"i1", DType::i8},
    {"u1", DType::u8},
    {"b1", DType::boolean},
}};

/// What descr says, taken apart: kind letter and bytes of an item.
struct Descr {
  std::string text;
  char kind = 0;
  std::uint64_t width = 0;

  std::optional<DType> native() const {
    const std::string_view tail = std::string_view(text).substr(1);
    const auto* found = std::find_if(native_types.begin(), native_types.end(), [tail](const NativeType& t) { return t.descr == tail; });
    return found == native_types.end() ? std::nullopt : std::optional(found->dtype);
  }
  /// Whether the items are mere bits, for `override` to give a meaning to.
  bool raw() const { return kind == 'u' || kind == 'i' || kind == 'V'; }
};

Descr parse_descr(const std::string& text, const std::string& source) {
  const auto bad = [&](const std::string& why) { fail(source, "descr " + quote(text) + ": " + why); };
  if (text.size() < 2 || std::string_view("<>|=").find(text[0]) == std::string_view::npos)
    bad("expected a byte order < > | or = and a type");
  Descr descr{text, text[1], 0};
  if (descr.kind == 'O') fail(ErrorCode::unsupported, source, "descr " + quote(text) + ": pickled Python objects are never read");
  if (descr.kind == 'm' || descr.kind == 'M') fail(ErrorCode::unsupported, source, "descr " + quote(text) + ": dates cannot be read");
  if (std::string_view("biufcSUVa").find(descr.kind) == std::string_view::npos) bad("unknown kind of type");
  if (text.size() < 3 || text.size() > 9) bad("expected a byte order, a kind and a width");
  for (const char c : std::string_view(text).substr(2)) {
    if (c < '0' || c > '9') bad("expected a byte order, a kind and a width");
    descr.width = descr.width * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (text[0] == '>' && descr.width > 1)
    fail(ErrorCode::unsupported, source, "descr " + quote(text) + ": big-endian numbers cannot be read");
  return descr;
}

std::uint64_t storage_width(DType dtype) {
  return is_packed(dtype) ? 1 : static_cast<std::uint64_t>(bits(dtype) / 8);
}

DType element_type(const Descr& descr, std::optional<DType> override, const std::string& source) {
  const std::optional<DType> native = descr.native();
  if (override && override != native) {
    if (!descr.raw() || storage_width(*override) != descr.width)
      fail(ErrorCode::bad_dtype, source, "descr " + quote(descr.text) + " cannot hold " + std::string(name(*override)));
    return *override;
  }
  if (native) return *native;
  if (descr.raw())
    fail(ErrorCode::unsupported, source,
         "descr " + quote(descr.text) + " is no type of tensors here; give the dtype that its elements stand for (bf16, f8_e4m3, ...)");
  fail(ErrorCode::unsupported, source, "descr " + quote(descr.text) + " is no type of tensors here");
}

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Parts split(std::span<const std::byte> bytes, const std::string& source) {
  if (is_lfs_pointer(bytes)) fail(source, lfs_pointer_advice);
  const std::size_t fixed = magic.size() + 2;
  if (as_text(bytes).substr(0, magic.size()) != magic) fail(source, "does not begin with \\x93NUMPY, the mark of an npy file");
  if (bytes.size() < fixed) fail(source, "ends within the version");
  const int major = std::to_integer<int>(bytes[magic.size()]);
  const int minor = std::to_integer<int>(bytes[magic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0)
    fail(source, "version " + std::to_string(major) + "." + std::to_string(minor) + ", expected 1.0, 2.0 or 3.0");
  const std::size_t length_size = major == 1 ? 2 : 4;
  if (bytes.size() < fixed + length_size) fail(source, "ends within the header length");
  const std::size_t length = major == 1 ? load_le<std::uint16_t>(bytes, fixed) : load_le<std::uint32_t>(bytes, fixed);
  if (length > max_npy_header)
    fail(source, "a header of " + std::to_string(length) + " bytes is over the limit of " + std::to_string(max_npy_header));
  const std::size_t begin = fixed + length_size;
  if (length > bytes.size() - begin)
    fail(source, "a header of " + std::to_string(length) + " bytes does not fit into the " + std::to_string(bytes.size()) + " bytes");
  return {as_text(bytes.subspan(begin, length)), bytes.subspan(begin + length)};
}

std::string stored_descr(DType dtype) {
  for (const NativeType& type : native_types)
    if (type.dtype == dtype) return (bits(dtype) > 8 ? "<" : "|") + std::string(type.descr);
  return bits(dtype) == 16 ? "<u2" : "|u1";
}

std::string shape_literal(const Dims& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.rank() == 1 ? ",)" : ")");
}

Dims stored_shape(const Tensor& tensor) {
  Dims shape = tensor.shape();
  if (is_packed(tensor.dtype())) {
    if (shape.rank() == 0 || shape.at(-1) % 2 != 0)
      throw Error(ErrorCode::bad_value, "", "",
                  "cannot write npy: rows of " + std::string(name(tensor.dtype())) + " in " + to_string(shape) + " do not end at a byte");
    shape[shape.rank() - 1] /= 2;
  }
  return shape;
}

std::vector<std::byte> make_header(const Tensor& tensor) {
  std::string dict =
      "{'descr': '" + stored_descr(tensor.dtype()) + "', 'fortran_order': False, 'shape': " + shape_literal(stored_shape(tensor)) + ", }";
  const std::size_t fixed = magic.size() + 4;
  dict.append(boundary - (fixed + dict.size() + 1) % boundary, ' ');
  dict += '\n';
  std::vector<std::byte> header;
  append(header, as_bytes(magic));
  append(header, as_bytes(std::string_view("\x01\x00", 2)));
  append_le(header, static_cast<std::uint16_t>(dict.size()));
  append(header, as_bytes(dict));
  return header;
}

void write_to(const Tensor& tensor, const Sink& sink) {
  const Tensor dense = contiguous(tensor, "cannot write npy");
  sink(make_header(dense));
  sink(bytes_of(dense));
}

}  // namespace

std::optional<DType> npy_side_dtype(DType dtype) {
  const bool native = std::any_of(native_types.begin(), native_types.end(), [dtype](const NativeType& t) { return t.dtype == dtype; });
  return native ? std::nullopt : std::optional(dtype);
}

Tensor read_npy(const std::string& path, std::optional<DType> override, Access access) {
  const auto file = std::make_shared<const MappedFile>(MappedFile::open(path, access));
  return npy_from_bytes(file->bytes(), file, path, override);
}

Tensor npy_from_bytes(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner, const std::string& source,
                      std::optional<DType> override) {
  const Parts parts = split(bytes, source);
  const NpyHeader header = parse_npy_header(parts.header, source);
  const Descr descr = parse_descr(header.descr, source);
  const DType dtype = element_type(descr, override, source);

  const std::optional<std::uint64_t> count = checked_product(header.shape);
  std::uint64_t size = 0;
  if (!count || __builtin_mul_overflow(*count, descr.width, &size)) fail(source, "the shape overflows the count of bytes");
  if (size != parts.data.size())
    fail(source, "the header promises " + std::to_string(size) + " bytes of data, the file has " + std::to_string(parts.data.size()));

  Dims shape = to_dims(header.shape, source);
  if (is_packed(dtype)) {
    if (shape.rank() == 0 || (header.fortran_order && shape.rank() > 1))
      fail(ErrorCode::bad_dtype, source, std::string(name(dtype)) + " must lie along rows, two elements to a byte");
    if (__builtin_mul_overflow(shape.at(-1), std::int64_t{2}, &shape[shape.rank() - 1]))
      fail(source, "the shape overflows the count of elements");
  }
  return tensor_over(parts.data, owner, dtype, shape, header.fortran_order, source);
}

void write_npy(const std::string& path, const Tensor& tensor) {
  AtomicFile file(path);
  write_to(tensor, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

std::vector<std::byte> npy_bytes(const Tensor& tensor) {
  std::vector<std::byte> result;
  write_to(tensor, [&](std::span<const std::byte> bytes) { append(result, bytes); });
  return result;
}

}  // namespace dodona::io
