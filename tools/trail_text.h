// Where two trails of a layer part, or a run and a trail: for people and for programs.
#pragma once

#include "io/json.h"
#include "model/trail.h"

namespace dodona::tools {

io::Json to_json(const model::TrailDifference& difference);
void print_difference(const model::TrailDifference& difference);

}  // namespace dodona::tools
