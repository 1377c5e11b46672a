#include "ops/moe/permute/shuffle_rows.h"

#include "ops/base/copy_row.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"

namespace dodona::ops {
namespace {

void golden(const ShuffleRows& op, const Exec&, Reference* reference) {
  const std::int64_t width = op.input_tensor.size(1);
  for (std::int64_t d = 0; d < op.dst2src_map.size(0); ++d) {
    const auto source = static_cast<std::int64_t>(quant::get(op.dst2src_map, d));
    for (std::int64_t c = 0; c < width; ++c)
      quant::set_bits(op.output_tensor, d * width + c, quant::get_bits(op.input_tensor, source * width + c));
  }
  record_exact(op.output_tensor, reference, "output_tensor");
}

void fast(const ShuffleRows& op, const Exec& exec) {
  const int element_bytes = bits(op.input_tensor.dtype()) / 8;
  const std::int64_t bytes = op.input_tensor.size(1) * element_bytes;
  const auto* map = op.dst2src_map.as<const std::int32_t>();
  parallel_for_rows(exec.threads, op.dst2src_map.size(0), static_cast<double>(bytes) / 8, worth_streaming(op.output_tensor), bytes,
                    [&](std::int64_t d, Writing writing) {
                      dispatch<CopyRowKernel>(exec.isa, CopyRow{.from = row_begin(op.input_tensor, map[d], element_bytes),
                                                                .to = row_begin_mutable(op.output_tensor, d, element_bytes),
                                                                .bytes = bytes,
                                                                .writing = writing});
                    });
}

/// Elements of a row that upstream writes: it copies whole units of 16 bytes.
std::int64_t written(const ShuffleRows& op) {
  const std::int64_t unit = 128 / bits(op.input_tensor.dtype());
  return op.input_tensor.size(1) / unit * unit;
}

bool explains_end(const ShuffleRows& actual, std::string_view, std::int64_t linear) {
  return linear % actual.input_tensor.size(1) >= written(actual);
}

std::optional<Refusal> unsupported(const ShuffleRows& op, Mode mode) {
  if (mode == Mode::hopper && written(op) < op.input_tensor.size(1))
    return Refusal{"input_tensor", "has rows of " + std::to_string(op.input_tensor.size(1)) + " elements, of which the kernel writes " +
                                       std::to_string(written(op)) + ", whole units of 16 bytes: there is no hopper mode for that"};
  return {};
}

/// Every row that is chosen is read, however often, from memory once.
double bytes_read(const ShuffleRows& op) {
  const std::int64_t rows = std::min(op.input_tensor.size(0), op.dst2src_map.size(0));
  return static_cast<double>(rows * bytes_for(op.input_tensor.dtype(), op.input_tensor.size(1)) + 4 * op.dst2src_map.size(0));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_shuffle_rows() {
  return define<ops::ShuffleRows>({
      .contract = R"(
A copy of bits: output_tensor[d] = input_tensor[dst2src_map[d]]. Nothing is rounded; NaNs keep their payload.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .unsupported = ops::unsupported,
      .bytes_read = ops::bytes_read,
      .defects = {{"unwritten-end", "output_tensor",
                   "rows whose size is no multiple of 16 bytes: what is behind the last 16 is never written", ops::explains_end}},
      .customary = {{"*", CustomaryKind::close, 1.3e-6, 1e-5,
                     "sgl-kernel test_prepare_input_moe (as its XPU port has it): scatter, then gather (f32, bf16, f16)"}},
      .cases = {"R=5 C=7168 D=20", "R=7 C=1024 D=5 --dtype input_tensor=f8_e4m3", "R=6 C=56 D=9 --dtype input_tensor=f32",
                "R=4 C=48 D=33 --dtype input_tensor=u8", "R=9 C=24 D=9 --dtype input_tensor=f16"},
      .bench_cases = {"R=1 C=7168 D=8", "R=64 C=7168 D=512", "R=512 C=7168 D=4096"},
  });
}
}  // namespace dodona
