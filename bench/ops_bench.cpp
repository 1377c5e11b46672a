// Benchmarks of every op of the inventory, from the case lines that the ops declare. Each row shows GB/s (bytes that must be read and
// written once), GFLOP/s or GOP/s, and its share of the limit measured right before and after it, the larger of both: C (copy) for ops that
// read and write alike, U (update) where they do so in place, R (read) for ops that mostly read, F (fp32 FMA) for products, V (8-bit
// integer dot products) for products of integers and of codes whose doubled values are; of memory and arithmetic the one that takes longer
// at its limit. Large arguments are copies used in turn, as many as the machine's caches ask for (core/caches.h): those rows are "cold", or
// "not cold" where memory does not allow that many. Ops that take packed weights have rows of them too, whose bytes count as those of raw
// ones.
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
#include "hopper_bench.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "row_limits.h"
#include "simd/amx.h"

namespace dodona {
namespace {

/// Arguments to be used in turn, and what a call with one of them moves.
struct Sets {
  std::string line;
  bool packed = false;
  std::vector<Arguments> arguments;
  Cost cost;
  LimitKind memory = LimitKind::read, arithmetic = LimitKind::fma;
  const char* data = "";

  double bytes() const { return memory == LimitKind::read ? cost.bytes_read : cost.bytes_read + cost.bytes_written; }
};

/// Packed weights in the place of raw ones.
void pack_weights(const Op& op, Arguments& arguments) {
  const std::vector<std::string>& names = op.schema().properties.prepared;
  const auto is_weight = [&](const auto& entry) { return std::find(names.begin(), names.end(), entry.first) != names.end(); };
  Arguments weights;
  weights.attrs = arguments.attrs;
  for (const auto& entry : arguments.tensors)
    if (is_weight(entry)) weights.set(entry.first, entry.second);
  std::erase_if(arguments.tensors, is_weight);
  arguments.prepared = op.pack(weights, Exec{});
}

Arguments copy_of(const Op& op, const Arguments& base, bool packed) {
  const std::vector<std::string>& weights = op.schema().properties.prepared;
  Arguments arguments = base;
  if (packed) pack_weights(op, arguments);
  for (auto& [name, tensor] : arguments.tensors) {
    // Weights that may come packed are raw ones of a checkpoint otherwise, whatever layouts the kernel takes.
    const bool of_checkpoint =
        std::find(weights.begin(), weights.end(), name) != weights.end() && op.schema().find_tensor(name)->layout == Layout::any;
    Tensor fresh = make_strided(tensor.dtype(), tensor.shape(), of_checkpoint ? contiguous_strides(tensor.shape()) : tensor.strides());
    copy(tensor, fresh);
    tensor = fresh;
  }
  op.prepare(arguments);
  for (const TensorSpec& spec : op.schema().tensors)
    if (!spec.view_of.empty()) std::erase_if(arguments.tensors, [&](const auto& entry) { return entry.first == spec.name; });
  return arguments;
}

LimitKind memory_limit_of(const Op& op, const Arguments& arguments, const Cost& cost) {
  if (cost.bytes_written <= 0.4 * cost.bytes_read) return LimitKind::read;
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.direction == Direction::out && arguments.find(spec.name) != nullptr) return LimitKind::copy;
  return LimitKind::update;
}

/// Of an op that multiplies matrices, the first two: V where both hold integers, or NVFP4.
LimitKind arithmetic_limit_of(const Op& op, const Arguments& arguments) {
  int integers = 0, matrices = 0;
  for (const TensorSpec& spec : op.schema().tensors) {
    const Tensor* const tensor = spec.direction == Direction::in ? arguments.find(spec.name) : nullptr;
    if (tensor == nullptr || tensor->rank() < 2 || spec.role == Role::scale || matrices == 2) continue;
    ++matrices;
    integers += tensor->dtype() == DType::i8 || spec.storage.code == DType::f4_e2m1 ? 1 : 0;
  }
  return integers == 2 ? LimitKind::dot8 : LimitKind::fma;
}

Sets sets_of(const Op& op, const std::string& line, bool packed) {
  constexpr double worth_reading_from_memory = 4e6;
  const Arguments base = oracle::generate(parse_case_line(line), default_threads());
  Sets sets{.line = line, .packed = packed};
  Arguments priced = base;
  sets.cost = op.cost(priced);
  const double bytes = sets.cost.bytes_read + sets.cost.bytes_written;
  double footprint = sets.cost.bytes_written;
  for (const auto& entry : base.tensors) footprint += static_cast<double>(bytes_for(entry.second.dtype(), entry.second.elements()));
  const bool large = bytes >= worth_reading_from_memory;
  const Rotation rotation = large ? cold_rotation(memory_facts(), bytes, footprint) : Rotation{};
  for (std::int64_t i = 0; i < rotation.copies; ++i) sets.arguments.push_back(copy_of(op, base, packed));
  Arguments raw = base;
  op.prepare(raw);
  sets.memory = memory_limit_of(op, raw, sets.cost);
  sets.arithmetic = arithmetic_limit_of(op, raw);
  sets.data = !large ? "warm" : rotation.cold ? "cold" : "not cold";
  return sets;
}

struct LimitName {
  const char *share, *best, *rate;
};
const std::map<LimitKind, LimitName> names_of_limits{{LimitKind::read, {"share_of_R", "best_of_R", "GB/s"}},
                                                     {LimitKind::copy, {"share_of_C", "best_of_C", "GB/s"}},
                                                     {LimitKind::update, {"share_of_U", "best_of_U", "GB/s"}},
                                                     {LimitKind::fma, {"share_of_F", "best_of_F", "GFLOP/s"}},
                                                     {LimitKind::dot8, {"share_of_V", "best_of_V", "GOP/s"}}};

/// What binds a call: an amount of work in units of 10^9, and how much of it a second allows.
struct Binding {
  LimitKind kind;
  double work, most;
  double seconds() const { return work / most; }
};
Binding binding_of(const Sets& sets, const RowLimits& limits) {
  const Binding memory{sets.memory, sets.bytes() * 1e-9, limits.of(sets.memory)};
  if (sets.cost.flops <= 0) return memory;
  const Binding arithmetic{sets.arithmetic, sets.cost.flops * 1e-9, limits.of(sets.arithmetic)};
  return memory.seconds() > arithmetic.seconds() ? memory : arithmetic;
}

/// `kept`: the sets of the row before. A row is called several times, and making the sets takes longer than the calls.
void run_case(benchmark::State& state, const Op* op, const std::string& rest, int threads, bool packed, Sets* kept) {
  const std::string line = std::string(op->name()) + " " + rest;
  if (kept->line != line || kept->packed != packed) {
    *kept = {};
    *kept = sets_of(*op, line, packed);
  }
  Exec exec;
  exec.threads = threads;
  RowLimits limits(threads, {kept->memory, kept->arithmetic});
  std::size_t next = 0;
  double best = 1e30;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    op->run(kept->arguments[next], exec);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (++next == kept->arguments.size()) next = 0;
  }
  limits.look();
  const Binding binding = binding_of(*kept, limits);
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  const LimitName& names = names_of_limits.at(binding.kind);
  state.counters[names.rate] = rate(binding.work);
  state.counters[names.share] = rate(binding.seconds());
  state.counters[names.best] = binding.seconds() / best;
  state.SetLabel(kept->data);
}

/// Products whose cost by rows is a curve: with M in front, N and K as in DeepSeek's layers.
struct Curve {
  const char *op, *rest;
};
constexpr Curve curves[] = {
    {"fp8_blockwise_scaled_mm", "N=4096 K=7168"},
    {"fp8_blockwise_scaled_mm", "N=7168 K=2048"},
    {"fp8_scaled_mm", "N=4096 K=7168"},
    {"int8_scaled_mm", "N=4096 K=7168"},
    {"qserve_w4a8_per_chn_gemm", "N=4096 K=7168"},
    {"qserve_w4a8_per_group_gemm", "N=4096 K=7168"},
    {"cutlass_scaled_fp4_mm", "N=4096 K=7168"},
    {"mm_fp4", "N=4096 K=7168 --attr use_nvfp4=false --attr block_size=32 --dtype a_descale=f8_e8m0"},
};
constexpr int curve_rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

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
  const MemoryFacts facts = memory_facts();
  benchmark::AddCustomContext("last_level_cache", std::to_string(facts.cache));
  benchmark::AddCustomContext("isa", std::string(name(default_isa())));
  benchmark::AddCustomContext("amx", std::string(text(amx_facts())));
  benchmark::RegisterBenchmark("call_by_name/rmsnorm_T=1_H=16", call_overhead);
  Sets kept;
  const auto register_rows = [&](const std::string& prefix, const Op& op, const std::string& rest) {
    for (const bool packed : {false, true})
      for (const int threads : counts) {
        if (packed && op.schema().properties.prepared.empty()) continue;
        std::string title =
            prefix + std::string(op.name()) + "/" + rest + (packed ? "/packed" : "") + "/threads:" + std::to_string(threads);
        std::replace(title.begin(), title.end(), ' ', '_');
        benchmark::RegisterBenchmark(title.c_str(), run_case, &op, rest, threads, packed, &kept)
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
  };
  for (const auto& op : registry().all()) {
    if (makes_views(*op)) continue;  // no kernel runs
    for (const std::string& rest : op->bench_cases()) register_rows("", *op, rest);
  }
  for (const Curve& curve : curves)
    for (const int m : curve_rows) register_rows("curve/", registry().at(curve.op), "M=" + std::to_string(m) + " " + curve.rest);
  register_fp4_benchmarks(counts);
  register_golden_benchmarks(counts);
  register_hopper_benchmarks(counts);
  for (const int threads : counts) {
    Exec exec;
    exec.threads = threads;
    const Limits limits = measure_limits(exec);
    for (const auto& [label, most] :
         {std::pair("R_GBps", limits.read), std::pair("C_GBps", limits.copy), std::pair("U_GBps", limits.update),
          std::pair("F_GFLOPps", limits.fma), std::pair("V_GOPps", limits.dot8)})
      benchmark::AddCustomContext(std::string(label) + " threads:" + std::to_string(threads), std::to_string(most));
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
