#include "ops/kv_cache/transfer_kv_per_layer_mla.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_per_layer_mla() {
  return define<ops::TransferKvPerLayerMla>(ops::kv_transfer<ops::TransferKvPerLayerMla>(
      R"(Item src_indices[i] of the source goes to slot dst_indices[i] of the destination, in one layer.)",
      [](const ops::TransferKvPerLayerMla& op) { ops::check_kv_transfer(op, {}); },
      {"n=5 Ss=9 Sd=7 D=576", "n=3 Ss=4 Sd=6 D=32 --dtype src=f8_e4m3", "n=1 Ss=1 Sd=2 H=3 D=4 --dtype src=f64"},
      {"n=4096 Ss=8192 Sd=8192 D=576", "n=64 Ss=8192 Sd=8192 D=576"}));
}
}  // namespace dodona
