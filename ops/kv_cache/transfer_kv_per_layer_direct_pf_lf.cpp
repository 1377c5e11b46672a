#include "ops/kv_cache/transfer_kv_per_layer_direct_pf_lf.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_per_layer_direct_pf_lf() {
  Implementation<ops::TransferKvPerLayerDirectPfLf> made = ops::kv_transfer<ops::TransferKvPerLayerDirectPfLf>(
      R"(Layers layer_id and on of whole pages of the source go to as many layers of the destination.)",
      [](const ops::TransferKvPerLayerDirectPfLf& op) { ops::check_kv_transfer(op, {.layer_id = op.layer_id + op.group_layers() - 1}); },
      {"n=8 C=2 pages=3 L=3 N=1 Sd=12 D=64 --attr page_size=4 --attr layer_id=1",
       "n=4 C=1 pages=3 L=3 N=2 Sd=6 H=3 D=5 --attr page_size=2 --attr layer_id=0 --dtype src_ptrs=f16"},
      {"n=4096 C=1 pages=64 L=4 N=1 Sd=8192 D=576 --attr page_size=64 --attr layer_id=2"});
  made.make_inputs = ops::make_pages<ops::TransferKvPerLayerDirectPfLf>;
  return define<ops::TransferKvPerLayerDirectPfLf>(std::move(made));
}
}  // namespace dodona
