#include "ops/kv_cache/transfer_kv_all_layer_direct_lf_pf.h"

namespace dodona {
std::unique_ptr<Op> op_transfer_kv_all_layer_direct_lf_pf() {
  Implementation<ops::TransferKvAllLayerDirectLfPf> made = ops::kv_transfer<ops::TransferKvAllLayerDirectLfPf>(
      R"(Whole pages of every layer of the source go to pages of the destination, which hold layer after layer.)",
      [](const ops::TransferKvAllLayerDirectLfPf& op) { ops::check_kv_transfer(op, {}); },
      {"n=8 C=2 pages=3 L=3 Ss=12 D=64 --attr page_size=4", "n=4 C=1 pages=3 L=2 Ss=6 H=3 D=5 --attr page_size=2 --dtype src_ptrs=f16"},
      {"n=512 C=1 pages=16 L=16 Ss=1024 D=576 --attr page_size=64"});
  made.make_inputs = ops::make_pages<ops::TransferKvAllLayerDirectLfPf>;
  return define<ops::TransferKvAllLayerDirectLfPf>(std::move(made));
}
}  // namespace dodona
