#include "io/sha256.h"

#include <openssl/evp.h>

#include "dodona/error.h"
#include "io/bytes.h"
#include "io/tensor_bytes.h"

namespace dodona::io {
namespace {

struct Free {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, Free>;

/// The library fails for want of memory only, or where it was built without SHA-256.
void check(bool ok) {
  if (!ok) throw Error(ErrorCode::unsupported, "", "", "OpenSSL's SHA-256 does not work here");
}

Context new_context() {
  Context context(EVP_MD_CTX_new());
  check(context != nullptr);
  return context;
}

}  // namespace

struct Sha256::State {
  Context context = new_context();
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::digest() const {
  const Context end = new_context();
  Sha256Digest result{};
  check(EVP_MD_CTX_copy_ex(end.get(), state_->context.get()) == 1 && EVP_DigestFinal_ex(end.get(), result.data(), nullptr) == 1);
  return result;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

std::string to_hex(const Sha256Digest& digest) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

Sha256Digest tensor_digest(const Tensor& tensor) {
  const Tensor dense = contiguous(tensor, "digest");
  std::span<const std::byte> bytes = bytes_of(dense);
  Sha256 hash;
  hash.update(as_bytes(std::string(name(dense.dtype())) + " " + to_string(dense.shape()) + "\n"));
  if (is_packed(dense.dtype()) && dense.elements() % 2 != 0) {
    const std::byte last = bytes.back() & std::byte{0x0F};
    hash.update(bytes.first(bytes.size() - 1));
    bytes = {&last, 1};
    hash.update(bytes);
    return hash.digest();
  }
  hash.update(bytes);
  return hash.digest();
}

}  // namespace dodona::io
