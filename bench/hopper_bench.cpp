#include "hopper_bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "core/case_line.h"
#include "dodona/op.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "row_limits.h"

namespace dodona {
namespace {

struct Line {
  std::string_view op, rest;
  std::int64_t products;
  Mode mode = Mode::hopper;
};
constexpr Line lines[] = {
    {"dsv3_fused_a_gemm", "T=1", 1 * 2112 * 7168},
    {"dsv3_fused_a_gemm", "T=16", 16 * 2112 * 7168},
    {"linear", "T=64 N=2112 K=7168", 64 * 2112 * 7168},
    {"bmm", "L=16 M=64 N=512 K=128", 16 * 64 * 512 * 128},
    {"bmm_fp8", "L=1 M=64 N=128 K=512", 1 * 64 * 128 * 512},
    {"bmm_fp8", "L=16 M=64 N=512 K=128", 16 * 64 * 512 * 128},
    {"bmm_fp8", "L=1 M=64 N=512 K=4096", 1 * 64 * 512 * 4096},
    {"bmm_fp8", "L=128 M=1 N=512 K=128", 128 * 1 * 512 * 128},
    {"fp8_blockwise_scaled_mm", "M=64 N=2048 K=7168 --attr kernel=deep_gemm", 64 * 2048 * 7168},
    {"dsv3_router_gemm", "T=1 E=256 --attr out_dtype=f32", 1 * 256 * 7168},
    {"dsv3_router_gemm", "T=16 E=256 --attr out_dtype=f32", 16 * 256 * 7168},
    {"cutlass_scaled_fp4_mm", "M=1 N=4096 K=7168", 1 * 4096 * 7168, Mode::blackwell},
    {"cutlass_scaled_fp4_mm", "M=16 N=4096 K=7168", 16 * 4096 * 7168, Mode::blackwell},
    {"cutlass_scaled_fp4_mm", "M=64 N=4096 K=7168", 64 * 4096 * 7168, Mode::blackwell},
};

void run(benchmark::State& state, const Line* line, int threads) {
  const Op& op = registry().at(line->op);
  Arguments arguments =
      oracle::runnable(op, oracle::generate(parse_case_line(std::string(line->op) + " " + std::string(line->rest)), threads));
  Exec exec;
  exec.mode = line->mode;
  exec.threads = threads;
  const auto products = static_cast<double>(line->products);
  double best = 1e30;
  RowLimits limits(threads, {LimitKind::fma});
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    op.run(arguments, exec);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  limits.look();
  const double fma = limits.of(LimitKind::fma) / 2;
  state.counters["Gproducts/s"] =
      benchmark::Counter(products * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["best_Gproducts/s"] = products * 1e-9 / best;
  state.counters["best_of_F"] = products * 1e-9 / best / fma;
}

}  // namespace

void register_hopper_benchmarks(const std::vector<int>& thread_counts) {
  for (const Line& line : lines) {
    if (!registry().at(line.op).has(line.mode)) continue;
    for (const int threads : thread_counts) {
      std::string title =
          std::string(name(line.mode)) + "/" + std::string(line.op) + "/" + std::string(line.rest) + "/threads:" + std::to_string(threads);
      std::replace(title.begin(), title.end(), ' ', '_');
      benchmark::RegisterBenchmark(title.c_str(), run, &line, threads)->UseRealTime()->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace dodona
