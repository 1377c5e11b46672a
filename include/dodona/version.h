// What this build is.
#pragma once

#include <string>

namespace dodona {

/// Semantic version of the library: `0.1.0`.
std::string version();
/// Version, compiler, tiers built in and the OpenMP runtime, over several lines.
std::string version_text();

}  // namespace dodona
