#include "io/npz.h"

#include <zlib.h>

#include "io/npy.h"
#include "tests/io/full_disk.h"
#include "tests/io/helpers.h"
#include "tests/io/numpy_sample.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {

Buffer deflated(const Buffer& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  Buffer out(deflateBound(&stream, bytes.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A member, every field of which can be made to lie.
struct Member {
  std::string name;
  Buffer data;  // as it lies in the archive
  std::uint16_t method = 0;
  std::uint32_t crc = 0, compressed = 0, expanded = 0;
  std::uint16_t flags = 0;
  std::string local_name = {};
  std::uint16_t local_method = 0;
  std::int64_t offset_error = 0;
};

Member member(const std::string& name, const Buffer& bytes, bool deflate = false) {
  Member m;
  m.name = m.local_name = name;
  m.data = deflate ? deflated(bytes) : bytes;
  m.method = m.local_method = deflate ? 8 : 0;
  m.crc = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  m.compressed = static_cast<std::uint32_t>(m.data.size());
  m.expanded = static_cast<std::uint32_t>(bytes.size());
  return m;
}

void append_member(Buffer& out, const Member& m, std::uint16_t method, const std::string& name) {
  append_le(out, std::uint16_t{20});
  append_le(out, m.flags);
  append_le(out, method);
  append_le(out, std::uint32_t{0});
  append_le(out, m.crc);
  append_le(out, m.compressed);
  append_le(out, m.expanded);
  append_le(out, static_cast<std::uint16_t>(name.size()));
  append_le(out, std::uint16_t{0});
}

Buffer archive(const std::vector<Member>& members, const std::string& comment = "") {
  Buffer out;
  Buffer directory;
  for (const Member& m : members) {
    append_le(directory, std::uint32_t{0x02014b50});
    append_le(directory, std::uint16_t{20});
    append_member(directory, m, m.method, m.name);
    directory.resize(directory.size() + 10);
    append_le(directory, static_cast<std::uint32_t>(static_cast<std::int64_t>(out.size()) + m.offset_error));
    append(directory, as_bytes(m.name));
    append_le(out, std::uint32_t{0x04034b50});
    append_member(out, m, m.local_method, m.local_name);
    append(out, as_bytes(m.local_name));
    append(out, m.data);
  }
  const auto begin = static_cast<std::uint32_t>(out.size());
  append(out, directory);
  append_le(out, std::uint32_t{0x06054b50});
  append_le(out, std::uint32_t{0});
  append_le(out, static_cast<std::uint16_t>(members.size()));
  append_le(out, static_cast<std::uint16_t>(members.size()));
  append_le(out, static_cast<std::uint32_t>(directory.size()));
  append_le(out, begin);
  append_le(out, static_cast<std::uint16_t>(comment.size()));
  append(out, as_bytes(comment));
  return out;
}

Buffer npy(std::int64_t n = 6) {
  return npy_bytes(counting(DType::u8, {n}));
}

void read_all(const Buffer& bytes) {
  const NpzFile file = NpzFile::from_bytes(bytes, {}, "test");
  for (const std::string& name : file.names()) values(file.tensor(name));
}

void rejects(const Buffer& bytes, const std::string& part, ErrorCode code = ErrorCode::bad_file) {
  expect_error([&] { read_all(bytes); }, code, part);
}

}  // namespace

TEST(NpzReader, ReadsWhatNumPyWrites) {
  Buffer bytes;
  for (const unsigned char c : numpy_sample) bytes.push_back(static_cast<std::byte>(c));
  const NpzFile file = NpzFile::from_bytes(bytes);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  const Tensor a = file.tensor("a");
  ASSERT_EQ(a.elements(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a.as<float>()[i], static_cast<float>(i));
  expect_same(file.tensor("b"), Tensor(DType::i16, {40}));
}

TEST(NpzReader, StoredAndDeflatedMembers) {
  const Buffer bytes =
      archive({member("s.npy", npy()), member("d.npy", npy(100'000), true), member("notes.txt", buffer("hello"))}, "a comment");
  const NpzFile file = NpzFile::from_bytes(bytes);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"s", "d"}));
  expect_same(file.tensor("s"), counting(DType::u8, {6}));
  expect_same(file.tensor("d"), counting(DType::u8, {100'000}));
  EXPECT_FALSE(file.tensor("d").writable());
}

TEST(NpzReader, TensorsOutliveTheArchive) {
  const TempFolder folder;
  write_npz(folder.file("t.npz"), {{"a", counting(DType::u8, {5})}});
  Tensor t = NpzFile::open(folder.file("t.npz")).tensor("a");
  expect_same(t, counting(DType::u8, {5}));
}

TEST(NpzReader, EmptyArchive) {
  const Buffer bytes = archive({});
  EXPECT_TRUE(NpzFile::from_bytes(bytes).names().empty());
}

TEST(NpzReader, UnknownNames) {
  const Buffer bytes = archive({member("a.npy", npy())});
  expect_error([&] { NpzFile::from_bytes(bytes, {}, "test").tensor("b"); }, ErrorCode::missing_argument, "test: no array 'b' among its 1");
}

TEST(NpzReader, ErrorsInAMemberNameIt) {
  const Buffer bytes = archive({member("a.npy", buffer("nonsense"))});
  rejects(bytes, "test: 'a.npy': does not begin with");
}

TEST(NpzBadInput, NoArchive) {
  rejects({}, "does not begin as a zip archive");
  rejects(npy(), "does not begin as a zip archive");
  rejects(buffer("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"), "Git LFS pointer");
  Buffer bytes = archive({member("a.npy", npy())});
  bytes.pop_back();
  rejects(bytes, "no end-of-directory record");
}

TEST(NpzBadInput, BytesBeforeOrAfterTheArchive) {
  Buffer bytes = archive({member("a.npy", npy())});
  bytes.push_back(std::byte{0});
  rejects(bytes, "no end-of-directory record");
  bytes.pop_back();
  const Buffer again = bytes;
  bytes.insert(bytes.begin(), again.begin(), again.begin() + 10);
  rejects(bytes, "the directory does not end where the end-of-directory record begins");
}

TEST(NpzBadInput, Checksum) {
  Member m = member("a.npy", npy());
  m.crc ^= 1;
  rejects(archive({m}), "member 'a.npy': the checksum does not match");
  m = member("a.npy", npy(), true);
  m.crc ^= 1;
  rejects(archive({m}), "the checksum does not match");
}

TEST(NpzBadInput, DeflatedDataOfAnotherLength) {
  for (const int change : {-1, 1}) {
    Member m = member("a.npy", npy(), true);
    m.expanded += static_cast<std::uint32_t>(change);
    rejects(archive({m}), "the deflated data are damaged, or do not expand");
  }
  Member m = member("a.npy", npy(), true);
  m.data.push_back(std::byte{0});
  ++m.compressed;
  rejects(archive({m}), "the deflated data are damaged");
  m = member("a.npy", npy(), true);
  m.data[3] ^= std::byte{0xFF};
  rejects(archive({m}), "member 'a.npy'");
}

TEST(NpzBadInput, ZipBombs) {
  Member m = member("a.npy", npy(), true);
  m.expanded = 0xFFFFFFF0;
  rejects(archive({m}), "more than deflate can");
  const Buffer honest = archive({member("a.npy", npy(10'000'000), true), member("b.npy", npy(10'000'000), true)});
  ASSERT_LT(honest.size(), 200'000u);
  expect_error([&] { NpzFile::from_bytes(honest, {}, "test", 20'000'000); }, ErrorCode::bad_file,
               "expands to more than the limit of 20000000 bytes");
  EXPECT_NO_THROW(NpzFile::from_bytes(honest, {}, "test", 20'000'256));
}

TEST(NpzBadInput, OverlappingMembers) {
  Member a = member("a.npy", npy());
  Member b = member("a.npy", npy());
  b.name = "a.npy";
  const auto length = static_cast<std::int64_t>(30 + 5 + a.data.size());
  b.offset_error = -length;  // both entries of the directory mean the first member
  rejects(archive({a, b}), "members overlap at byte 0");
}

TEST(NpzBadInput, DuplicateNames) {
  rejects(archive({member("a.npy", npy()), member("a.npy", npy())}), "two members are called 'a.npy'");
}

TEST(NpzBadInput, LocalHeadersThatDisagree) {
  Member m = member("a.npy", npy());
  m.local_name = "b.npy";
  rejects(archive({m}), "the local header has another name");
  m = member("a.npy", npy());
  m.local_method = 8;
  rejects(archive({m}), "the local header has another method");
  m = member("a.npy", npy());
  m.offset_error = 1;
  rejects(archive({m}), "no local header where the directory says");
  m.offset_error = 1'000'000;
  rejects(archive({m}), "the local header lies outside the archive");
}

TEST(NpzBadInput, SizesThatLie) {
  Member m = member("a.npy", npy());
  m.compressed = m.expanded = m.compressed + 1;
  rejects(archive({m}), "the data lie outside the archive");
  m = member("a.npy", npy());
  ++m.expanded;
  rejects(archive({m}), "stored, but its two sizes differ");
}

TEST(NpzBadInput, WhatZipHasAndWeHaveNot) {
  const auto unsupported = [](const Buffer& bytes, const std::string& part) { rejects(bytes, part, ErrorCode::unsupported); };
  Member m = member("a.npy", npy());
  m.flags = 1;
  unsupported(archive({m}), "encrypted members cannot be read");
  m = member("a.npy", npy());
  m.method = m.local_method = 12;
  unsupported(archive({m}), "method 12 of compression");
  m = member("a.npy", npy());
  m.compressed = m.expanded = 0xFFFFFFFF;
  unsupported(archive({m}), "zip64 members");
  Buffer bytes = archive({});
  bytes[8] = bytes[9] = bytes[10] = bytes[11] = std::byte{0xFF};
  unsupported(bytes, "zip64 archives");
  bytes = archive({});
  bytes[4] = std::byte{1};
  unsupported(bytes, "archives of several volumes");
}

TEST(NpzBadInput, DirectoriesThatDoNotAddUp) {
  Buffer bytes = archive({member("a.npy", npy())});
  Buffer changed = bytes;
  changed[changed.size() - 14] = changed[changed.size() - 12] = std::byte{2};
  rejects(changed, "entry 1 of the directory is damaged");
  changed = bytes;
  changed[changed.size() - 14] = changed[changed.size() - 12] = std::byte{0};
  rejects(changed, "the directory has more bytes than its 0 entries");
}

TEST(NpzBadInput, EveryTruncationIsAnError) {
  const Buffer bytes = archive({member("a.npy", npy()), member("b.npy", npy(), true)});
  ASSERT_NO_THROW(read_all(bytes));
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(survives([&] { read_all({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}); })) << n;
}

TEST(NpzBadInput, EveryFlippedBitInTheDataIsNoticed) {
  const Buffer data = npy();
  const Buffer bytes = archive({member("a.npy", data)});
  const std::size_t begin = 30 + 5;
  for (std::size_t bit = 8 * begin; bit < 8 * (begin + data.size()); ++bit) {
    Buffer changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(survives([&] { read_all(changed); })) << bit;
  }
}

TEST(NpzBadInput, MutatedArchivesGiveTensorsOrAnError) {
  const Buffer seed = archive({member("a.npy", npy()), member("b.npy", npy(), true)});
  std::mt19937_64 random(5);
  for (int i = 0; i < 10'000; ++i) survives([&] { read_all(mutate(seed, random)); });
}

TEST(NpzBadInput, MutatedDeflatedDataGiveBytesOrAnError) {
  const Buffer whole = npy(300);
  std::mt19937_64 random(6);
  const Buffer seed = deflated(whole);
  for (int i = 0; i < 5'000; ++i) {
    Member m = member("a.npy", whole, true);
    m.data = mutate(seed, random);
    m.compressed = static_cast<std::uint32_t>(m.data.size());
    survives([&] { read_all(archive({m})); });
  }
}

TEST(NpzWriter, RoundTrip) {
  const TempFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors{{"z", counting(DType::f32, {2, 3})},
                                                            {"é", counting(DType::bf16, {4})},
                                                            {"e", Tensor(DType::i64, {0})},
                                                            {"t", counting(DType::i32, {3, 5}).transpose(0, 1)}};
  write_npz(folder.file("t.npz"), tensors);
  EXPECT_EQ(read_raw(folder.file("t.npz")), as_text(npz_bytes(tensors)));
  const NpzFile file = NpzFile::open(folder.file("t.npz"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"z", "é", "e", "t"}));
  for (const auto& [name, tensor] : tensors) expect_same(file.tensor(name, npy_side_dtype(tensor.dtype())), tensor);
}

TEST(NpzWriter, EqualContentsGiveEqualBytes) {
  EXPECT_EQ(npz_bytes({{"a", counting(DType::u8, {3})}}), npz_bytes({{"a", counting(DType::u8, {3})}}));
}

TEST(NpzWriter, RefusesNamesThatNoReaderWouldAccept) {
  const Tensor t = counting(DType::u8, {1});
  const auto refuses = [](const std::vector<std::pair<std::string, Tensor>>& tensors, const std::string& part) {
    expect_error([&] { npz_bytes(tensors); }, ErrorCode::bad_value, part);
  };
  refuses({{"a", t}, {"a", t}}, "two members are called 'a.npy'");
  refuses({{std::string(70'000, 'n'), t}}, "a name of 70004 bytes");
  refuses({{"\xff", t}}, "not valid UTF-8");
  refuses({{"a", Tensor()}}, "undefined");
}

TEST(NpzWriter, LeavesNothingBehindOnFailure) {
  const TempFolder folder;
  {
    const FullDisk limit(10'000);
    expect_error([&] { write_npz(folder.file("t"), {{"a", Tensor(DType::u8, {100'000})}}); }, ErrorCode::bad_file, "cannot write");
  }
  EXPECT_FALSE(survives([&] { write_npz(folder.file("t"), {{"a", counting(DType::u8, {1})}, {"b", Tensor()}}); }));
  EXPECT_TRUE(folder.listing().empty());
}
