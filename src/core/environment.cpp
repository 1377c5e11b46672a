#include "core/environment.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include "dodona/error.h"

namespace dodona {

std::optional<std::int64_t> whole_number_from_environment(const char* variable, std::int64_t least, std::int64_t most) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (*end != '\0' || errno != 0 || value < least || value > most)
    throw Error(ErrorCode::bad_option, "", variable,
                "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", got '" + text + "'");
  return value;
}

}  // namespace dodona
