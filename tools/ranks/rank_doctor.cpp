#include "rank_doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "core/define.h"
#include "ops/utility/all_reduce.h"
#include "rank_process.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

constexpr std::int64_t hidden = 7168;

/// Microseconds of calls that all ranks begin together, the smallest first.
std::vector<double> times_of(const MpiJob& job, const std::function<void()>& call) {
  constexpr int warm = 20, counted = 200;
  std::vector<double> times;
  for (int i = 0; i < warm + counted; ++i) {
    if (i % 20 == 0) job.gather("");
    const auto begin = std::chrono::steady_clock::now();
    call();
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    if (i >= warm) times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

int doctor_of_ranks(bool json) {
  RankProcess process;
  MpiJob& job = process.job();
  process.begin([]() -> Facts { return {}; });
  return process.run([&] {
    const model::Ranks groups = job.groups({.experts = job.ranks()});
    model::RankGroup& all = *groups.experts;
    io::Json list = io::Json::array();
    std::vector<std::vector<std::string>> rows;
    const auto measure = [&](const std::string& name, std::int64_t bytes, const std::function<void()>& call) {
      const std::vector<double> times = times_of(job, call);
      const double least = times.front(), median = times[times.size() / 2], worst = times[times.size() * 9 / 10];
      rows.push_back(
          {name, std::to_string(bytes), fmt::format("{:.1f}", least), fmt::format("{:.1f}", median), fmt::format("{:.1f}", worst)});
      list.push_back({{"collective", name}, {"bytes_of_a_rank", bytes}, {"least_us", least}, {"median_us", median}, {"p90_us", worst}});
    };
    const Tensor one(DType::i64, {1});
    measure("gather of a number", 8, [&] { all.gather_alike(one); });
    for (const std::int64_t tokens : {1, 16}) {
      const Tensor term(DType::bf16, {tokens, hidden});
      const std::string shape = fmt::format("[{}, {}] bf16", tokens, hidden);
      const std::int64_t bytes = 2 * term.elements();
      measure("gather of " + shape, bytes, [&] { all.gather_alike(term); });
      const Tensor letter(DType::u8, {bytes / job.ranks()});
      const std::vector<Tensor> letters(static_cast<std::size_t>(job.ranks()), letter);
      measure("exchange of " + shape, bytes, [&] { all.exchange(job.rank(), letters); });
      if (job.ranks() != 2 && job.ranks() != 4 && job.ranks() != 6 && job.ranks() != 8) continue;
      const Tensor terms = all.gather_alike(term);
      Exec exec;
      exec.threads = 1;
      measure("sum of " + shape + ", one thread", bytes, [&] { ops::run(ops::AllReduce{.inp = terms}, exec); });
    }
    if (job.rank() != 0) return;
    if (json)
      fmt::print("{}\n", io::json_text({{"ranks", job.ranks()}, {"collectives", list}}, 2));
    else
      fmt::print("{} ranks, as rank 0 sees them\n\n{}", job.ranks(),
                 table({"collective", "bytes of a rank", "least us", "median us", "90 % below us"}, rows, {false, true, true, true, true}));
  });
}

}  // namespace dodona::tools
