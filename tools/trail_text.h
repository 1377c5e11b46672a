// Where two trails of a layer part, or a run and a trail: for people and for programs.
#pragma once

#include <cstdio>

#include "io/json.h"
#include "trail/trail_difference.h"

namespace dodona::tools {

io::Json to_json(const trail::TrailDifference& difference);
void print_difference(const trail::TrailDifference& difference, std::FILE* out = stdout);

}  // namespace dodona::tools
