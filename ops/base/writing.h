// How vector code writes a row of an output.
#pragma once

#include <cstdint>

namespace dodona::ops {

/// How a row of the output is written: into the caches; past them (see streaming.h); or past them and made visible to other threads, which
/// ends a run of such rows.
enum class Writing : std::uint8_t { cached, streamed, streamed_last };

}  // namespace dodona::ops
