#include "oracle/judge/vacuous.h"

namespace dodona::oracle {

std::string_view why_vacuous(const OutputVerdict& output) {
  if (output.elements == 0) return "nothing was compared: no output has an element";
  if (output.compared == 0) return "nothing was compared: the contract leaves every element open for these inputs";
  return "nearly every element would pass as zero too: this case cannot tell right from wrong";
}

}  // namespace dodona::oracle
