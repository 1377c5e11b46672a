// What ops around experts refuse: one error that names the op and the argument, before anything is written. Each row spoils one call.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/sweep.h"

namespace dodona {
namespace {

using namespace helpers;
using namespace sweep;

using Spoil = std::function<void(Arguments&)>;

/// Element i of an argument becomes `value`.
Spoil element(const char* name, std::int64_t i, double value) {
  return [=](Arguments& call) {
    const Tensor spoilt = call.find(name)->clone();
    quant::set(spoilt, i < 0 ? spoilt.elements() + i : i, value);
    call.set(name, spoilt);
  };
}
Spoil attribute(const char* name, std::int64_t value) {
  return [=](Arguments& call) { call.set_attr(name, value); };
}

struct Row {
  const char* line;
  const char* argument;
  Spoil spoil;
};

const Row rows[] = {
    // Experts that are not there. (prepare_moe_input and get_cutlass_w4a8_moe_mm_data leave such slots out, as upstream does.)
    {"moe_align_block_size", "topk_ids", element("topk_ids", 0, 1e6)},
    {"moe_ep_deepgemm_preprocess", "topk_ids", element("topk_ids", 1, -2)},
    {"deepep_run_moe_deep_preprocess", "topk_ids", element("topk_ids", 1, 1e6)},
    {"deepep_low_latency_dispatch", "topk_idx", element("topk_idx", 1, 1e6)},
    {"fused_moe_kernel", "expert_ids", element("expert_ids", 0, 1e6)},
    // Offsets that fall, and that exceed.
    {"fp8_blockwise_scaled_grouped_mm", "expert_offsets", element("expert_offsets", 0, 9)},
    {"fp8_blockwise_scaled_grouped_mm", "expert_offsets", element("expert_offsets", -1, 1e6)},
    {"es_fp8_blockwise_scaled_grouped_mm", "expert_offsets", element("expert_offsets", -1, 1e6)},
    {"cutlass_fp4_group_mm", "expert_offsets", element("expert_offsets", 0, 9)},
    {"cutlass_fp4_group_mm", "expert_offsets", element("expert_offsets", -1, 1e6)},
    {"cutlass_w4a8_moe_mm", "experts_offsets", element("experts_offsets", 0, 9)},
    {"cutlass_w4a8_moe_mm", "experts_offsets", element("experts_offsets", -1, 1e6)},
    {"shuffle_rows", "dst2src_map", element("dst2src_map", 0, 1e6)},
    {"apply_shuffle_mul_sum", "permutation", element("permutation", 0, 1e6)},
    // More rows than there is room for.
    {"m_grouped_fp8_gemm_nt_masked", "masked_m", element("masked_m", 0, 1e6)},
    {"silu_and_mul_masked_post_per_tensor_quant_fwd", "masked_m", element("masked_m", 0, -1)},
    // Sizes of blocks that are none.
    {"moe_align_block_size", "block_size", attribute("block_size", 0)},
    {"silu_and_mul_masked_post_quant_fwd", "quant_group_size", attribute("quant_group_size", 48)},
    // Maps of experts: an expert that is not there.
    {"scaled_fp4_experts_quant", "expert_offsets", element("expert_offsets", -1, 1e6)},
};

/// The first of the op's case lines whose call has the argument that is spoilt.
CaseLine line_with(const Row& row) {
  for (const CaseLine& line : own_lines(registry().at(row.line))) {
    const Arguments call = oracle::generate(line);
    const bool attribute = registry().at(row.line).schema().find_tensor(row.argument) == nullptr;
    if (attribute || (call.find(row.argument) != nullptr && call.find(row.argument)->elements() > 1)) return line;
  }
  return own_lines(registry().at(row.line)).front();
}

TEST(MoeRefusals, AreOneErrorThatNamesOpAndArgumentInEveryModeAndNothingIsWritten) {
  for (const Row& row : rows) {
    const Op& op = registry().at(row.line);
    Arguments call = oracle::runnable(op, oracle::generate(line_with(row)));
    op.prepare(call);
    row.spoil(call);
    for (const auto& [name, tensor] : call.tensors)
      if (op.schema().find_tensor(name)->direction == Direction::out)
        std::memset(tensor.data(), 0x5A, static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements())));
    for (const Mode mode : {Mode::fast, Mode::golden}) {
      SCOPED_TRACE(std::string(row.line) + " " + row.argument + " " + std::string(name(mode)));
      const Error error = error_from([&] { op.run(call, exec_of(mode)); });
      const std::string text = error.what();
      EXPECT_EQ(text.rfind(std::string(row.line) + ": ", 0), 0U) << text;
      EXPECT_NE(text.find(row.argument), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      for (const auto& [name, tensor] : call.tensors)
        if (op.schema().find_tensor(name)->direction == Direction::out)
          for (const std::byte byte : sweep::bytes_of(tensor))
            if (byte != std::byte{0x5A}) {
              ADD_FAILURE() << name << " was written";
              break;
            }
    }
  }
}

TEST(MoeRefusals, MoreExpertsAreNotChosenThanThereAre) {
  for (const char* line : {"topk_softmax T=2 E=4 topk=5", "topk_sigmoid T=2 E=4 topk=5"}) {
    const Error error = error_from([&] {
      const CaseLine wanted = parse_case_line(line);
      Arguments call = oracle::generate(wanted);
      registry().at(std::string(line).substr(0, std::string(line).find(' '))).run(call, exec_of(Mode::fast));
    });
    EXPECT_NE(std::string(error.what()).find("topk"), std::string::npos) << error.what();
  }
}

/// What the contracts say of rows with NaN: nothing is compared, nothing is refused, and other rows are what they are alone.
TEST(MoeRefusals, LogitsThatAreNoNumbersLeaveTheirRowOpenAndOthersAsTheyAre) {
  for (const char* line : {"topk_softmax T=3 E=16 topk=2 --seed 5", "topk_sigmoid T=3 E=16 topk=2 --seed 5"}) {
    const CaseLine wanted = parse_case_line(line);
    const Op& op = registry().at(std::string(line).substr(0, std::string(line).find(' ')));
    const Arguments plain = oracle::generate(wanted);
    Arguments spoilt = plain;
    element("gating_output", 16 + 3, std::nan(""))(spoilt);
    for (const Mode mode : {Mode::fast, Mode::golden}) {
      const auto expected = run(op, plain, exec_of(mode)), actual = run(op, spoilt, exec_of(mode));
      for (std::size_t i = 0; i < actual.size(); ++i)
        for (const std::int64_t row : {0, 2})
          EXPECT_EQ(sweep::bytes_of(actual[i].second.slice(0, row, row + 1).clone()),
                    sweep::bytes_of(expected[i].second.slice(0, row, row + 1).clone()))
              << line << ' ' << actual[i].first;
    }
    Reference reference;
    op.reference(spoilt, exec_of(Mode::golden), reference);
    const ReferenceOutput& weights = *reference.find("topk_weights");
    ASSERT_FALSE(weights.unspecified.empty());
    EXPECT_EQ(std::vector<std::uint8_t>(weights.unspecified.begin(), weights.unspecified.end()),
              (std::vector<std::uint8_t>{0, 0, 1, 1, 0, 0}));
  }
}

}  // namespace
}  // namespace dodona
