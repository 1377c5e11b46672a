// Prints one line per tier and operation: `tier operation digest`, where the digest is of its results over fixed inputs.
// Two machines agree when their lines do; tools/test-aarch64 compares an emulated one with this one. Needs nothing but the tiers' objects.
#include <cstdio>

#include "tests/simd/samples.h"

namespace {

using namespace dodona;

std::uint64_t digest(const std::vector<std::uint32_t>& words, std::int64_t bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(words.data());
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (std::int64_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001B3u;
  return hash;
}

template <class Tier>
void print(const char* tier) {
  constexpr std::int64_t n = 40013;
  const auto a = samples::words(n, 0), b = samples::words(n, 1), c = samples::words(n, 2);
  for (const ProbeInfo& info : probe_table) {
    // Whole vectors: what a probe does not write of the last one is zero.
    std::vector<std::uint32_t> out((n + 15) / 16 * 16);
    BitProbe::run<Tier>(info.op, a.data(), b.data(), c.data(), out.data(), n);
    if (info.bits_out == 32) samples::settle_nans(info, out.data(), samples::results(info, n));
    std::printf("%s %s %016llx\n", tier, info.name, static_cast<unsigned long long>(digest(out, samples::result_bytes(info, n))));
  }
}

}  // namespace

int main() {
  print<tier::generic>("generic");
#if defined(__aarch64__)
  print<tier::neon>("neon");
#elif defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) print<tier::v3>("v3");
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) print<tier::v4>("v4");
#endif
}
