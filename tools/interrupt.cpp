#include "interrupt.h"

#include <time.h>

#include <csignal>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

// A handler can leave word nowhere else.
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t first_at = 0;

// Milliseconds of the steady clock within a day, by a call that a handler may make.
std::sig_atomic_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::sig_atomic_t>(time.tv_sec % 86400 * 1000 + time.tv_nsec / 1000000);
}

// timeout(1) and other wrappers signal the process and then its group: what comes right behind the first is the same request.
constexpr int same_request_ms = 500;

void remember(int signal) {
  if (interrupted == 0) {
    interrupted = 1;
    first_at = now();
    return;
  }
  const int since = now() - first_at;
  if (since >= 0 && since < same_request_ms) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}
Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::asked() {
  return interrupted != 0;
}

void Interrupt::check(const std::string& outcome) const {
  if (asked()) throw Error(ErrorCode::bad_value, "", "", "interrupted: " + outcome);
}

}  // namespace dodona::tools
