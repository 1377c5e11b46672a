#include "dodona/version.h"

#include "dodona/exec.h"

namespace dodona {

std::string version() {
  return DODONA_VERSION;
}

std::string version_text() {
  std::string text = "dodona " + version() + "\ncompiler ";
#if defined(__clang__)
  text += "clang " __clang_version__;
#else
  text += "gcc " __VERSION__;
#endif
  text += "\ntiers this machine can run:";
  for (const Isa isa : available_isas()) text += " " + std::string(name(isa));
#if defined(__clang__)
  text += "\nOpenMP runtime libomp";
#else
  text += "\nOpenMP runtime libgomp";
#endif
  return text;
}

}  // namespace dodona
