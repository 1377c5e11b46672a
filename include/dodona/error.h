// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace dodona {

enum class ErrorCode {
  unknown_op,        ///< no op of that name in the inventory
  unknown_argument,  ///< the op has no argument or attribute of that name
  missing_argument,  ///< a required tensor or attribute was not given
  bad_dtype,         ///< element type not accepted
  bad_shape,         ///< rank or size clashes with the schema or another argument
  bad_stride,        ///< memory layout not accepted
  bad_alignment,     ///< base pointer or stride not aligned as required
  bad_alias,         ///< two arguments share memory that the op must not share
  bad_value,         ///< attribute or tensor content out of range
  unsupported,       ///< valid, but this op, mode or build cannot do it
  out_of_memory,     ///< the machine cannot hold what was asked for
  bad_file,          ///< unreadable, truncated or hostile file
  bad_option,        ///< impossible command-line or environment setting
};

const char* to_string(ErrorCode code);

/// Carries what went wrong and where. `what()` reads `op: argument message`, empty parts left out; the message is a phrase
/// about the argument: `rmsnorm: weight has shape [7167], expected [H] with H = 7168 (from input [4, 7168])`.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string op, std::string argument, const std::string& message);

  ErrorCode code() const { return code_; }
  const std::string& op() const { return op_; }
  const std::string& argument() const { return argument_; }
  const std::string& message() const { return message_; }

  /// The same error, told as one of `op`: used where a lower layer does not know the op.
  Error within(const std::string& op) const;

 private:
  ErrorCode code_;
  std::string op_, argument_, message_;
};

}  // namespace dodona
