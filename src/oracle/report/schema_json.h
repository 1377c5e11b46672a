// An op as JSON: everything that another language needs to call it and to say what it takes.
#pragma once

#include <string>
#include <string_view>

#include "dodona/op.h"
#include "io/json.h"

namespace dodona::oracle {

/// Arguments, attributes, upstream's signature, the contract, known defects, case lines.
io::Json schema_json(const Op& op);

/// in, out, or in place.
std::string_view direction_name(const TensorSpec& spec);

}  // namespace dodona::oracle
