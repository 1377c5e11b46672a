#pragma once

#include <cstdint>
#include <optional>

namespace dodona {

/// The value of an environment variable that overrides what is detected; nothing where it is not set or empty. Throws Error (bad_option)
/// naming the variable when it is no whole number from `least` to `most`.
std::optional<std::int64_t> whole_number_from_environment(const char* variable, std::int64_t least, std::int64_t most);

}  // namespace dodona
