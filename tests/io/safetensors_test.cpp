#include "io/safetensors.h"

#include "io/atomic_file.h"
#include "tests/io/full_disk.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {

/// A file of the given header and data, the length put before them.
Buffer file_of(std::string_view header, std::size_t data_bytes = 0) {
  Buffer bytes;
  append_le(bytes, std::uint64_t{header.size()});
  append(bytes, as_bytes(header));
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return "\"" + std::string(name) + R"(":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) + R"(,"data_offsets":)" +
         std::string(offsets) + "}";
}

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return "{" + entry("t", dtype, shape, offsets) + "}";
}

SafetensorsFile parse(const Buffer& bytes) {
  return SafetensorsFile::from_bytes(bytes, {}, "test");
}

std::string rejects(const Buffer& bytes, const std::string& part) {
  return expect_error([&] { parse(bytes); }, ErrorCode::bad_file, part);
}

/// Reads every byte that the file offers.
void read_all(const Buffer& bytes) {
  const SafetensorsFile file = parse(bytes);
  for (const SafetensorsEntry& e : file.entries()) {
    survives([&] { values(file.tensor(e)); });
  }
}

Buffer small_file() {
  return safetensors_bytes(
      {{"w", counting(DType::bf16, {2, 3})}, {"b", counting(DType::f32, {3})}, {"q", counting(DType::f4_e2m1, {2, 2})}}, {{"k", "v"}});
}

}  // namespace

// ---- inputs that must be refused, each with a message of its own ----

TEST(SafetensorsBadInput, EmptyFile) {
  rejects({}, "the file is empty");
}
TEST(SafetensorsBadInput, FewerThanEightBytes) {
  rejects(buffer("1234567"), "the file has 7 bytes, too few for the 8 bytes of the header length");
}
TEST(SafetensorsBadInput, LengthOnly) {
  rejects(buffer(std::string("\x02\0\0\0\0\0\0\0", 8)), "a header of 2 bytes does not fit into the file of 8");
}
TEST(SafetensorsBadInput, LengthOfZero) {
  rejects(file_of(""), "the header is blank");
}
TEST(SafetensorsBadInput, LengthLargerThanTheFile) {
  Buffer bytes = file_of("{}");
  bytes[0] = std::byte{3};
  rejects(bytes, "a header of 3 bytes does not fit into the file of 10");
}
TEST(SafetensorsBadInput, HeaderOverTheLimit) {
  Buffer bytes;
  append_le(bytes, max_safetensors_header + 1);
  rejects(bytes, "a header of 100000001 bytes is over the limit of 100000000");
  bytes.clear();
  append_le(bytes, UINT64_MAX);
  rejects(bytes, "is over the limit");
}
TEST(SafetensorsBadInput, HeaderOfByteFF) {
  rejects(file_of("\xff"), "byte 0 of the header is not valid UTF-8");
}
TEST(SafetensorsBadInput, HeaderOfOneBrace) {
  rejects(file_of("{"), "header: line 1, column 2: syntax error");
}
TEST(SafetensorsBadInput, TruncatedHeader) {
  rejects(file_of(R"({"t":{"dtype":"F32","shape":[2)"), "header: line 1, column 31: syntax error");
}
TEST(SafetensorsBadInput, HeaderThatIsNoObject) {
  rejects(file_of("[]"), "the header begins with '[]', expected a JSON object");
  rejects(file_of("   "), "the header is blank");
  rejects(file_of("\xEF\xBB\xBF{}"), "expected a JSON object");
}
TEST(SafetensorsBadInput, TextAfterTheHeaderObject) {
  rejects(file_of("{}x"), "syntax error");
  rejects(file_of(std::string_view("{}\0\0", 4)), "unexpected NUL byte");
}
TEST(SafetensorsBadInput, TenEntriesSharingOneRange) {
  std::string header = "{";
  for (int i = 0; i < 10; ++i) header += (i ? "," : "") + entry("t" + std::to_string(i), "F32", "[2,2]", "[0,16]");
  rejects(file_of(header + "}", 16), "data_offsets [0, 16] overlap another tensor, which ends at 16");
}
TEST(SafetensorsBadInput, Hole) {
  rejects(file_of("{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[6,10]") + "}", 10),
          "tensor 'b': data_offsets [6, 10] leave a hole after byte 4");
  rejects(file_of(one("U8", "[4]", "[1,5]"), 5), "leave a hole after byte 0");
}
TEST(SafetensorsBadInput, OffsetsThatRunBackwards) {
  rejects(file_of(one("U8", "[4]", "[4,0]"), 4), "data_offsets [4, 0] run backwards");
}
TEST(SafetensorsBadInput, ExtraBytesAfterTheData) {
  rejects(file_of(one("F32", "[2,2]", "[0,16]"), 19), "3 bytes follow the last tensor");
}
TEST(SafetensorsBadInput, ExtraBytesWithoutAnyTensor) {
  rejects(file_of("{}", 1), "1 bytes follow the last tensor");
}
TEST(SafetensorsBadInput, TwoBytesMissing) {
  rejects(file_of(one("F32", "[2,2]", "[0,16]"), 14), "the tensors take 16 bytes of data, the file has only 14");
}
TEST(SafetensorsBadInput, OffsetsBeyondTheData) {
  rejects(file_of(one("U8", "[4096]", "[0,4096]"), 16), "the tensors take 4096 bytes of data, the file has only 16");
}
TEST(SafetensorsBadInput, ShapeThatDoesNotFitTheOffsets) {
  rejects(file_of(one("F32", "[2,3]", "[0,16]"), 16), "tensor 't': F32 [2, 3] takes 24 bytes, data_offsets span 16");
}
TEST(SafetensorsBadInput, ShapeProductOverflows) {
  rejects(file_of(one("F32", "[4294967296,4294967296]", "[0,16]"), 16), "shape [4294967296, 4294967296] overflows the count of elements");
}
TEST(SafetensorsBadInput, ShapeTimesWidthOverflows) {
  rejects(file_of(one("F32", "[4611686018427387904]", "[0,16]"), 16), "F32 [4611686018427387904] overflows the count of bits");
}
TEST(SafetensorsBadInput, SizesBeyond64Bits) {
  rejects(file_of(one("F32", "[9223372036854775808]", "[0,16]"), 16), "element 0 of field 'shape': expected a whole number of 64 bits");
  rejects(file_of(one("F32", "[4]", "[0,18446744073709551616]"), 16),
          "element 1 of field 'data_offsets': expected a whole number of 64 bits");
}
TEST(SafetensorsBadInput, F4WithAnOddCount) {
  rejects(file_of(one("F4", "[3]", "[0,2]"), 2), "F4 [3] takes 12 bits, no whole number of bytes");
}
TEST(SafetensorsBadInput, F6WithACountThatEndsWithinAByte) {
  rejects(file_of(one("F6_E2M3", "[3]", "[0,2]"), 2), "F6_E2M3 [3] takes 18 bits");
}
TEST(SafetensorsBadInput, F4WithTheWrongByteCount) {
  rejects(file_of(one("F4", "[2,2]", "[0,4]"), 4), "F4 [2, 2] takes 2 bytes, data_offsets span 4");
}
TEST(SafetensorsBadInput, DuplicateName) {
  rejects(file_of("{" + entry("t", "U8", "[2]", "[0,2]") + "," + entry("t", "U8", "[2]", "[2,4]") + "}", 4),
          "key 't' occurs more than once");
  rejects(file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "key 'a' occurs more than once");
  rejects(file_of(R"({"__metadata__":{"a":"1"},"__metadata__":{"b":"2"}})"), "key '__metadata__' occurs more than once");
  rejects(file_of(R"({"t":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4), "key 'dtype' occurs more than once");
  rejects(file_of(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4),
          "key 'data_offsets' occurs more than once");
}
TEST(SafetensorsBadInput, UnknownDtype) {
  rejects(file_of(one("Q4", "[4]", "[0,4]"), 4), "tensor 't': unknown dtype 'Q4'");
  rejects(file_of(one("f32", "[1]", "[0,4]"), 4), "unknown dtype 'f32'");
}
TEST(SafetensorsBadInput, MissingFields) {
  rejects(file_of(R"({"t":{"shape":[4],"data_offsets":[0,4]}})", 4), "tensor 't': field 'dtype' is missing");
  rejects(file_of(R"({"t":{"dtype":"U8","data_offsets":[0,4]}})", 4), "field 'shape' is missing");
  rejects(file_of(R"({"t":{"dtype":"U8","shape":[4]}})", 4), "field 'data_offsets' is missing");
}
TEST(SafetensorsBadInput, FieldsOfTheWrongKind) {
  rejects(file_of(R"({"t":3})"), "tensor 't': expected an object of dtype, shape and data_offsets");
  rejects(file_of(R"({"t":{"dtype":4,"shape":[4],"data_offsets":[0,4]}})", 4), "field 'dtype': expected a string, got the number 4");
  rejects(file_of(one("U8", "4", "[0,4]"), 4), "field 'shape': expected an array");
  rejects(file_of(one("U8", "[4.0]", "[0,4]"), 4), "element 0 of field 'shape': expected a whole number");
  rejects(file_of(one("U8", "[-4]", "[0,4]"), 4), "negative size in shape [-4]");
  rejects(file_of(one("U8", "[4]", "[0]"), 4), "1 data_offsets, expected begin and end");
  rejects(file_of(one("U8", "[4]", "[0,4,4]"), 4), "3 data_offsets");
  rejects(file_of(one("U8", "[4]", "[-4,0]"), 4), "negative data_offsets");
}
TEST(SafetensorsBadInput, MetadataThatIsNotStringToString) {
  rejects(file_of(R"({"__metadata__":[]})"), "__metadata__ is no object of strings");
  rejects(file_of(R"({"__metadata__":{"a":1}})"), "__metadata__ 'a' is no string");
}
TEST(SafetensorsBadInput, DepthBomb) {
  rejects(file_of("{\"a\":" + std::string(1'000'000, '[')), "nested deeper than 16");
}
TEST(SafetensorsBadInput, ValueBomb) {
  std::string header = "{\"t\":[0";
  for (int i = 0; i < 4'100'000; ++i) header += ",0";
  rejects(file_of(header + "]}"), "more than 4000000 values");
}
TEST(SafetensorsBadInput, GitLfsPointer) {
  rejects(buffer("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"), "this is a Git LFS pointer");
}
TEST(SafetensorsBadInput, HostileNamesAreShownHarmless) {
  const std::string text =
      rejects(file_of("{" + entry("\\u001b[2J" + std::string(500, 'x'), "Q4", "[4]", "[0,4]") + "}", 4), "tensor '\\x1b[2J");
  EXPECT_LT(text.size(), 300u);
}

TEST(SafetensorsBadInput, EveryTruncationIsAnError) {
  const Buffer bytes = small_file();
  ASSERT_NO_THROW(parse(bytes));
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(survives([&] { read_all({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}); })) << n;
}

TEST(SafetensorsBadInput, EveryFlippedBitGivesAFileOrAnError) {
  const Buffer bytes = small_file();
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Buffer changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    survives([&] { read_all(changed); });
  }
}

TEST(SafetensorsBadInput, MutatedFilesGiveAFileOrAnError) {
  const Buffer seed = small_file();
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) accepted += survives([&] { read_all(mutate(seed, random)); });
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 5'000);
}

// The length before the header is mended, so that the changes reach what lies behind it.
TEST(SafetensorsBadInput, MutatedHeadersGiveAFileOrAnError) {
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"}," + entry("a", "F32", "[1,2]", "[0,8]") + "," + entry("b", "F4", "[2,4]", "[8,12]") + "}";
  const Buffer seed = buffer(header);
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Buffer changed = mutate(seed, random);
    accepted += survives([&] { read_all(file_of(as_text(changed), 12)); });
  }
  EXPECT_GT(accepted, 20);
}

// ---- inputs that must be accepted ----

TEST(SafetensorsAccepts, NoTensors) {
  const Buffer nothing = file_of("{}");
  const SafetensorsFile file = parse(nothing);
  EXPECT_TRUE(file.entries().empty());
  EXPECT_TRUE(file.metadata().empty());
  const Buffer bytes = file_of(R"({"__metadata__":{"a":"b"}})");
  EXPECT_EQ(parse(bytes).metadata(), (Metadata{{"a", "b"}}));
}
TEST(SafetensorsAccepts, ShapeOfRankZero) {
  const Buffer bytes = file_of(one("F32", "[]", "[0,4]"), 4);
  EXPECT_EQ(parse(bytes).tensor("t").rank(), 0);
}
TEST(SafetensorsAccepts, DimensionOfZero) {
  const Buffer bytes = file_of(one("F32", "[2,0]", "[0,0]"));
  EXPECT_EQ(parse(bytes).tensor("t").elements(), 0);
}
TEST(SafetensorsAccepts, EmptyTensorsBetweenOthers) {
  const Buffer bytes = file_of(
      "{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[0]", "[2,2]") + "," + entry("c", "U8", "[1]", "[2,3]") + "}", 3);
  EXPECT_EQ(parse(bytes).tensor("c").as<std::uint8_t>()[0], 2);
}
TEST(SafetensorsAccepts, WhitespaceAroundTheHeader) {
  EXPECT_NO_THROW(parse(file_of("{}      ")));
  EXPECT_NO_THROW(parse(file_of(" \t\r\n{ }\n")));
}
TEST(SafetensorsAccepts, EntriesInAnyOrderOfOffsets) {
  const Buffer bytes = file_of("{" + entry("z", "U8", "[2]", "[2,4]") + "," + entry("a", "U8", "[2]", "[0,2]") + "}", 4);
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.entries()[0].name, "z");
  EXPECT_EQ(file.tensor("z").as<std::uint8_t>()[0], 2);
  EXPECT_EQ(file.tensor("a").as<std::uint8_t>()[0], 0);
}
TEST(SafetensorsAccepts, NamesThatLookLikePathsAreOnlyNames) {
  const Buffer bytes = file_of("{" + entry("../../etc/passwd", "U8", "[1]", "[0,1]") + "," + entry("", "U8", "[1]", "[1,2]") + "}", 2);
  const SafetensorsFile file = parse(bytes);
  EXPECT_TRUE(file.tensor("../../etc/passwd").defined());
  EXPECT_TRUE(file.tensor("").defined());
}
TEST(SafetensorsAccepts, UnknownFieldsOfAnEntry) {
  EXPECT_NO_THROW(parse(file_of(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":{"a":[1]}}})", 1)));
}
/// What a header says, or that it is refused.
std::optional<std::string> told_by(const std::string& header) {
  std::string told;
  const bool accepted = survives([&] {
    const SafetensorsFile file = parse(file_of(header, 26));
    for (const auto& [key, value] : file.metadata()) told += key + "=" + value + ";";
    for (const SafetensorsEntry& e : file.entries()) {
      told += e.name + " " + std::string(e.dtype_name) + " " + std::to_string(e.begin) + " " + std::to_string(e.end);
      for (const std::int64_t size : e.shape) told += " " + std::to_string(size);
      told += file.find(e.name) == &e ? ";" : "?";
    }
  });
  return accepted ? std::optional(told) : std::nullopt;
}
/// Headers of the usual form are read without a tree of JSON: nothing may be taken otherwise for that.
TEST(SafetensorsAccepts, TheSameWithAndWithoutFieldsThatNobodyKnows) {
  const Buffer seed = buffer("{" + entry("weight", "BF16", "[2, 3]", "[0,12]") + R"(,"__metadata__":{"format":"pt","\u00e9":""},)" +
                             entry("b\xc3\xa9", "F32", "[]", "[12,16]") + "," + entry("empty", "I8", "[0,7]", "[16,16]") + ", " +
                             entry("q", "U8", "[10]", "[16,26]") + "}");
  std::mt19937_64 random(3);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string plain(as_text(i == 0 ? seed : mutate(seed, random)));
    const std::size_t at = plain.find("\"dtype\"");
    if (at == std::string::npos) continue;
    std::string with_more = plain;
    with_more.insert(at, R"("note":[0],)");
    const auto told = told_by(plain);
    ASSERT_EQ(told, told_by(with_more)) << plain;
    ++(told ? accepted : refused);
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 500);
}

// ---- dtypes ----

struct TypeCase {
  const char* name;
  int bits;
  bool supported;
};
constexpr TypeCase type_cases[] = {
    {"BOOL", 8, true},         {"F4", 4, true},      {"F6_E2M3", 6, false}, {"F6_E3M2", 6, false}, {"U8", 8, true},
    {"I8", 8, true},           {"F8_E5M2", 8, true}, {"F8_E4M3", 8, true},  {"F8_E8M0", 8, true},  {"F8_E4M3FNUZ", 8, false},
    {"F8_E5M2FNUZ", 8, false}, {"I16", 16, true},    {"U16", 16, false},    {"F16", 16, true},     {"BF16", 16, true},
    {"I32", 32, true},         {"U32", 32, false},   {"F32", 32, true},     {"C64", 64, false},    {"F64", 64, true},
    {"I64", 64, true},         {"U64", 64, false},
};

TEST(SafetensorsDtypes, AllAreSizedAndThoseWithATensorAreRead) {
  for (const TypeCase& type : type_cases) {
    const int bytes = type.bits;  // of 8 elements
    Buffer file = file_of(one(type.name, "[2,4]", "[0," + std::to_string(bytes) + "]"), 0);
    file.resize(file.size() + static_cast<std::size_t>(bytes), std::byte{1});
    const SafetensorsFile parsed = parse(file);
    EXPECT_EQ(parsed.entries()[0].dtype_name, type.name);
    EXPECT_EQ(parsed.entries()[0].dtype.has_value(), type.supported) << type.name;
    if (type.supported) {
      const Tensor t = parsed.tensor("t");
      EXPECT_EQ(safetensors_name(t.dtype()), type.name);
      EXPECT_EQ(to_string(t.shape()), "[2, 4]");
      EXPECT_EQ(t.extent_bytes(), bytes);
    } else {
      expect_error([&] { parsed.tensor("t"); }, ErrorCode::unsupported, std::string("tensors of dtype ") + type.name + " cannot be read");
    }
  }
}

TEST(SafetensorsDtypes, EveryTypeOfTensorsIsWrittenUnderItsName) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor t = counting(dtype, {2, 4});
    const Buffer bytes = safetensors_bytes({{"t", t}});
    const SafetensorsFile file = parse(bytes);
    if (dtype == DType::i4) {
      EXPECT_EQ(file.entries()[0].dtype_name, "U8");
      EXPECT_EQ(file.entries()[0].shape, (std::vector<std::int64_t>{2, 2}));
      EXPECT_EQ(values(file.tensor("t")), values(t));
    } else {
      EXPECT_EQ(file.entries()[0].dtype_name, safetensors_name(dtype));
      expect_same(file.tensor("t"), t);
    }
  }
}

TEST(SafetensorsDtypes, BooleansOtherThanZeroAndOneAreRefused) {
  Buffer bytes = file_of(one("BOOL", "[3]", "[0,3]"), 3);
  expect_error([&] { parse(bytes).tensor("t"); }, ErrorCode::bad_file,
               "tensor 't': element 2 is the byte 2, expected the booleans 0 and 1");
  bytes.back() = std::byte{1};
  EXPECT_NO_THROW(parse(bytes).tensor("t"));
}

TEST(SafetensorsTensor, MoreDimensionsThanTensorsHaveAreUnsupported) {
  const Buffer bytes = file_of(one("U8", "[1,1,1,1,1,1,2]", "[0,2]"), 2);
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.entries()[0].shape.size(), 7u);
  expect_error([&] { file.tensor("t"); }, ErrorCode::unsupported, "7 dimensions");
}

TEST(SafetensorsTensor, EmptyTensorsOfImpossibleShapeAreErrors) {
  const Buffer bytes = file_of(one("U8", "[0,9223372036854775807,9223372036854775807]", "[0,0]"));
  const SafetensorsFile file = parse(bytes);
  EXPECT_FALSE(survives([&] { file.tensor("t"); }));
}

TEST(SafetensorsTensor, UnknownNamesListWhatThereIs) {
  const Buffer bytes = small_file();
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.find("W"), nullptr);
  expect_error([&] { file.tensor("W"); }, ErrorCode::missing_argument, "test: no tensor 'W' among its 3: 'b', 'w', 'q'");
}

TEST(SafetensorsTensor, IsAReadOnlyViewThatOutlivesTheFileObject) {
  const TempFolder folder;
  const std::string path = folder.file("t.safetensors");
  const Tensor original = counting(DType::f32, {4, 4});
  write_safetensors(path, {{"t", original}});
  Tensor t;
  const std::byte* in_file = nullptr;
  {
    const SafetensorsFile file = SafetensorsFile::open(path);
    in_file = file.bytes(*file.find("t")).data();
    t = file.tensor("t");
  }
  EXPECT_EQ(t.data(), in_file);
  EXPECT_FALSE(t.writable());
  EXPECT_TRUE(t.owner());
  expect_same(t, original);
  // A map of a file that is written anew keeps the old values.
  write_safetensors(path, {{"t", Tensor(DType::f32, {4, 4})}});
  expect_same(t, original);
}

TEST(SafetensorsTensor, UnalignedDataAreCopied) {
  const std::string header = one("F64", "[2]", "[0,16]");
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const Buffer bytes = file_of(header + std::string(pad, ' '), 16);
    const SafetensorsFile file = parse(bytes);
    const Tensor t = file.tensor("t");
    const bool aligned = (reinterpret_cast<std::uintptr_t>(file.bytes(file.entries()[0]).data()) % 8) == 0;
    EXPECT_EQ(t.data() == file.bytes(file.entries()[0]).data(), aligned);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 8, 0u);
    EXPECT_FALSE(t.writable());
    EXPECT_EQ(values(t), Buffer(bytes.end() - 16, bytes.end()));
  }
}

TEST(SafetensorsTensor, EntriesOfOtherFilesAreRefused) {
  const Buffer bytes = small_file();
  const SafetensorsFile file = parse(bytes);
  SafetensorsEntry foreign = file.entries()[0];
  foreign.end = 1'000'000;
  expect_error([&] { file.tensor(foreign); }, ErrorCode::bad_value, "not an entry of this file");
}

TEST(SafetensorsFile, MappingAndReadingGiveTheSame) {
  const TempFolder folder;
  const std::string path = folder.file("t.safetensors");
  write_file(path, small_file());
  const SafetensorsFile mapped = SafetensorsFile::open(path);
  const SafetensorsFile read = SafetensorsFile::open(path, Access::read);
  ASSERT_EQ(mapped.entries().size(), 3u);
  for (const SafetensorsEntry& e : mapped.entries()) expect_same(mapped.tensor(e), read.tensor(e.name));
  EXPECT_EQ(mapped.metadata(), read.metadata());
}

TEST(SafetensorsFile, ErrorsNameTheFile) {
  const TempFolder folder;
  const std::string path = folder.file("bad.safetensors");
  write_raw(path, "");
  expect_error([&] { SafetensorsFile::open(path); }, ErrorCode::bad_file, path + ": the file is empty");
  expect_error([&] { SafetensorsFile::open(folder.path()); }, ErrorCode::bad_file, "this is a directory");
}

// ---- writing ----

TEST(SafetensorsWriter, WritesTheseBytes) {
  const Buffer bytes = safetensors_bytes({{"b", counting(DType::u8, {3})}, {"a", counting(DType::f32, {1})}}, {{"y", "2"}, {"x", "\"1\""}});
  const std::string header = R"({"__metadata__":{"x":"\"1\"","y":"2"},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  ASSERT_EQ(header.size(), 0x8fu);
  EXPECT_EQ(as_text(bytes), std::string("\x90\0\0\0\0\0\0\0", 8) + header + " " + std::string("\0\1\2\3\0\1\2", 7));
}

TEST(SafetensorsWriter, SortsByWidthThenName) {
  const Buffer bytes = safetensors_bytes({{"a", counting(DType::boolean, {2})},
                                          {"b", counting(DType::i64, {1})},
                                          {"z", counting(DType::f64, {1})},
                                          {"d", counting(DType::f16, {1})},
                                          {"c", counting(DType::f16, {1})},
                                          {"e", counting(DType::f32, {1})}});
  const SafetensorsFile file = parse(bytes);
  std::string order;
  for (const SafetensorsEntry& e : file.entries()) order += e.name;
  EXPECT_EQ(order, "bzecda");
}

TEST(SafetensorsWriter, EqualContentsGiveEqualBytes) {
  const Tensor a = counting(DType::f32, {2, 3});
  const Tensor b = counting(DType::f32, {3});
  EXPECT_EQ(safetensors_bytes({{"a", a}, {"b", b}}),
            safetensors_bytes({{"b", b.clone()}, {"a", a.transpose(0, 1).clone().transpose(0, 1)}}));
}

TEST(SafetensorsWriter, DataAreAlignedForTheirTypes) {
  NamedTensors tensors;
  for (int i = 0; i < dtype_count; ++i) tensors.emplace_back("t" + std::to_string(i), counting(static_cast<DType>(i), {3, 2}));
  const Buffer bytes = safetensors_bytes(tensors);
  const SafetensorsFile file = parse(bytes);
  for (const SafetensorsEntry& e : file.entries()) {
    const auto at = file.bytes(e).data() - bytes.data();
    EXPECT_EQ(at % std::max(bits(*e.dtype) / 8, 1), 0) << e.name;
  }
}

TEST(SafetensorsWriter, StridedTensorsAreWrittenRowMajor) {
  const Tensor wide = counting(DType::i32, {4, 6});
  const Tensor packed = counting(DType::f4_e2m1, {4, 8}).slice(1, 2, 6);
  const NamedTensors tensors{{"transposed", wide.transpose(0, 1)}, {"slice", wide.slice(1, 1, 4)}, {"packed", packed}};
  const Buffer bytes = safetensors_bytes(tensors);
  for (const auto& [name, tensor] : tensors) expect_same(parse(bytes).tensor(name), tensor);
}

TEST(SafetensorsWriter, FileAndMemoryAgree) {
  const TempFolder folder;
  const NamedTensors tensors{{"w", counting(DType::bf16, {5, 3})}, {"e", Tensor(DType::f32, {0, 2})}, {"s", counting(DType::i64, {})}};
  write_safetensors(folder.file("t"), tensors, {{"k", "é"}});
  EXPECT_EQ(read_raw(folder.file("t")), as_text(safetensors_bytes(tensors, {{"k", "é"}})));
  EXPECT_EQ(folder.listing(), std::vector<std::string>{"t"});
  const SafetensorsFile file = SafetensorsFile::open(folder.file("t"));
  for (const auto& [name, tensor] : tensors) expect_same(file.tensor(name), tensor);
}

TEST(SafetensorsWriter, NamesOfAllKindsComeBack) {
  NamedTensors tensors;
  for (const std::string name : {"", "a b", "\"quoted\\", "line\nbreak", "é漢😀", "../../x", "\x01\x7f"})
    tensors.emplace_back(name, counting(DType::u8, {1}));
  const Buffer bytes = safetensors_bytes(tensors);
  for (const auto& [name, tensor] : tensors) EXPECT_NE(parse(bytes).find(name), nullptr) << name;
}

TEST(SafetensorsWriter, RefusesWhatNoReaderWouldAccept) {
  const Tensor t = counting(DType::u8, {2});
  const auto refuses = [](const NamedTensors& tensors, const Metadata& metadata, const std::string& part) {
    expect_error([&] { safetensors_bytes(tensors, metadata); }, ErrorCode::bad_value, part);
  };
  refuses({{"t", t}, {"u", t}, {"t", t}}, {}, "two tensors are called 't'");
  refuses({{"t", t}, {"t", counting(DType::f32, {2})}}, {}, "two tensors are called 't'");
  refuses({{"t", Tensor()}}, {}, "tensor 't' is undefined");
  refuses({{"__metadata__", t}}, {}, "cannot be called __metadata__");
  refuses({{"\xff", t}}, {}, "the name '\\xff' is not valid UTF-8");
  refuses({{"t", t}}, {{"k", "\xff"}}, "UTF-8");
  refuses({{"t", t}}, {{"\xff", "v"}}, "UTF-8");
  refuses({{"t", Tensor(DType::f4_e2m1, {3})}}, {}, "an odd number of f4_e2m1");
  refuses({{"t", Tensor(DType::i4, {2, 3})}}, {}, "an odd number of i4 in a row");
}

TEST(SafetensorsWriter, RefusesAHeaderOverTheLimit) {
  const TempFolder folder;
  const std::string filler(max_safetensors_header, 'x');
  expect_error([&] { write_safetensors(folder.file("t"), {}, {{"k", filler}}); }, ErrorCode::bad_value, "is over the limit of 100000000");
  EXPECT_TRUE(folder.listing().empty());
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenTheDiskIsFull) {
  const TempFolder folder;
  write_safetensors(folder.file("t"), {{"t", counting(DType::u8, {4})}});
  const std::string before = read_raw(folder.file("t"));
  {
    const FullDisk limit(10'000);
    expect_error([&] { write_safetensors(folder.file("t"), {{"t", Tensor(DType::u8, {100'000})}}); }, ErrorCode::bad_file, "cannot write");
  }
  EXPECT_EQ(folder.listing(), std::vector<std::string>{"t"});
  EXPECT_EQ(read_raw(folder.file("t")), before);
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenATensorCannotBeWritten) {
  const TempFolder folder;
  const Tensor columns = counting(DType::f4_e2m1, {4, 4}).transpose(0, 1);
  EXPECT_FALSE(survives([&] { write_safetensors(folder.file("t"), {{"a", counting(DType::f32, {2})}, {"t", columns}}); }));
  EXPECT_TRUE(folder.listing().empty());
}

TEST(SafetensorsWriter, ThousandsOfTensorsRoundTrip) {
  NamedTensors tensors;
  for (int i = 0; i < 20'000; ++i)
    tensors.emplace_back("layer." + std::to_string(i * 7919 % 20'000) + ".weight", counting(DType::u8, {i % 3}));
  const Buffer bytes = safetensors_bytes(tensors);
  const SafetensorsFile file = parse(bytes);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); i += 997) expect_same(file.tensor(tensors[i].first), tensors[i].second);
}
