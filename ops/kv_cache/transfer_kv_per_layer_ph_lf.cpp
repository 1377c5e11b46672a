#include "ops/kv_cache/transfer_kv_per_layer_ph_lf.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_per_layer_ph_lf() {
  return define<ops::TransferKvPerLayerPhLf>(ops::kv_transfer<ops::TransferKvPerLayerPhLf>(
      R"(Head by head, layer layer_id of slot src_indices[i] of a page-head source goes to slot dst_indices[i] of the destination, which is one layer.)",
      [](const ops::TransferKvPerLayerPhLf& op) {
        ops::check_kv_transfer(op, {.layer_id = op.layer_id, .layout_attr = "src_layout_dim", .layout_dim = op.src_layout_dim});
      },
      {"n=5 pages=3 Sd=7 L=3 D=64 --attr layer_id=1 --attr page_size=4 --attr head_num=2",
       "n=3 pages=2 Sd=6 L=2 H=3 D=32 --attr layer_id=0 --attr page_size=2 --attr head_num=3 --dtype src_k=f8_e4m3"},
      {"n=2048 pages=64 Sd=4096 L=4 D=128 --attr layer_id=1 --attr page_size=64 --attr head_num=8"}));
}
}  // namespace dodona
