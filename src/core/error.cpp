#include "dodona/error.h"

#include <utility>

namespace dodona {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::unknown_op: return "unknown_op";
    case ErrorCode::unknown_argument: return "unknown_argument";
    case ErrorCode::missing_argument: return "missing_argument";
    case ErrorCode::bad_dtype: return "bad_dtype";
    case ErrorCode::bad_shape: return "bad_shape";
    case ErrorCode::bad_stride: return "bad_stride";
    case ErrorCode::bad_alignment: return "bad_alignment";
    case ErrorCode::bad_alias: return "bad_alias";
    case ErrorCode::bad_value: return "bad_value";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::bad_file: return "bad_file";
    case ErrorCode::bad_option: return "bad_option";
  }
  return "error";
}

namespace {
std::string describe(const std::string& op, const std::string& argument, const std::string& message) {
  std::string text;
  if (!op.empty()) text += op + ": ";
  if (!argument.empty()) text += argument + " ";
  return text + message;
}
}  // namespace

Error::Error(ErrorCode code, std::string op, std::string argument, const std::string& message)
    : std::runtime_error(describe(op, argument, message)),
      code_(code),
      op_(std::move(op)),
      argument_(std::move(argument)),
      message_(message) {}

Error Error::within(const std::string& op) const {
  return op_.empty() ? Error(code_, op, argument_, message_) : *this;
}

}  // namespace dodona
