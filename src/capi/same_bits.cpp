// Bits of several runs, from C.
#include "oracle/judge/same_bits.h"

#include <memory>

#include "capi/guard.h"
#include "capi/translate.h"
#include "dodona/error.h"

struct dodona_bits {
  bool same;
  std::string text, json;
};

namespace dodona::capi {
namespace {

dodona_bits* same_bits(const dodona_tensor* tensors, const std::size_t* counts, const char* const* names, std::size_t runs) {
  std::vector<NamedTensors> outputs;
  std::vector<std::string> called;
  std::size_t at = 0;
  for (std::size_t run = 0; run < runs; ++run) {
    called.push_back(names == nullptr ? "run " + std::to_string(run + 1) : std::string(&required(names[run], "the name of a run")));
    const std::size_t count = (&required(counts, "counts"))[run];
    outputs.push_back(to_tensors("", count == 0 ? nullptr : &required(tensors, "tensors") + at, count));
    at += count;
  }
  const oracle::SameBits answer = oracle::same_bits(outputs);
  return new dodona_bits{answer.same(), oracle::text_of(answer, called), io::json_text(oracle::to_json(answer, called))};
}

}  // namespace
}  // namespace dodona::capi

int dodona_same_bits(const dodona_tensor* tensors, const std::size_t* counts, const char* const* names, std::size_t runs,
                     dodona_bits** answer) {
  return dodona::capi::guarded([&] {
    dodona::capi::required(answer, "the place for the result") = nullptr;
    *answer = dodona::capi::same_bits(tensors, counts, names, runs);
  });
}
int dodona_bits_same(const dodona_bits* answer) {
  return answer != nullptr && answer->same ? 1 : 0;
}
const char* dodona_bits_text(const dodona_bits* answer) {
  return answer == nullptr ? "" : answer->text.c_str();
}
const char* dodona_bits_json(const dodona_bits* answer) {
  return answer == nullptr ? "" : answer->json.c_str();
}
void dodona_bits_free(dodona_bits* answer) {
  delete answer;
}
