// Benchmarks of every op of the inventory, from the case lines that the ops declare. Each row shows GB/s (bytes that must be read and
// written once) or GFLOP/s, and its share of the limit measured in the same run: C (copy) for ops that read and write alike, R (read)
// for ops that mostly read, F (fp32 FMA) for products. Inputs are rotated so that large ones come from memory, not from a cache.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/op.h"
#include "fp4_bench.h"
#include "golden_bench.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "simd/limits.h"

namespace dodona {
namespace {

/// Measured once per thread count, when first needed.
double limit(LimitKind kind, int threads) {
  static std::map<std::pair<LimitKind, int>, double> known;
  const auto key = std::pair(kind, threads);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  Exec exec;
  exec.threads = threads;
  return known[key] = measure_limit(kind, exec);
}

/// Copies of the arguments, together beyond any cache when one set is worth reading from memory.
std::vector<Arguments> rotation(const Op& op, const Arguments& base, double bytes) {
  constexpr double wanted = 256e6;
  const auto count = bytes < 4e6 ? std::size_t{1} : std::clamp<std::size_t>(static_cast<std::size_t>(wanted / bytes), 2, 16);
  std::vector<Arguments> sets;
  for (std::size_t i = 0; i < count; ++i) {
    Arguments arguments = base;
    for (auto& [name, tensor] : arguments.tensors) {
      Tensor fresh = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
      copy(tensor, fresh);
      tensor = fresh;
    }
    op.prepare(arguments);
    for (const TensorSpec& spec : op.schema().tensors)
      if (!spec.view_of.empty()) std::erase_if(arguments.tensors, [&](const auto& entry) { return entry.first == spec.name; });
    sets.push_back(std::move(arguments));
  }
  return sets;
}

void run_case(benchmark::State& state, const Op* op, const std::string& rest, int threads) {
  const CaseLine line = parse_case_line(std::string(op->name()) + " " + rest);
  const Arguments base = oracle::generate(line, default_threads());
  Arguments priced = base;
  const Cost cost = op->cost(priced);
  auto sets = rotation(*op, base, cost.bytes_read + cost.bytes_written);
  Exec exec;
  exec.threads = threads;
  const double compute_limit = cost.flops > 0 ? limit(LimitKind::fma, threads) : 0;
  const LimitKind memory_kind = cost.bytes_written > 0.4 * cost.bytes_read ? LimitKind::copy : LimitKind::read;
  const double memory_limit = limit(memory_kind, threads);
  std::size_t next = 0;
  double best = 1e30;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    op->run(sets[next], exec);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (++next == sets.size()) next = 0;
  }
  const auto runs = static_cast<double>(state.iterations());
  const double bytes = memory_kind == LimitKind::copy ? cost.bytes_read + cost.bytes_written : cost.bytes_read;
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  if (cost.flops > 0) {
    state.counters["GFLOP/s"] = rate(cost.flops * runs * 1e-9);
    state.counters["share_of_F"] = rate(cost.flops * runs * 1e-9 / compute_limit);
    state.counters["best_of_F"] = cost.flops * 1e-9 / compute_limit / best;
  } else {
    const char* name = memory_kind == LimitKind::copy ? "share_of_C" : "share_of_R";
    state.counters["GB/s"] = rate(bytes * runs * 1e-9);
    state.counters[name] = rate(bytes * runs * 1e-9 / memory_limit);
    state.counters[memory_kind == LimitKind::copy ? "best_of_C" : "best_of_R"] = bytes * 1e-9 / memory_limit / best;
  }
  state.SetLabel(bytes < 4e6 ? "warm" : "cold");
}

/// The cost of a call by name: binding, validation and dispatch, on the smallest input the op takes.
void call_overhead(benchmark::State& state) {
  const CaseLine line = parse_case_line("rmsnorm T=1 H=16");
  Arguments arguments = oracle::generate(line);
  const Op& op = registry().at("rmsnorm");
  op.prepare(arguments);
  Exec exec;
  exec.threads = 1;
  for (auto _ : state) op.run(arguments, exec);
}

}  // namespace
}  // namespace dodona

int main(int argc, char** argv) {
  using namespace dodona;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::vector<int> counts{1};
  if (default_threads() > 1) counts.push_back(default_threads());
  benchmark::AddCustomContext("isa", std::string(name(default_isa())));
  benchmark::RegisterBenchmark("call_by_name/rmsnorm_T=1_H=16", call_overhead);
  for (const auto& op : registry().all()) {
    if (makes_views(*op)) continue;  // no kernel runs
    for (const std::string& rest : op->bench_cases())
      for (const int threads : counts) {
        std::string title = std::string(op->name()) + "/" + rest + "/threads:" + std::to_string(threads);
        std::replace(title.begin(), title.end(), ' ', '_');
        benchmark::RegisterBenchmark(title.c_str(), run_case, op.get(), rest, threads)->UseRealTime()->Unit(benchmark::kMicrosecond);
      }
  }
  register_fp4_benchmarks(counts, limit);
  register_golden_benchmarks(counts, limit);
  for (const int threads : counts)
    for (const auto& [label, kind] : {std::pair("R_GBps", LimitKind::read), std::pair("C_GBps", LimitKind::copy),
                                      std::pair("F_GFLOPps", LimitKind::fma), std::pair("V_GOPps", LimitKind::dot8)})
      benchmark::AddCustomContext(std::string(label) + " threads:" + std::to_string(threads), std::to_string(limit(kind, threads)));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
