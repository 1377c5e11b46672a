#include "simd/amx.h"

#include "core/environment.h"
#include "dodona/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dodona {
namespace {

#if defined(__x86_64__) && defined(__linux__)
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}
bool bit(unsigned word, int place) {
  return (word >> place & 1) != 0;
}

bool cpu_has_tiles() {
  const unsigned features = cpuid(7, 0).d;
  if (!bit(features, 22) || !bit(features, 24) || !bit(features, 25)) return false;
  // Vectors prepare operands with AVX-512's FP16 and VBMI, which all processors with tiles have.
  if (!bit(features, 23) || !bit(cpuid(7, 0).c, 1)) return false;
  const Registers palette = cpuid(0x1D, 1);
  return (palette.b & 0xFFFF) == 64 && palette.b >> 16 >= 8 && (palette.c & 0xFFFF) >= 16;
}

bool system_saves_tiles() {
  if (!bit(cpuid(1, 0).c, 27)) return false;  // xgetbv
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3;
}

/// Linux lets a process use tiles once it has asked: their state makes the frames of signals larger.
bool ask_for_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

AmxFacts detect(bool wanted) {
  AmxFacts facts;
  facts.wanted = wanted;
  facts.cpu = cpu_has_tiles();
  facts.granted = facts.cpu && wanted && system_saves_tiles() && ask_for_tiles();
  return facts;
}
#else
AmxFacts detect(bool wanted) {
  return {.wanted = wanted};
}
#endif

AmxFacts facts_by_environment() {
  const auto asked = whole_number_from_environment("DODONA_AMX", 0, 1);
  const AmxFacts facts = detect(asked.value_or(1) == 1);
  if (asked == 1 && !facts.in_use())
    throw Error(ErrorCode::bad_option, "", "DODONA_AMX", "must be 0 or not set on this machine: " + std::string(text(facts)) + ", got '1'");
  return facts;
}

}  // namespace

const AmxFacts& amx_facts() {
  static const AmxFacts facts = facts_by_environment();
  return facts;
}

bool uses_amx(Isa isa) {
  return isa == Isa::v4_vnni && amx_facts().in_use();
}

std::string_view text(const AmxFacts& facts) {
  return !facts.cpu       ? "not on this CPU"
         : !facts.wanted  ? "switched off"
         : !facts.granted ? "not granted by the operating system"
                          : "in use";
}

}  // namespace dodona
