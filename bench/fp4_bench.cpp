#include "fp4_bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "core/caches.h"
#include "core/case_line.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "oracle/cases/generate.h"
#include "row_limits.h"

namespace dodona {
namespace {

constexpr std::int64_t n = 4096, k = 7168;
constexpr double weight_bytes = static_cast<double>(n * k) * 0.5625;

struct Operands {
  ops::CutlassScaledFp4Mm op;
  std::vector<Tensor> weights, scales;
  std::vector<Prepared> packed;
  Rotation rotation = cold_rotation(memory_facts(), weight_bytes, weight_bytes);
};

Operands operands(std::int64_t m, bool packed) {
  const Arguments arguments = oracle::generate(
      parse_case_line("cutlass_scaled_fp4_mm M=" + std::to_string(m) + " N=" + std::to_string(n) + " K=" + std::to_string(k)));
  Operands result;
  result.op = {.a = *arguments.find("a"),
               .b = *arguments.find("b"),
               .block_scale_a = *arguments.find("block_scale_a"),
               .block_scale_b = *arguments.find("block_scale_b"),
               .alpha = *arguments.find("alpha"),
               .out = Tensor(DType::bf16, {m, n})};
  for (std::int64_t i = 0; i < result.rotation.copies; ++i) {
    if (packed) {
      result.packed.push_back(ops::prepare(ops::CutlassScaledFp4Mm{.b = result.op.b, .block_scale_b = result.op.block_scale_b}, Exec{}));
    } else {
      result.weights.push_back(result.op.b.clone());
      result.scales.push_back(result.op.block_scale_b.clone());
    }
  }
  if (packed) result.op.b = result.op.block_scale_b = Tensor();
  return result;
}

void run(benchmark::State& state, std::int64_t m, bool packed, Isa isa, int threads) {
  Operands data = operands(m, packed);
  Exec exec;
  exec.isa = isa;
  exec.threads = threads;
  const double bytes = weight_bytes + static_cast<double>(m * k) * 0.5625;
  const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  RowLimits limits(threads, {LimitKind::read, LimitKind::dot8});
  std::size_t next = 0;
  double best = 1e30;
  for (auto _ : state) {
    if (!packed) data.op.b = data.weights[next], data.op.block_scale_b = data.scales[next];
    const auto begin = std::chrono::steady_clock::now();
    ops::run(data.op, exec, packed ? data.packed[next] : Prepared());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (++next == static_cast<std::size_t>(data.rotation.copies)) next = 0;
  }
  limits.look();
  const double read_limit = limits.of(LimitKind::read), dot_limit = limits.of(LimitKind::dot8);
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  state.counters["share_of_R"] = rate(bytes * 1e-9 / read_limit);
  state.counters["best_of_R"] = bytes * 1e-9 / read_limit / best;
  state.counters["share_of_V"] = rate(operations * 1e-9 / dot_limit);
  state.counters["best_of_V"] = operations * 1e-9 / dot_limit / best;
  state.SetLabel(data.rotation.cold ? "cold" : "not cold");
}

}  // namespace

void register_fp4_benchmarks(const std::vector<int>& thread_counts) {
  for (const bool packed : {true, false})
    for (const std::int64_t m : {1, 4, 16, 64})
      for (const Isa isa : available_isas())
        for (const int threads : thread_counts) {
          if (isa == Isa::generic) continue;
          const std::string title = std::string("fp4_mm/") + (packed ? "packed" : "raw") + "/M=" + std::to_string(m) +
                                    "_N=4096_K=7168/isa:" + std::string(name(isa)) + "/threads:" + std::to_string(threads);
          benchmark::RegisterBenchmark(title.c_str(), run, m, packed, isa, threads)->UseRealTime()->Unit(benchmark::kMicrosecond);
        }
}

}  // namespace dodona
