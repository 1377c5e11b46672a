// What an op computes, in a sentence or a formula, and where it comes from.
#pragma once

#include <string_view>

namespace dodona::ops {

/// The comment above the op's struct in its header, on one line: `y[t,h] = ... Source: sgl-kernel ...`; empty where there is no such op.
/// The build takes it from there (tools/cmake/op_texts.cmake), so that readers of the code and of `dodona info` are told the same.
std::string_view about(std::string_view op);

}  // namespace dodona::ops
