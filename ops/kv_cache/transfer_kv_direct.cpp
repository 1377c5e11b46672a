#include "ops/kv_cache/transfer_kv_direct.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_direct() {
  return define<ops::TransferKvDirect>(ops::kv_transfer<ops::TransferKvDirect>(
      R"(Item src_indices[i] of every layer of the source goes to slot dst_indices[i] of the same layer of the destination; there are page_size items, or a multiple of that.)",
      [](const ops::TransferKvDirect& op) { ops::check_kv_transfer(op, {.page_size = op.page_size}); },
      {"n=8 L=3 Ss=9 Sd=12 D=64 --attr page_size=4", "n=3 L=2 Ss=4 Sd=6 H=3 D=5 --attr page_size=1 --dtype src_layers=f16"},
      {"n=512 L=16 Ss=1024 Sd=1024 D=576 --attr page_size=64"}));
}
}  // namespace dodona
