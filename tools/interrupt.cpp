#include "interrupt.h"

#include <csignal>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

// A handler can leave word nowhere else.
volatile std::sig_atomic_t interrupted = 0;

void remember(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
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
