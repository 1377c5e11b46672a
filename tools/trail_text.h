// Where two trails of a layer part, or a run and a trail: for people and for programs.
#pragma once

#include "io/json.h"
#include "trail/trail_difference.h"

namespace dodona::tools {

io::Json to_json(const trail::TrailDifference& difference);
void print_difference(const trail::TrailDifference& difference);

}  // namespace dodona::tools
