#include "ops/kv_cache/transfer_kv_all_layer_lf_pf.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_all_layer_lf_pf() {
  return define<ops::TransferKvAllLayerLfPf>(ops::kv_transfer<ops::TransferKvAllLayerLfPf>(
      R"(Item src_indices[i] of every layer of the source goes to that layer of slot dst_indices[i] of a page-first destination.)",
      [](const ops::TransferKvAllLayerLfPf& op) {
        ops::check_kv_transfer(op, {.layout_attr = "dst_layout_dim", .layout_dim = op.dst_layout_dim});
      },
      {"n=5 Ss=9 Sd=7 D=256 --attr num_layers=3", "n=3 Ss=4 Sd=6 H=3 D=16 --attr num_layers=2 --dtype src_k_layers=f16"},
      {"n=512 Ss=1024 Sd=1024 D=576 --attr num_layers=16"}));
}
}  // namespace dodona
