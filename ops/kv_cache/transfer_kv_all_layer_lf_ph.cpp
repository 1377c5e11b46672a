#include "ops/kv_cache/transfer_kv_all_layer_lf_ph.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_all_layer_lf_ph() {
  return define<ops::TransferKvAllLayerLfPh>(ops::kv_transfer<ops::TransferKvAllLayerLfPh>(
      R"(Head by head, item src_indices[i] of every layer of the source goes to that layer of slot dst_indices[i] of a page-head destination.)",
      [](const ops::TransferKvAllLayerLfPh& op) {
        ops::check_kv_transfer(op, {.layout_attr = "dst_layout_dim", .layout_dim = op.dst_layout_dim});
      },
      {"n=5 Ss=9 pages=3 D=64 --attr num_layers=3 --attr page_size=4 --attr head_num=2",
       "n=3 Ss=4 pages=2 H=3 D=32 --attr num_layers=2 --attr page_size=2 --attr head_num=3 --dtype src_k_layers=f8_e4m3"},
      {"n=512 Ss=1024 pages=16 D=128 --attr num_layers=16 --attr page_size=64 --attr head_num=8"}));
}
}  // namespace dodona
