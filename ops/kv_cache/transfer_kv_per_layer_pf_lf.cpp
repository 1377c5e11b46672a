#include "ops/kv_cache/transfer_kv_per_layer_pf_lf.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_per_layer_pf_lf() {
  return define<ops::TransferKvPerLayerPfLf>(ops::kv_transfer<ops::TransferKvPerLayerPfLf>(
      R"(Layer layer_id of slot src_indices[i] of a page-first source goes to slot dst_indices[i] of the destination, which is one layer.)",
      [](const ops::TransferKvPerLayerPfLf& op) {
        ops::check_kv_transfer(op, {.layer_id = op.layer_id, .layout_attr = "src_layout_dim", .layout_dim = op.src_layout_dim});
      },
      {"n=5 Ss=9 Sd=7 L=3 D=128 --attr layer_id=1", "n=3 Ss=4 Sd=6 L=2 H=3 D=16 --attr layer_id=0 --dtype src_k=f8_e4m3"},
      {"n=4096 Ss=4096 Sd=8192 L=4 D=576 --attr layer_id=2"}));
}
}  // namespace dodona
