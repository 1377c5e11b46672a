#include "oracle/judge/pattern/index_rules.h"

#include <algorithm>
#include <cstdlib>

namespace dodona::oracle::pattern {

std::vector<IndexRule> index_rules(std::int64_t extent) {
  std::vector<IndexRule> rules;
  const auto add = [&](std::string words, std::function<std::int64_t(std::int64_t)> from) {
    rules.push_back({std::move(words), [extent, map = std::move(from)](std::int64_t i) {
                       const std::int64_t j = map(i);
                       return j >= 0 && j < extent ? j : -1;
                     }});
  };
  // Powers of two before other numbers.
  std::vector<std::int64_t> numbers;
  for (std::int64_t p = 2; p < extent; p *= 2) numbers.push_back(p);
  for (std::int64_t p = 3; p < std::min<std::int64_t>(extent, 49); ++p)
    if ((p & (p - 1)) != 0) numbers.push_back(p);
  for (const std::int64_t p : {extent / 2, extent / 3, extent / 4, extent / 6})
    if (p > 48 && (p & (p - 1)) != 0) numbers.push_back(p);
  for (const std::int64_t p : numbers) {
    const std::string n = std::to_string(p);
    add("i mod " + n + ": every " + n + " have those of the first " + n, [p](std::int64_t i) { return i % p; });
    add("the first of its " + n, [p](std::int64_t i) { return i / p * p; });
    add("i / " + n, [p](std::int64_t i) { return i / p; });
  }
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step < std::min<std::int64_t>(extent, 65); ++step) steps.push_back(step);
  for (std::int64_t step = 96; step < std::min<std::int64_t>(extent, 1025); step += 32) steps.push_back(step);
  for (const std::int64_t step : steps) {
    const std::string n = std::to_string(step);
    add("i + " + n, [step](std::int64_t i) { return i + step; });
    add("i - " + n, [step](std::int64_t i) { return i - step; });
  }
  for (const std::int64_t bit : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})
    if (bit < extent)
      add(bit == 1 ? std::string("its neighbour: pairs are exchanged") : "i xor " + std::to_string(bit),
          [bit](std::int64_t i) { return i ^ bit; });
  add("the first", [](std::int64_t) { return std::int64_t{0}; });
  add("the last", [extent](std::int64_t) { return extent - 1; });
  add("i counted from the end: in reverse order", [extent](std::int64_t i) { return extent - 1 - i; });
  for (std::int64_t p = 4; 2 * p <= extent; p *= 2) {
    const std::string n = std::to_string(p), tiles = "each tile of " + n + " is looked for ";
    add("i / " + n + " * " + std::to_string(p / 2) + " + i mod " + n + ": " + tiles + "half as far on as it lies",
        [p](std::int64_t i) { return i / p * (p / 2) + i % p; });
  }
  for (const std::int64_t p : numbers) {
    const std::string n = std::to_string(p);
    add(n + " i", [p](std::int64_t i) { return i * p; });
    add(n + " i, round and round", [p, extent](std::int64_t i) { return i * p % extent; });
    add("the one on the other side of its " + n + ": each " + n + " in reverse order",
        [p](std::int64_t i) { return i / p * p + p - 1 - i % p; });
    add("the one behind it in its " + n + ", round and round", [p](std::int64_t i) { return i / p * p + (i + 1) % p; });
    add("the one before it in its " + n + ", round and round", [p](std::int64_t i) { return i / p * p + (i + p - 1) % p; });
    // A matrix in the other order: of P rows.
    if (extent % p == 0)
      add("i / " + n + " of the " + n + " parts' i mod " + n + ": by columns, not by rows",
          [p, extent](std::int64_t i) { return i % p * (extent / p) + i / p; });
  }
  // Likewise within blocks: what is interleaved in another way.
  for (std::int64_t block = 4; block < extent && block <= 256; block *= 2)
    for (std::int64_t p = 2; p < block && extent % block == 0; p *= 2)
      add("i of its " + std::to_string(block) + " in the other order, by columns of " + std::to_string(p) +
              ": interleaved, or split, otherwise",
          [block, p](std::int64_t i) { return i / block * block + i % block % p * (block / p) + i % block / p; });
  return rules;
}

}  // namespace dodona::oracle::pattern
