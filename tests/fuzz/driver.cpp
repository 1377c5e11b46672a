// libFuzzer's entry: DODONA_FUZZ_TARGET names the target.
#include "tests/fuzz/target.h"

namespace {

const dodona::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("DODONA_FUZZ_TARGET");
  chosen = &dodona::fuzz::target(name != nullptr ? name : "");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  chosen->run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
