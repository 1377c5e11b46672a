#include "capi/guard.h"

#include <array>
#include <new>

#include "dodona/error.h"

namespace dodona::capi {
namespace {

struct BadCall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LastError {
  int code = DODONA_OK;
  std::string text, op, argument;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

static_assert(DODONA_UNKNOWN_OP == static_cast<int>(ErrorCode::unknown_op) + 1 &&
                  DODONA_BAD_OPTION == static_cast<int>(ErrorCode::bad_option) + 1,
              "statuses follow the order of the error codes");

int keep(int code, const char* text, const std::string& op = {}, const std::string& argument = {}) noexcept {
  try {
    last_error() = {code, text, op, argument};
  } catch (...) {
    last_error().code = code;  // no memory for the words
    last_error().text.clear();
  }
  return code;
}

}  // namespace

void bad_call(const std::string& what) {
  throw BadCall(what);
}

int keep_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(static_cast<int>(error.code()) + 1, error.what(), error.op(), error.argument());
  } catch (const BadCall& error) {
    return keep(DODONA_BAD_CALL, error.what());
  } catch (const std::bad_alloc&) {
    return keep(DODONA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return keep(DODONA_INTERNAL, error.what());
  } catch (...) {
    return keep(DODONA_INTERNAL, "unknown exception");
  }
}

}  // namespace dodona::capi

using dodona::capi::last_error;

const char* dodona_last_error(void) {
  return last_error().text.c_str();
}
int dodona_last_error_code(void) {
  return last_error().code;
}
const char* dodona_last_error_op(void) {
  return last_error().op.c_str();
}
const char* dodona_last_error_argument(void) {
  return last_error().argument.c_str();
}

const char* dodona_status_name(int status) {
  if (status == DODONA_OK) return "ok";
  if (status == DODONA_BAD_CALL) return "bad call";
  if (status == DODONA_INTERNAL) return "internal fault";
  if (status < DODONA_OK || status > DODONA_INTERNAL) return "unknown status";
  return dodona::to_string(static_cast<dodona::ErrorCode>(status - 1));
}
