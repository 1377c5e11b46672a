#include "ops/kv_cache/transfer_kv_per_layer.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_per_layer() {
  return define<ops::TransferKvPerLayer>(ops::kv_transfer<ops::TransferKvPerLayer>(
      R"(Item src_indices[i] of the source goes to slot dst_indices[i] of the destination, in one layer.)",
      [](const ops::TransferKvPerLayer& op) { ops::check_kv_transfer(op, {}); },
      {"n=5 Ss=9 Sd=7 D=256", "n=3 Ss=4 Sd=6 D=32 --dtype src_k=f8_e4m3", "n=1 Ss=1 Sd=2 D=8 --dtype src_k=f32",
       "n=3 Ss=4 Sd=6 H=3 D=16 --dtype src_k=i8"},
      {"n=4096 Ss=8192 Sd=8192 D=1024", "n=64 Ss=8192 Sd=8192 D=576"}));
}
}  // namespace dodona
