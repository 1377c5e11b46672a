#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "dodona/version.h"
#include "simd/amx.h"
#include "simd/limits.h"
#include "tools/common.h"
#include "tools/ranks/mpi_job.h"
#include "tools/ranks/rank_doctor.h"

namespace dodona::tools {
namespace {

/// What the OpenBLAS on this machine says of itself; it is looked up, never linked: no result of ours comes from it.
struct Blas {
  bool found = false;
  std::string config, core, advice;
};

Blas ask_openblas() {
  Blas blas;
  // It starts its threads on loading.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return blas;
  using TextFunction = char* (*)();
  const auto config = reinterpret_cast<TextFunction>(dlsym(library, "openblas_get_config"));
  const auto core = reinterpret_cast<TextFunction>(dlsym(library, "openblas_get_corename"));
  blas.found = config != nullptr && core != nullptr;
  if (!blas.found) return blas;
  blas.config = config();
  blas.core = core();
  const bool wide = available_isas().back() >= Isa::v4, avx2 = available_isas().back() >= Isa::v3;
  const auto is = [&](std::initializer_list<const char*> names) {
    for (const char* known : names)
      if (blas.core == known) return true;
    return false;
  };
  if (wide && !is({"SkylakeX", "Cooperlake", "SapphireRapids"}))
    blas.advice = "misdetected: this CPU has AVX-512, that core type does not use it; set OPENBLAS_CORETYPE=SKYLAKEX";
  else if (avx2 && !is({"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"}))
    blas.advice = "misdetected: this CPU has AVX2, that core type does not use it; set OPENBLAS_CORETYPE=HASWELL";
  return blas;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown";
}

double memory_gib() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? static_cast<double>(info.totalram) * info.mem_unit / (1 << 30) : 0;
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : "";
}

io::Json tiers_json() {
  io::Json tiers = io::Json::array();
  for (const Isa isa : available_isas()) tiers.push_back(std::string(name(isa)));
  return tiers;
}

struct LimitText {
  std::string letter, json, title;
  int digits;
};
/// In the order of LimitKind.
const std::vector<LimitText> limit_texts{{"R", "R_GBps", "R read GB/s", 1},
                                         {"C", "C_GBps", "C copy GB/s", 1},
                                         {"U", "U_GBps", "U update GB/s", 1},
                                         {"F", "F_GFLOPps", "F fp32 FMA GFLOP/s", 0},
                                         {"V", "V_GOPps", "V int8 dot GOP/s", 0}};

/// What some threads can do: of each limit that was asked for.
struct Measured {
  int threads;
  std::map<std::size_t, double> limits;  ///< by place in limit_texts
};

/// All limits, of one thread and of as many as are to be used; or those named, of as many as are to be used, at a glance.
std::vector<Measured> measure(const Exec& exec, const std::vector<std::string>& named, bool quiet) {
  std::vector<int> counts{exec.threads};
  if (named.empty() && exec.threads > 1) counts.insert(counts.begin(), 1);
  Progress progress(quiet);
  std::vector<Measured> all;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    progress.step(i, counts.size(), "measuring what this machine can do");
    Exec at = exec;
    at.threads = counts[i];
    Yardstick yardstick(at);
    Measured& measured = all.emplace_back(Measured{counts[i], {}});
    for (std::size_t kind = 0; kind < limit_texts.size(); ++kind) {
      const bool asked = std::find(named.begin(), named.end(), limit_texts[kind].letter) != named.end();
      if (named.empty()) measured.limits[kind] = yardstick.measure(static_cast<LimitKind>(kind));
      if (asked) measured.limits[kind] = yardstick.glance(static_cast<LimitKind>(kind));
    }
  }
  return all;
}

void print_json(const Exec& exec, const Blas& blas, const std::vector<Measured>& limits, const MemoryFacts& facts) {
  const ColdBytes cold = cold_bytes(facts);
  io::Json measured = io::Json::array();
  for (const Measured& some : limits) {
    io::Json& json = measured.emplace_back(io::Json{{"threads", some.threads}});
    for (const auto& [kind, most] : some.limits) json[limit_texts[kind].json] = most;
  }
  io::Json json{{"version", version()},
                {"cpu", cpu_model()},
                {"memory_GiB", memory_gib()},
                {"last_level_cache_bytes", facts.cache},
                {"last_level_cache_source", facts.cache_source},
                {"cold_bytes", cold.bytes},
                {"cold", cold.cold},
                {"tiers", tiers_json()},
                {"isa", std::string(name(exec.isa))},
                {"isa_override", environment("DODONA_ISA")},
                {"amx", std::string(text(amx_facts()))},
                {"amx_override", environment("DODONA_AMX")},
                {"threads", exec.threads},
                {"threads_override", environment("DODONA_NUM_THREADS")},
                {"processors", omp_get_num_procs()},
                {"openmp", _OPENMP},
                {"limits", measured}};
  if (blas.found) json["openblas"] = {{"config", blas.config}, {"core", blas.core}, {"advice", blas.advice}};
  fmt::print("{}\n", io::json_text(json, 2));
}

void print_caches(const MemoryFacts& facts) {
  const ColdBytes cold = cold_bytes(facts);
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const std::string word = cold_text(facts, cold);
  fmt::print("cache    {:.0f} MiB in the last level ({}); R, C and U go through {:.0f} MiB: {}\n", mib(facts.cache), facts.cache_source,
             mib(cold.bytes), cold.cold ? word : colored(word, "33"));
}

void doctor(const ExecOptions& options, bool measuring, const std::vector<std::string>& named) {
  const Exec exec = options.exec();
  amx_facts();  // what is wrong with the environment is said before anything is printed
  const Blas blas = ask_openblas();
  const MemoryFacts facts = memory_facts();
  const std::vector<Measured> limits = measuring ? measure(exec, named, options.json) : std::vector<Measured>();
  if (options.json) return print_json(exec, blas, limits, facts);

  std::string tiers;
  for (const Isa isa : available_isas()) tiers += (tiers.empty() ? "" : ", ") + std::string(name(isa));
  fmt::print("{}\n\n", version_text());
  fmt::print("CPU      {}, {} processors, {:.1f} GiB of memory\n", cpu_model(), omp_get_num_procs(), memory_gib());
  print_caches(facts);
  fmt::print("tiers    {}; in use: {}{}\n", tiers, name(exec.isa), environment("DODONA_ISA").empty() ? "" : " (DODONA_ISA)");
  fmt::print("AMX      {}{}: products of integers, and of NVFP4, take {}\n", text(amx_facts()),
             environment("DODONA_AMX").empty() ? "" : " (DODONA_AMX)", uses_amx(exec.isa) ? "its tiles" : "vectors");
  fmt::print("threads  {}{}\n", exec.threads, environment("DODONA_NUM_THREADS").empty() ? "" : " (DODONA_NUM_THREADS)");
  fmt::print("OpenMP   {} (specification date)\n", _OPENMP);
  if (blas.found) {
    fmt::print("BLAS     {} core {}\n         {}\n", blas.config, blas.core,
               blas.advice.empty() ? "core type fits this CPU" : colored(blas.advice, "33"));
    fmt::print("         used for cross-checks and as a peer in benchmarks only: its bits depend on core type, threads and batch size\n");
  } else {
    fmt::print("BLAS     no OpenBLAS found (not needed to run)\n");
  }
  if (limits.empty()) return;
  std::vector<std::string> titles{"threads"};
  for (const auto& [kind, most] : limits.front().limits) titles.push_back(limit_texts[kind].title);
  std::vector<std::vector<std::string>> rows;
  for (const Measured& some : limits) {
    std::vector<std::string>& row = rows.emplace_back(1, std::to_string(some.threads));
    for (const auto& [kind, most] : some.limits) row.push_back(fmt::format("{:.{}f}", most, limit_texts[kind].digits));
  }
  fmt::print("\n{}", table(titles, rows, std::vector<bool>(titles.size(), true)));
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExecOptions>();
  auto quick = std::make_shared<bool>(false);
  auto named = std::make_shared<std::vector<std::string>>();
  auto* command = app.add_subcommand(
      "doctor", "Show what this machine and build can do: tiers, threads, OpenMP, BLAS, caches, measured limits R, C, U, F, V");
  auto* const no_measure = command->add_flag(
      "--no-measure", *quick,
      "Leave the measurements out (they take some seconds, and memory of three times the last-level cache, 512 MiB at least)");
  command
      ->add_option("--limits", *named,
                   "Only these of the limits R, C, U, F, V, of so many threads as are used, each at a glance: some tens of milliseconds")
      ->delimiter(',')
      ->type_name("LETTERS")
      ->check(CLI::IsMember({"R", "C", "U", "F", "V"}))
      ->excludes(no_measure);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->footer("mpirun -n N dodona doctor shows what collectives between those ranks take.");
  command->callback([options, quick, named, &exit_code] {
    if (started_ranks() > 1)
      exit_code = doctor_of_ranks(options->json);
    else
      doctor(*options, !*quick, *named);
  });
}

}  // namespace dodona::tools
