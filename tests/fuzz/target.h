// Targets of the fuzzer: each takes any bytes, hands them to one reader of the library, and aborts where the reader breaks its word.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "dodona/error.h"
#include "dodona/tensor.h"

namespace dodona::fuzz {

using Bytes = std::span<const std::byte>;

struct Target {
  std::string_view name;
  void (*run)(Bytes input);
};
/// All of them, by name.
std::span<const Target> targets();
/// Ends the process where there is none of that name.
const Target& target(std::string_view name);

void call(Bytes input);
void case_file(Bytes input);
void case_line(Bytes input);
void config(Bytes input);
void fib(Bytes input);
void json(Bytes input);
void npy(Bytes input);
void npz(Bytes input);
void safetensors(Bytes input);
void shape(Bytes input);
void suite(Bytes input);

/// Ends the process with a word on what does not hold.
[[noreturn]] void broken(const std::string& what);
inline void require(bool holds, const char* what) {
  if (!holds) broken(what);
}

/// Runs `body`. An Error with a message is an answer as good as any; another exception is a finding.
template <class Body>
void unless_refused(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    require(!std::string_view(error.what()).empty(), "an Error says nothing");
  } catch (const std::exception& error) {
    broken(std::string("an exception that is no Error: ") + error.what());
  }
}

inline std::string_view text_of(Bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// The same bytes as a file of its own, in memory. The path is good until the next file.
std::string as_file(Bytes input);

/// Whether two tensors have one type, shape and value.
bool equal(const Tensor& a, const Tensor& b);

}  // namespace dodona::fuzz
