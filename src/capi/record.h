// Text that the library made and C holds.
#pragma once

#include <string>

#include "dodona/c.h"

struct dodona_record {
  std::string text;
};
