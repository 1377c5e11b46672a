#include "tests/fuzz/target.h"

#include <sys/mman.h>
#include <unistd.h>

#include "io/sha256.h"

namespace dodona::fuzz {

std::span<const Target> targets() {
  static const Target all[] = {
      {"call", call},
      {"case_file", case_file},
      {"case_line", case_line},
      {"config", config},
      {"fib", fib},
      {"json", json},
      {"npy", npy},
      {"npz", npz},
      {"safetensors", safetensors},
      {"shape", shape},
      {"suite", suite},
  };
  return all;
}

const Target& target(std::string_view name) {
  for (const Target& one : targets())
    if (one.name == name) return one;
  std::fprintf(stderr, "no target '%.*s'; there are:", static_cast<int>(name.size()), name.data());
  for (const Target& one : targets()) std::fprintf(stderr, " %.*s", static_cast<int>(one.name.size()), one.name.data());
  std::fputc('\n', stderr);
  std::exit(2);
}

void broken(const std::string& what) {
  std::fprintf(stderr, "broken: %s\n", what.c_str());
  std::abort();
}

std::string as_file(Bytes input) {
  static const int file = memfd_create("fuzz", 0);
  require(file >= 0 && ftruncate(file, 0) == 0, "no file in memory");
  require(pwrite(file, input.data(), input.size(), 0) == static_cast<ssize_t>(input.size()), "no room in memory");
  return "/proc/self/fd/" + std::to_string(file);
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && io::tensor_digest(a) == io::tensor_digest(b);
}

}  // namespace dodona::fuzz
