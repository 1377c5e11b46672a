// Every operation gives the same bits on every tier.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simd/probe.h"

namespace dodona::simd_tests {
namespace {

TEST(ProbeTable, IsInTheOrderOfItsEnum) {
  ASSERT_EQ(std::size(probe_table), static_cast<std::size_t>(ProbeOp::count));
  for (std::size_t i = 0; i < std::size(probe_table); ++i) EXPECT_EQ(static_cast<std::size_t>(probe_table[i].op), i) << probe_table[i].name;
}

TEST(Tiers, EveryOperationGivesTheSameBits) {
  constexpr std::int64_t n = 24593;  // not a multiple of 16
  for (const ProbeInfo& info : probe_table) {
    const auto a = samples::words(n, 0), b = samples::words(n, 1), c = samples::words(n, 2);
    const auto expected = run(info.op, Isa::generic, n, a.data(), b.data(), c.data());
    for (const Isa isa : available_isas()) {
      const auto got = run(info.op, isa, n, a.data(), b.data(), c.data());
      if (got == expected) continue;
      std::size_t i = 0;
      while (got[i] == expected[i]) ++i;
      i = i * 8 / static_cast<std::size_t>(info.bits_out);
      ADD_FAILURE() << info.name << " on " << name(isa) << " differs from generic at result " << i << ", inputs there " << std::hex << a[i]
                    << ' ' << b[i] << ' ' << c[i];
    }
  }
}

TEST(Tiers, EveryLengthUpTo17GivesTheSameBits) {
  const auto a = samples::words(17, 3), b = samples::words(17, 4), c = samples::words(17, 5);
  for (const ProbeInfo& info : probe_table) {
    for (std::int64_t n = 0; n <= 17; ++n) {
      const auto expected = run(info.op, Isa::generic, n, a.data(), b.data(), c.data());
      for (const Isa isa : available_isas())
        EXPECT_EQ(run(info.op, isa, n, a.data(), b.data(), c.data()), expected) << info.name << " on " << name(isa) << ", n = " << n;
    }
  }
}

TEST(Tiers, MathFunctionsGiveTheSameBitsAllOverTheirRange) {
  constexpr std::size_t block = 1 << 16;
  std::vector<std::uint32_t> x(block);
  for (std::uint64_t first = 0; first < 1u << 21; first += block) {
    for (std::size_t i = 0; i < block; ++i) x[i] = static_cast<std::uint32_t>((first + i) * 2053);
    for (int op = static_cast<int>(ProbeOp::exp); op < static_cast<int>(ProbeOp::count); ++op) {
      const auto expected = map<std::uint32_t>(ProbeOp{op}, best(), x);
      for (const Isa isa : available_isas()) {
        if (isa == best()) continue;
        if (isa == Isa::generic && first % (8 * block) != 0) continue;  // slow
        ASSERT_TRUE((map<std::uint32_t>(ProbeOp{op}, isa, x) == expected)) << probe_table[op].name << " on " << name(isa);
      }
    }
  }
}

/// Memory whose last byte lies before a page that must not be touched.
class GuardedPage {
 public:
  GuardedPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    base_ = static_cast<std::uint8_t*>(mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + size_, size_, PROT_NONE), 0);
  }
  ~GuardedPage() { munmap(base_, 2 * size_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  std::uint8_t* last(std::int64_t bytes) { return base_ + size_ - bytes; }

 private:
  std::size_t size_;
  std::uint8_t* base_;
};

TEST(Tiers, NothingIsReadOrWrittenBeyondTheLastElement) {
  GuardedPage a, b, c, out;
  const auto fill = samples::words(17, 6);
  for (const Isa isa : available_isas()) {
    for (const ProbeInfo& info : probe_table) {
      for (std::int64_t n = 0; n <= 17; ++n) {
        const std::int64_t in = (n * info.bits_in + 7) / 8;
        for (GuardedPage* page : {&a, &b, &c}) std::memcpy(page->last(in), fill.data(), static_cast<std::size_t>(in));
        // A wrong access ends the program here; the trace names the operation.
        SCOPED_TRACE(std::string(info.name) + " on " + std::string(name(isa)));
        dispatch<BitProbe>(isa, info.op, a.last(in), b.last(in), c.last(in), static_cast<void*>(out.last(samples::result_bytes(info, n))),
                           n);
      }
    }
  }
}

}  // namespace
}  // namespace dodona::simd_tests
