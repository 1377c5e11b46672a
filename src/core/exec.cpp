#include "dodona/exec.h"

#include <omp.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/environment.h"
#include "dodona/error.h"

namespace dodona {
namespace {

constexpr std::array<std::string_view, mode_list.size()> mode_names{"fast", "golden", "hopper", "blackwell", "ada", "ampere"};

constexpr std::array<std::string_view, 5> gpus{"h100", "h200", "b200", "l40s", "a100"};
constexpr std::array<Mode, gpus.size()> modes_of_gpus{Mode::hopper, Mode::hopper, Mode::blackwell, Mode::ada, Mode::ampere};
constexpr std::array<std::string_view, isa_count> isa_names{"generic", "v3", "v4", "v4_vnni", "neon"};

template <class T, std::size_t N>
std::optional<T> find(const std::array<std::string_view, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == text) return static_cast<T>(i);
  return std::nullopt;
}

#if defined(__x86_64__)
/// The part of x86-64-v3 that not every compiler's __builtin_cpu_supports knows.
bool has_f16c_movbe_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 29 & 1) == 0 || (c >> 22 & 1) == 0) return false;
  return __get_cpuid(0x80000001U, &a, &b, &c, &d) != 0 && (c >> 5 & 1) != 0;
}
#endif

std::vector<Isa> detect() {
  std::vector<Isa> found{Isa::generic};
#if defined(__x86_64__)
  // The compiler's CPU model also asks the operating system whether it saves the wide registers.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && has_f16c_movbe_lzcnt();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  if (v3) found.push_back(Isa::v3);
  if (v4) found.push_back(Isa::v4);
  if (v4 && __builtin_cpu_supports("avx512vnni")) found.push_back(Isa::v4_vnni);
#elif defined(__aarch64__)
  found.push_back(Isa::neon);
#endif
  return found;
}

Isa isa_from_environment() {
  const char* text = std::getenv("DODONA_ISA");
  const auto& available = available_isas();
  if (text == nullptr || *text == '\0') return available.back();
  std::string known;
  for (const Isa isa : available) {
    if (name(isa) == text) return isa;
    known += (known.empty() ? "" : ", ") + std::string(name(isa));
  }
  throw Error(ErrorCode::bad_option, "", "DODONA_ISA", "must be one of " + known + " (what this machine can run), got '" + text + "'");
}

int threads_from_environment() {
  const auto wanted = whole_number_from_environment("DODONA_NUM_THREADS", 1, 4096);
  return wanted ? static_cast<int>(*wanted) : omp_get_num_procs();
}

}  // namespace

std::string_view name(Mode mode) {
  return mode_names[static_cast<std::size_t>(mode)];
}
std::optional<Mode> parse_mode(std::string_view text) {
  return find<Mode>(mode_names, text);
}
std::optional<Mode> mode_of_gpu(std::string_view gpu) {
  for (std::size_t i = 0; i < gpus.size(); ++i)
    if (gpus[i] == gpu) return modes_of_gpus[i];
  return std::nullopt;
}
std::span<const std::string_view> gpu_names() {
  return gpus;
}
std::string_view caveat(Mode mode) {
  switch (mode) {
    case Mode::blackwell:
      return "blackwell mode is a model of published measurements (MMA-Sim, arXiv 2511.10909), with the order of sums of "
             "CUTLASS's sources or of hopper mode; no recording of a B200 confirms it";
    case Mode::ada:
      return "ada mode is a model of published measurements (MMA-Sim, arXiv 2511.10909), with the order of sums of hopper mode; no "
             "recording of "
             "an L40S confirms it";
    case Mode::ampere:
      return "ampere mode is a model of published measurements (MMA-Sim, arXiv 2511.10909), with the order of sums of hopper mode; no "
             "recording "
             "of an A100 confirms it";
    default: return {};
  }
}
std::string either_of(std::span<const Mode> modes) {
  std::string text;
  for (std::size_t i = 0; i < modes.size(); ++i) text += (i == 0 ? "" : i + 1 < modes.size() ? ", " : " or ") + std::string(name(modes[i]));
  return text;
}
std::string_view name(Isa isa) {
  return isa_names[static_cast<std::size_t>(isa)];
}
std::optional<Isa> parse_isa(std::string_view text) {
  return find<Isa>(isa_names, text);
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

Isa default_isa() {
  static const Isa isa = isa_from_environment();
  return isa;
}

int default_threads() {
  static const int threads = threads_from_environment();
  return threads;
}

}  // namespace dodona
