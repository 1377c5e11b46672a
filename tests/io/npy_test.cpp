#include "io/npy.h"

#include "io/atomic_file.h"
#include "tests/io/full_disk.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {

/// A file of version 1.0 (or another) with that dict as it stands.
Buffer file_of(std::string_view dict, std::size_t data_bytes = 0, int major = 1) {
  Buffer bytes = buffer("\x93NUMPY");
  bytes.push_back(static_cast<std::byte>(major));
  bytes.push_back(std::byte{0});
  if (major == 1) {
    append_le(bytes, static_cast<std::uint16_t>(dict.size()));
  } else {
    append_le(bytes, static_cast<std::uint32_t>(dict.size()));
  }
  append(bytes, as_bytes(dict));
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::string dict(std::string_view descr, std::string_view shape, bool fortran = false) {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + std::string(shape) +
         ", }\n";
}

Tensor parse(const Buffer& bytes, std::optional<DType> override = std::nullopt) {
  return npy_from_bytes(bytes, {}, "test", override);
}

void rejects(const Buffer& bytes, const std::string& part, ErrorCode code = ErrorCode::bad_file,
             std::optional<DType> override = std::nullopt) {
  expect_error([&] { parse(bytes, override); }, code, part);
}

Buffer small_file() {
  return npy_bytes(counting(DType::f32, {2, 3}));
}

}  // namespace

TEST(NpyReader, ReadsEveryNativeType) {
  const std::pair<const char*, DType> cases[] = {{"<f8", DType::f64}, {"<f4", DType::f32}, {"<f2", DType::f16}, {"<i8", DType::i64},
                                                 {"<i4", DType::i32}, {"<i2", DType::i16}, {"|i1", DType::i8},  {"|u1", DType::u8},
                                                 {"=f4", DType::f32}, {"<u1", DType::u8}};
  for (const auto& [descr, dtype] : cases) {
    const auto size = static_cast<std::size_t>(bytes_for(dtype, 6));
    const Buffer bytes = file_of(dict(descr, "(2, 3)"), size);
    const Tensor t = parse(bytes);
    EXPECT_EQ(name(t.dtype()), name(dtype)) << descr;
    expect_same(t, counting(dtype, {2, 3}));
    EXPECT_FALSE(t.writable());
  }
}

TEST(NpyReader, ReadsAllThreeVersions) {
  for (const int major : {1, 2, 3}) {
    const Buffer bytes = file_of(dict("|u1", "(4,)"), 4, major);
    expect_same(parse(bytes), counting(DType::u8, {4}));
  }
}

TEST(NpyReader, ReadsTheDictInAnyOrderAndSpelling) {
  for (const char* text :
       {"{'shape': (2, 3), 'fortran_order': False, 'descr': '|u1'}", "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(2,3)}",
        " { 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , } \n",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2L, 3L)}"}) {
    const Buffer bytes = file_of(text, 6);
    expect_same(parse(bytes), counting(DType::u8, {2, 3}));
  }
}

TEST(NpyReader, ShapesOfRankZeroAndWithZero) {
  const Buffer scalar = file_of(dict("<f4", "()"), 4);
  EXPECT_EQ(parse(scalar).rank(), 0);
  const Buffer empty = file_of(dict("<f4", "(0, 5)"));
  EXPECT_EQ(to_string(parse(empty).shape()), "[0, 5]");
}

TEST(NpyReader, FortranOrderGivesColumnMajorStrides) {
  const Buffer bytes = file_of(dict("|u1", "(2, 3)", true), 6);
  const Tensor t = parse(bytes);
  EXPECT_EQ(to_string(t.strides()), "[1, 2]");
  EXPECT_EQ(values(t), (Buffer{std::byte{0}, std::byte{2}, std::byte{4}, std::byte{1}, std::byte{3}, std::byte{5}}));
  const Buffer wide = file_of(dict("<f4", "(2, 3, 4)", true), 96);
  EXPECT_EQ(to_string(parse(wide).strides()), "[1, 2, 6]");
}

TEST(NpyReader, OverrideGivesRawBitsTheirType) {
  const Buffer u2 = file_of(dict("<u2", "(2, 3)"), 12);
  expect_same(parse(u2, DType::bf16), counting(DType::bf16, {2, 3}));
  expect_same(parse(u2, DType::f16), counting(DType::f16, {2, 3}));
  expect_same(parse(u2, DType::i16), counting(DType::i16, {2, 3}));
  const Buffer v2 = file_of(dict("|V2", "(2, 3)"), 12);
  expect_same(parse(v2, DType::bf16), counting(DType::bf16, {2, 3}));
  const Buffer u1 = file_of(dict("|u1", "(2, 3)"), 6);
  expect_same(parse(u1, DType::f8_e4m3), counting(DType::f8_e4m3, {2, 3}));
  expect_same(parse(u1, DType::u8), counting(DType::u8, {2, 3}));
  EXPECT_EQ(to_string(parse(u1, DType::f4_e2m1).shape()), "[2, 6]");
  EXPECT_EQ(to_string(parse(u1, DType::i4).shape()), "[2, 6]");
}

TEST(NpyReader, OverrideOfTheTypeThatDescrSaysIsFine) {
  const Buffer bytes = small_file();
  expect_same(parse(bytes, DType::f32), counting(DType::f32, {2, 3}));
}

TEST(NpyReader, OverrideMustFitDescr) {
  rejects(file_of(dict("<u2", "(2,)"), 4), "descr '<u2' cannot hold f32", ErrorCode::bad_dtype, DType::f32);
  rejects(file_of(dict("<f2", "(2,)"), 4), "descr '<f2' cannot hold bf16", ErrorCode::bad_dtype, DType::bf16);
  rejects(file_of(dict("|b1", "(2,)"), 2), "descr '|b1' cannot hold u8", ErrorCode::bad_dtype, DType::u8);
  rejects(file_of(dict("|u1", "()"), 1), "f4_e2m1 must lie along rows", ErrorCode::bad_dtype, DType::f4_e2m1);
  rejects(file_of(dict("|u1", "(2, 2)", true), 4), "i4 must lie along rows", ErrorCode::bad_dtype, DType::i4);
}

TEST(NpyReader, UnsignedTypesAskForTheDtype) {
  for (const char* descr : {"<u2", "|V2"})
    rejects(file_of(dict(descr, "(2,)"), 4), "give the dtype that its elements stand for", ErrorCode::unsupported);
  rejects(file_of(dict("<u4", "(1,)"), 4), "give the dtype", ErrorCode::unsupported);
}

TEST(NpyReader, WhatNumPyHasAndTensorsHaveNot) {
  const auto unsupported = [](const Buffer& bytes, const std::string& part) { rejects(bytes, part, ErrorCode::unsupported); };
  unsupported(file_of(dict(">f4", "(1,)"), 4), "big-endian numbers cannot be read");
  unsupported(file_of(dict("|O", "(1,)"), 8), "pickled Python objects are never read");
  unsupported(file_of(dict("<c8", "(1,)"), 8), "descr '<c8' is no type of tensors here");
  unsupported(file_of(dict("<U3", "(1,)"), 12), "no type of tensors here");
  unsupported(file_of(dict("<M8[ns]", "(1,)"), 8), "dates cannot be read");
  unsupported(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4), "arrays of structures cannot be read");
  unsupported(file_of(dict("|u1", "(1, 1, 1, 1, 1, 1, 2)"), 2), "7 dimensions");
}

TEST(NpyReader, UnalignedDataAreCopied) {
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const Buffer bytes = file_of(dict("<f8", "(2,)") + std::string(pad, ' '), 16);
    const Tensor t = parse(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 8, 0u);
    expect_same(t, counting(DType::f64, {2}));
  }
}

TEST(NpyReader, TensorsOutliveTheReader) {
  const TempFolder folder;
  write_npy(folder.file("t.npy"), counting(DType::f32, {3, 3}));
  const Tensor t = read_npy(folder.file("t.npy"));
  write_npy(folder.file("t.npy"), Tensor(DType::f32, {3, 3}));
  EXPECT_TRUE(t.owner());
  expect_same(t, counting(DType::f32, {3, 3}));
}

TEST(NpyBadInput, BeginningOfTheFile) {
  rejects({}, "does not begin with \\x93NUMPY");
  rejects(buffer("PK\x03\x04"), "does not begin with");
  rejects(buffer("\x93NUMPY"), "ends within the version");
  rejects(buffer(std::string("\x93NUMPY\x04\0\0\0\0\0", 12)), "version 4.0, expected 1.0, 2.0 or 3.0");
  rejects(buffer(std::string("\x93NUMPY\x01\x01\0\0", 10)), "version 1.1");
  rejects(buffer(std::string("\x93NUMPY\x01\0\x10", 9)), "ends within the header length");
  rejects(buffer(std::string("\x93NUMPY\x01\0\x10\0", 10)), "a header of 16 bytes does not fit into the 10 bytes");
  rejects(buffer("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"), "Git LFS pointer");
}

TEST(NpyBadInput, HeaderOverTheLimit) {
  rejects(file_of(dict("|u1", "(1,)") + std::string(10'000, ' '), 1), "is over the limit of 10000");
  rejects(file_of("", 0, 2), "expected a dict");
  Buffer bytes = file_of(dict("|u1", "(1,)"), 1, 2);
  bytes[11] = std::byte{0xFF};
  rejects(bytes, "is over the limit of 10000");
}

TEST(NpyBadInput, DictsThatAreNotTheThreeKeys) {
  rejects(file_of("{'fortran_order': False, 'shape': (1,)}", 1), "key 'descr' is missing");
  rejects(file_of("{'descr': '|u1', 'shape': (1,)}", 1), "key 'fortran_order' is missing");
  rejects(file_of("{'descr': '|u1', 'fortran_order': False}", 1), "key 'shape' is missing");
  rejects(file_of("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", 1), "key 'descr' occurs twice");
  rejects(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'extra': 1}", 1), "unexpected key 'extra'");
  rejects(file_of("{}", 1), "key 'descr' is missing");
}

TEST(NpyBadInput, Syntax) {
  rejects(file_of("", 1), "header, column 1: expected a dict");
  rejects(file_of("[1]", 1), "expected a dict");
  rejects(file_of("{'descr' '|u1'}", 1), "column 10: expected ':'");
  rejects(file_of("{'descr': '|u1' 'shape': (1,)}", 1), "expected ',' or '}'");
  rejects(file_of("{descr: '|u1'}", 1), "expected a key in quotes");
  rejects(file_of("{'descr", 1), "a string does not end");
  rejects(file_of("{'de\\x73cr': '|u1'}", 1), "escapes");
  rejects(file_of("{'descr': 5, }", 1), "expected descr in quotes");
  rejects(file_of("{'descr': '|u1', 'fortran_order': 0, }", 1), "expected True or False");
  rejects(file_of(dict("|u1", "(1,)") + "x", 1), "unexpected text after the dict");
  rejects(file_of("{'descr': '|u1', 'fortran_order': __import__('os'), }", 1), "expected True or False");
}

TEST(NpyBadInput, Shapes) {
  rejects(file_of(dict("|u1", "(1)"), 1), "(n) is a number");
  rejects(file_of(dict("|u1", "1"), 1), "expected a tuple");
  rejects(file_of(dict("|u1", "[1]"), 1), "expected a tuple");
  rejects(file_of(dict("|u1", "(-1,)"), 1), "negative size");
  rejects(file_of(dict("|u1", "(1.0,)"), 1), "expected ',' or ')'");
  rejects(file_of(dict("|u1", "(,)"), 1), "expected a size");
  rejects(file_of(dict("|u1", "(9223372036854775808,)"), 1), "does not fit 64 bits");
  rejects(file_of(dict("|u1", "(4294967296, 4294967296)"), 1), "the shape overflows the count of bytes");
  rejects(file_of(dict("<f8", "(4611686018427387904,)"), 1), "the shape overflows the count of bytes");
  EXPECT_FALSE(survives([] { parse(file_of(dict("|u1", "(0, 9223372036854775807, 9223372036854775807)"))); }));
  EXPECT_FALSE(survives([] { parse(file_of(dict("|u1", "(0, 9223372036854775807)")), DType::i4); }));
}

TEST(NpyBadInput, Descr) {
  for (const char* descr : {"", "f4", "<", "<f", "<f-4", "<f4x", "<f99999999999", "<q4", "4f<"})
    rejects(file_of(dict(descr, "(1,)"), 4), "descr '");
}

TEST(NpyBadInput, MissingAndTrailingBytes) {
  rejects(file_of(dict("<f4", "(2, 3)"), 23), "the header promises 24 bytes of data, the file has 23");
  rejects(file_of(dict("<f4", "(2, 3)"), 25), "the header promises 24 bytes of data, the file has 25");
}

TEST(NpyBadInput, BooleansOtherThanZeroAndOne) {
  rejects(file_of(dict("|b1", "(3,)"), 3), "element 2 is the byte 2, expected the booleans 0 and 1");
}

TEST(NpyBadInput, ErrorsNameTheFile) {
  const TempFolder folder;
  write_raw(folder.file("t.npy"), "nonsense");
  expect_error([&] { read_npy(folder.file("t.npy")); }, ErrorCode::bad_file, folder.file("t.npy") + ": does not begin with");
}

TEST(NpyBadInput, EveryTruncationIsAnError) {
  const Buffer bytes = small_file();
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(survives([&] { parse({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}); })) << n;
}

TEST(NpyBadInput, MutatedFilesGiveATensorOrAnError) {
  const Buffer seed = file_of(dict("<f4", "(2, 3)", true), 24);
  std::mt19937_64 random(4);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Buffer bytes = mutate(seed, random);
    accepted += survives([&] { values(parse(bytes)); });
    survives([&] { values(parse(bytes, DType::f4_e2m1)); });
  }
  EXPECT_GT(accepted, 100);
}

TEST(NpyWriter, WritesTheBytesThatNumPyWrites) {
  const Buffer bytes = npy_bytes(counting(DType::f32, {2, 1}));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  std::string expected = std::string("\x93NUMPY\x01\0\x76\0", 10) + header;
  expected += std::string(127 - expected.size(), ' ') + "\n" + std::string("\0\1\2\3\4\5\6\7", 8);
  EXPECT_EQ(as_text(bytes), expected);
}

TEST(NpyWriter, EveryTypeComesBackWithItsSideDtype) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor t = counting(dtype, {3, 4});
    const Buffer bytes = npy_bytes(t);
    const std::optional<DType> side = npy_side_dtype(dtype);
    expect_same(parse(bytes, side), t);
    const auto text = std::string(as_text(bytes));
    EXPECT_EQ(text.find("'|V"), std::string::npos);
    if (side) {
      EXPECT_EQ(*side, dtype);
      EXPECT_NE(text.find(bits(dtype) == 16 ? "'<u2'" : "'|u1'"), std::string::npos) << name(dtype);
    } else {
      EXPECT_EQ(name(parse(bytes).dtype()), name(dtype));
    }
  }
}

TEST(NpyWriter, ShapesOfEveryRankStartOnABoundary) {
  Dims shape;
  for (int rank = 0; rank <= max_rank; ++rank) {
    const Tensor t = counting(DType::i16, shape);
    const Buffer bytes = npy_bytes(t);
    EXPECT_EQ((bytes.size() - static_cast<std::size_t>(t.elements() * 2)) % 64, 0u);
    expect_same(parse(bytes), t);
    if (rank < max_rank) shape.push_back(rank == 1 ? 1 : 2);
  }
}

TEST(NpyWriter, StridedTensorsAreWrittenRowMajor) {
  const Tensor t = counting(DType::i32, {4, 6}).transpose(0, 1).slice(0, 1, 4);
  const Buffer bytes = npy_bytes(t);
  EXPECT_TRUE(parse(bytes).contiguous());
  expect_same(parse(bytes), t);
}

TEST(NpyWriter, RefusesWhatCannotBeWritten) {
  expect_error([] { npy_bytes(Tensor()); }, ErrorCode::bad_value, "undefined");
  expect_error([] { npy_bytes(Tensor(DType::i4, {2, 3})); }, ErrorCode::bad_value, "do not end at a byte");
}

TEST(NpyWriter, LeavesNothingBehindOnFailure) {
  const TempFolder folder;
  {
    const FullDisk limit(10'000);
    expect_error([&] { write_npy(folder.file("t"), Tensor(DType::u8, {100'000})); }, ErrorCode::bad_file, "cannot write");
  }
  EXPECT_FALSE(survives([&] { write_npy(folder.file("t"), Tensor(DType::i4, {2, 3})); }));
  EXPECT_TRUE(folder.listing().empty());
}
