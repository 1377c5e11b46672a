// The edge of the library: nothing is thrown across it, and what went wrong is kept for the thread that asked.
#pragma once

#include <string>

#include "dodona/c.h"

namespace dodona::capi {

/// Stores the exception in flight as the thread's last error and returns its code. Only to be called while one is handled.
int keep_error() noexcept;

/// Throws the error of a call that cannot be: `what` says which argument and why.
[[noreturn]] void bad_call(const std::string& what);

/// Runs `body`; what it throws becomes a status.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return DODONA_OK;
  } catch (...) {
    return keep_error();
  }
}

/// `pointer`, which must not be null.
template <class T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) bad_call(std::string(what) + " is a null pointer");
  return *pointer;
}

}  // namespace dodona::capi
