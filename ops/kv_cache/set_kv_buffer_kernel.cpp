#include "ops/kv_cache/set_kv_buffer_kernel.h"

#include "ops/rows/cache/pool_items.h"

namespace dodona::ops {
namespace {

ItemTransfer store(const SetKvBufferKernel& op, std::string_view output, const Tensor& items, const Tensor& cache) {
  return {.output = output, .from = {.tensor = items}, .to = {.tensor = cache}, .from_items = {}, .to_items = op.loc};
}
std::array<ItemTransfer, 2> stores(const SetKvBufferKernel& op) {
  return {store(op, "k_cache", op.k, op.k_cache), store(op, "v_cache", op.v, op.v_cache)};
}

void golden(const SetKvBufferKernel& op, const Exec&, Reference* reference) {
  for (const ItemTransfer& transfer : stores(op)) transfer_elements(transfer, reference);
}

void fast(const SetKvBufferKernel& op, const Exec& exec) {
  for (const ItemTransfer& transfer : stores(op)) transfer_bytes(transfer, exec);
}

double bytes_read(const SetKvBufferKernel& op) {
  return 2 * bytes_transferred(stores(op).front());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_set_kv_buffer_kernel() {
  return define<ops::SetKvBufferKernel>({
      .contract = R"(
Slot loc[t] of each cache becomes row t: a copy of bits. Of tokens that name one slot upstream stores any (here the last), and the slot
is not judged. A slot out of range is an error; upstream does not look.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .bytes_read = ops::bytes_read,
      .cases = {"S=9 T=5 H=2 D=64", "S=4 T=3 H=1 D=37 --dtype k_cache=f8_e4m3", "S=3 T=1 H=8 D=128 --dtype k_cache=f32 --dtype loc=i32"},
      .bench_cases = {"S=8192 T=4096 H=8 D=128", "S=8192 T=64 H=8 D=128"},
  });
}
}  // namespace dodona
