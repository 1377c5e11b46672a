#include "ops/kv_cache/transfer_kv_all_layer.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_all_layer() {
  return define<ops::TransferKvAllLayer>(ops::kv_transfer<ops::TransferKvAllLayer>(
      R"(Item src_indices[i] of every layer of the source goes to slot dst_indices[i] of the same layer of the destination.)",
      [](const ops::TransferKvAllLayer& op) { ops::check_kv_transfer(op, {}); },
      {"n=5 Ss=9 Sd=7 D=256 --attr num_layers=3", "n=3 Ss=4 Sd=6 H=3 D=16 --attr num_layers=2 --dtype src_k_layers=u8"},
      {"n=512 Ss=1024 Sd=1024 D=576 --attr num_layers=16"}));
}
}  // namespace dodona
