#include "ops/softmax/layouts/offsets.h"

#include "dodona/error.h"

namespace dodona::ops {

void check_offsets(const Tensor& offsets, std::string_view name, std::int64_t end, const std::string& of, bool whole) {
  const auto* const at = offsets.as<const std::int32_t>();
  const std::int64_t count = offsets.size(0);
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t least = b == 0 ? 0 : at[b - 1], most = b == 0 ? 0 : end;
    if (at[b] < least || at[b] > most || (whole && b + 1 == count && at[b] != end))
      throw Error(ErrorCode::bad_value, "", std::string(name),
                  "holds " + std::to_string(at[b]) + " at element " + std::to_string(b) +
                      ", expected offsets that begin at 0, do not fall and " + (whole ? "end at " : "stay within ") + std::to_string(end) +
                      ", " + of);
  }
}

std::string tokens_of(std::string_view name, const Tensor& t) {
  return "the tokens of " + std::string(name) + " " + to_string(t.shape());
}

}  // namespace dodona::ops
