#include "golden_bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>

#include "core/case_line.h"
#include "dodona/op.h"
#include "eigen_reference.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"
#include "row_limits.h"

namespace dodona {
namespace {

/// Where the op's own benchmark line is not that of one request's decode step.
const std::map<std::string_view, std::string_view> decode_lines{
    {"linear", "T=1 N=7168 K=16384"},
    {"bmm", "L=128 M=1 N=512 K=128"},
    {"bmm_fp8", "L=128 M=1 N=512 K=128"},
    {"dsv3_router_gemm", "T=1 E=256"},
    {"dsv3_fused_a_gemm", "T=1"},
    {"cutlass_scaled_fp4_mm", "M=1 N=36864 K=7168"},
    {"cutlass_fp4_group_mm", "M=8 N=4096 K=7168 E=8 R=1024"},
    {"cutlass_mla_decode", "B=1 N=128 pages=64 P=64 W=64 --attr sm_scale=0.1352337788608801"},
    {"trtllm_batch_decode_with_kv_cache_mla", "B=1 Q=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.1352337788608801"},
    {"rmsnorm", "T=1 H=7168"},
    {"fused_add_rmsnorm", "T=1 H=7168"},
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Largest deviation from golden's output, as a share of its largest magnitude.
double deviation(const Tensor& golden, const std::vector<float>& other) {
  double largest = 0, apart = 0;
  for (std::int64_t i = 0; i < golden.elements(); ++i) {
    const double value = quant::get(golden, i);
    largest = std::max(largest, std::fabs(value));
    apart = std::max(apart, std::fabs(value - static_cast<double>(other[static_cast<std::size_t>(i)])));
  }
  return apart / largest;
}

/// The mean time of Eigen's product: 0 for ops that are none, a negative number when it gives another result than golden mode.
double eigen_seconds(const Op& op, const Arguments& arguments, const Tensor& golden, int threads) {
  constexpr double worth = 0.5;  // seconds to measure for
  const std::vector<float> first = eigen_reference(op.name(), arguments, threads);
  if (first.empty()) return 0;
  if (static_cast<std::int64_t>(first.size()) != golden.elements() || !(deviation(golden, first) < 0.01)) return -1;
  const auto begin = std::chrono::steady_clock::now();
  int runs = 0;
  while (runs < 3 || seconds_since(begin) < worth) benchmark::DoNotOptimize(eigen_reference(op.name(), arguments, threads)), ++runs;
  return seconds_since(begin) / runs;
}

void run(benchmark::State& state, const Op* op, const std::string& rest, int threads) {
  Arguments arguments = oracle::runnable(*op, oracle::generate(parse_case_line(std::string(op->name()) + " " + rest), threads));
  Exec exec;
  exec.mode = Mode::golden;
  exec.threads = threads;
  const Cost cost = op->cost(arguments);
  op->run(arguments, exec);
  const Tensor first_output = oracle::outputs_of(*op, arguments).front().second.clone();
  double total = 0;
  RowLimits limits(threads, {cost.flops > 0 ? LimitKind::fma : LimitKind::read});
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    op->run(arguments, exec);
    total += seconds_since(begin);
  }
  limits.look();
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  if (cost.flops > 0) {
    state.counters["share_of_F"] = rate(cost.flops * 1e-9 / limits.of(LimitKind::fma));
  } else {
    state.counters["share_of_R"] = rate(cost.bytes_read * 1e-9 / limits.of(LimitKind::read));
  }
  const double eigen = eigen_seconds(*op, arguments, first_output, threads);
  if (eigen == 0) return;
  if (eigen < 0) return state.SkipWithError("Eigen's product differs from golden mode's");
  state.counters["eigen_ms"] = eigen * 1e3;
  state.counters["golden_over_eigen"] = total / static_cast<double>(state.iterations()) / eigen;
}

}  // namespace

bool makes_views(const Op& op) {
  return std::any_of(op.schema().tensors.begin(), op.schema().tensors.end(), [](const TensorSpec& spec) { return !spec.view_of.empty(); });
}

void register_golden_benchmarks(const std::vector<int>& thread_counts) {
  for (const auto& op : registry().all()) {
    const auto found = decode_lines.find(op->name());
    if (found == decode_lines.end() && op->bench_cases().empty()) continue;
    if (makes_views(*op)) continue;  // no kernel runs
    const std::string rest(found != decode_lines.end() ? found->second : std::string_view(op->bench_cases().front()));
    for (const int threads : thread_counts) {
      std::string title = "golden/" + std::string(op->name()) + "/" + rest + "/threads:" + std::to_string(threads);
      std::replace(title.begin(), title.end(), ' ', '_');
      benchmark::RegisterBenchmark(title.c_str(), run, op.get(), rest, threads)->UseRealTime()->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace dodona
