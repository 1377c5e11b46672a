// What calls that must fail say.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dodona/error.h"

namespace dodona::helpers {

/// The error that `call` ends in; none where it ends well.
template <class Call>
std::optional<Error> error_in(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// What the error says that `call` ends in; nothing where it ends well.
template <class Call>
std::string message_in(const Call& call) {
  const auto error = error_in(call);
  return error ? error->what() : "";
}

/// The error that `call` must end in.
template <class Call>
Error error_from(const Call& call) {
  if (auto error = error_in(call)) return *error;
  ADD_FAILURE() << "there is no error";
  return Error(ErrorCode::unknown_op, "", "", "there is no error");
}

/// `action` must end in an error of that code whose text, which is given back, has every part.
inline std::string expect_error(const std::function<void()>& action, ErrorCode code, const std::vector<std::string>& parts) {
  const auto error = error_in(action);
  if (!error) {
    ADD_FAILURE() << "no error; expected one with \"" << parts.front() << "\"";
    return {};
  }
  const std::string text = error->what();
  EXPECT_STREQ(to_string(error->code()), to_string(code)) << text;
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "in \"" << text << "\" there is no \"" << part << "\"";
  return text;
}
template <std::convertible_to<std::string> Part>
std::string expect_error(const std::function<void()>& action, ErrorCode code, const Part& part) {
  return expect_error(action, code, std::vector<std::string>{part});
}

}  // namespace dodona::helpers
