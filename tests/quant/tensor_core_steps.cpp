// Steps of tensor cores in bulk, for comparisons that take minutes.
//
//   tensor_core_steps list                           the instructions
//   tensor_core_steps compare NAME STEPS [THREADS]   this library against integers, random and edge steps; speeds of both
//   tensor_core_steps speed NAME [THREADS]           steps a second in chains over K = 256, ordinary numbers
//   tensor_core_steps stream NAME M N SEED KIND COUNT
//                                                    COUNT batches of M x N steps to stdout, as bytes: a, b, scale_a, scale_b, c, this
//                                                    library's d, and the seconds (f64) that it took (KIND: all, ordinary)
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/quant/random_steps.h"

namespace dodona::steps {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Tally {
  long long steps = 0, differing = 0, special = 0;
  double library = 0, integers = 0;
};

void compare_batch(const Format& format, std::uint64_t seed, Tally& tally) {
  Random random(seed);
  const Batch batch = draw(random, format, 64, 64);
  auto begin = std::chrono::steady_clock::now();
  const std::vector<float> own = by_library(format, batch);
  tally.library += seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  const std::vector<std::uint32_t> other = by_integers(format, batch);
  tally.integers += seconds_since(begin);
  for (std::size_t i = 0; i < own.size(); ++i) {
    tally.differing += std::bit_cast<std::uint32_t>(own[i]) != other[i];
    tally.special += (other[i] & 0x7F800000u) == 0x7F800000u;
  }
  tally.steps += static_cast<long long>(own.size());
}

int compare(const Format& format, long long steps, int threads) {
  const long long batches = (steps + 4095) / 4096;
  Tally all;
#pragma omp parallel num_threads(threads)
  {
    Tally own;
#pragma omp for schedule(dynamic, 16)
    for (long long i = 0; i < batches; ++i) compare_batch(format, static_cast<std::uint64_t>(i) * 1000003u + 17, own);
#pragma omp critical
    {
      all.steps += own.steps, all.differing += own.differing, all.special += own.special;
      all.library += own.library, all.integers += own.integers;
    }
  }
  const auto count = static_cast<double>(all.steps);
  std::printf(
      "{\"format\": \"%s\", \"steps\": %lld, \"differing\": %lld, \"nan_or_infinite\": %lld, \"library_steps_per_second_per_thread\": "
      "%.3g, "
      "\"integer_steps_per_second_per_thread\": %.3g}\n",
      std::string(format.name).c_str(), all.steps, all.differing, all.special, count / all.library, count / all.integers);
  return all.differing == 0 ? 0 : 1;
}

/// Of chains of steps over as much of K as products decode at a time; decoding included.
int speed(Format format, int threads) {
  const int instruction = format.k(), chain = 256 / instruction;
  format.integers.k *= chain;
  Random random(1);
  const Batch batch = draw(random, format, 64, 256, Kind::ordinary);
  const int rounds = 16 * threads;
  double best = 0;
  for (int again = 0; again < 8; ++again) {
    const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < rounds; ++i) by_library(format, batch);
    best = std::max(best, static_cast<double>(rounds * chain) * static_cast<double>(batch.c.size()) / seconds_since(begin));
  }
  std::printf("{\"format\": \"%s\", \"threads\": %d, \"steps_per_second\": %.4g, \"products_per_second\": %.4g}\n",
              std::string(format.name).c_str(), threads, best, best * instruction);
  return 0;
}

template <class Element>
void write_all(const std::vector<Element>& from) {
  std::fwrite(from.data(), sizeof(Element), from.size(), stdout);
}

int stream(const Format& format, int m, int n, std::uint64_t seed, Kind kind, long long batches) {
  for (long long i = 0; i < batches; ++i) {
    Random random(seed + static_cast<std::uint64_t>(i) * 1000003u);
    const Batch batch = draw(random, format, m, n, kind);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<float> d = by_library(format, batch);
    const double seconds = seconds_since(begin);
    write_all(batch.a);
    write_all(batch.b);
    write_all(batch.scale_a);
    write_all(batch.scale_b);
    write_all(batch.c);
    write_all(d);
    write_all(std::vector<double>{seconds});
    if (std::fflush(stdout) != 0) return 2;  // the reader has enough
  }
  return 0;
}

int usage() {
  std::fputs(
      "usage: tensor_core_steps list | compare NAME STEPS [THREADS] | speed NAME [THREADS] | stream NAME M N SEED all|ordinary COUNT\n",
      stderr);
  return 2;
}

int run(int count, char** words) {
  const std::string command = count > 1 ? words[1] : "";
  if (command == "list") {
    for (const Format& format : formats) std::printf("%s\n", std::string(format.name).c_str());
    return 0;
  }
  const Format* format = count > 2 ? find(words[2]) : nullptr;
  if (format == nullptr) return usage();
  const auto number = [&](int at, long long otherwise) { return count > at ? std::atoll(words[at]) : otherwise; };
  const int processors = omp_get_num_procs();
  if (command == "compare") return compare(*format, number(3, 1000000), static_cast<int>(number(4, processors)));
  if (command == "speed") return speed(*format, static_cast<int>(number(3, 1)));
  if (command == "stream" && count > 7)
    return stream(*format, static_cast<int>(number(3, 1)), static_cast<int>(number(4, 1)), static_cast<std::uint64_t>(number(5, 0)),
                  std::strcmp(words[6], "ordinary") == 0 ? Kind::ordinary : Kind::all, number(7, 1));
  return usage();
}

}  // namespace
}  // namespace dodona::steps

int main(int count, char** words) {
  return dodona::steps::run(count, words);
}
