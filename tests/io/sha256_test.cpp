#include "io/sha256.h"

#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {
std::string hex_of(std::string_view text) {
  return to_hex(sha256(as_bytes(text)));
}
}  // namespace

// Known answers of FIPS 180-4 and of the NIST validation suite.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex_of("\xd3"), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
}

TEST(Sha256, LengthsAroundABlockDoNotDependOnThePieces) {
  for (std::size_t length = 50; length <= 140; ++length) {
    const std::string text(length, 'q');
    for (const std::size_t piece : {1u, 7u, 63u, 64u, 65u}) {
      Sha256 hash;
      for (std::size_t at = 0; at < length; at += piece) hash.update(as_bytes(std::string_view(text).substr(at, piece)));
      EXPECT_EQ(to_hex(hash.digest()), hex_of(text)) << length << " by " << piece;
    }
  }
}

TEST(Sha256, DigestLeavesTheStateAlone) {
  Sha256 hash;
  hash.update(as_bytes("ab"));
  EXPECT_EQ(to_hex(hash.digest()), hex_of("ab"));
  hash.update(as_bytes("c"));
  EXPECT_EQ(to_hex(hash.digest()), hex_of("abc"));
}

TEST(TensorDigest, IsTheHashOfALineAndTheBytes) {
  const Tensor t = counting(DType::bf16, {2, 3});
  std::string text = "bf16 [2, 3]\n";
  for (char c = 0; c < 12; ++c) text += c;
  EXPECT_EQ(to_hex(tensor_digest(t)), hex_of(text));
  EXPECT_EQ(to_hex(tensor_digest(Tensor(DType::f32, {0, 4}))), hex_of("f32 [0, 4]\n"));
}

TEST(TensorDigest, SeesDtypeShapeAndValuesButNotStrides) {
  const Tensor t = counting(DType::f32, {4, 6});
  EXPECT_EQ(tensor_digest(t.transpose(0, 1)), tensor_digest(t.transpose(0, 1).clone()));
  EXPECT_EQ(tensor_digest(t.slice(1, 2, 5)), tensor_digest(t.slice(1, 2, 5).clone()));
  EXPECT_NE(tensor_digest(t), tensor_digest(t.bitcast(DType::i32)));
  EXPECT_NE(tensor_digest(t), tensor_digest(t.reshape({6, 4})));
  const Tensor other = t.clone();
  other.as<std::byte>()[95] ^= std::byte{1};
  EXPECT_NE(tensor_digest(t), tensor_digest(other));
}

TEST(TensorDigest, TheUnusedHalfOfAnOddCountDoesNotMatter) {
  const Tensor a(DType::f4_e2m1, {3});
  const Tensor b = a.clone();
  b.as<std::uint8_t>()[1] = 0xF0;
  EXPECT_EQ(tensor_digest(a), tensor_digest(b));
  b.as<std::uint8_t>()[1] = 0x01;
  EXPECT_NE(tensor_digest(a), tensor_digest(b));
}

TEST(TensorDigest, UndefinedTensorsHaveNone) {
  expect_error([] { tensor_digest(Tensor()); }, ErrorCode::bad_value, "undefined");
}
