// libFuzzer's entry: DODONA_FUZZ_TARGET names the target.
#include <cstddef>
#include <cstdlib>

#include "tests/fuzz/target.h"

/// The machine that is fuzzed has little memory: what asks for a larger tensor is refused, as everywhere that has none, so that an input
/// is judged in a moment and a rightful call of gigabytes is no finding. Tensors alone are allocated by this name.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{4} << 20;
  void* memory = nullptr;
  return bytes <= most && posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

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
