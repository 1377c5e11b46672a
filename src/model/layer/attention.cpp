#include "model/layer/attention.h"

#include <array>

#include "dodona/error.h"

namespace dodona::model {
namespace {

constexpr std::array paths{&mla_decode_path};

}  // namespace

const AttentionPath& choose_attention(const Batch& batch) {
  for (const AttentionPath* path : paths)
    if (path->accepts(batch)) return *path;
  throw Error(ErrorCode::unsupported, "", "batch",
              "of " + std::to_string(batch.size()) + " requests brings " + std::to_string(batch.tokens()) +
                  " tokens: no attention path takes more than one of each request");
}

}  // namespace dodona::model
