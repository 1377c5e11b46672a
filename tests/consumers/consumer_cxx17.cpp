// The C interface from C++17: a case is made and its golden outputs pass.
#include <cstdio>

#include "dodona/c.h"

static_assert(__cplusplus < 202002L, "the C interface must not need C++20");

int main() {
  dodona_case* made = nullptr;
  dodona_tensors* outputs = nullptr;
  if (dodona_case_from_line("rmsnorm T=2 H=64 --seed 7", nullptr, &made) != DODONA_OK) return std::puts(dodona_last_error()), 1;
  if (dodona_case_run(made, nullptr, &outputs) != DODONA_OK) return std::puts(dodona_last_error()), 2;
  dodona_tensor output;
  if (dodona_tensors_get(outputs, 0, &output) != DODONA_OK) return 3;
  dodona_verdict* verdict = nullptr;
  if (dodona_case_check(made, &output, 1, nullptr, &verdict) != DODONA_OK) return std::puts(dodona_last_error()), 4;
  const bool passes = dodona_verdict_passes(verdict) == 1;
  dodona_verdict_free(verdict);
  dodona_tensors_free(outputs);
  dodona_case_free(made);
  return passes ? 0 : 5;
}
