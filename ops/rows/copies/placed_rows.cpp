#include "ops/rows/copies/placed_rows.h"

#include <algorithm>
#include <cstring>

#include "core/threads.h"
#include "ops/base/bounded.h"
#include "quant/element.h"

namespace dodona::ops {

void place_rows(std::span<const std::int64_t> tokens, const Tensor& sent, const Tensor& received, const Exec& exec) {
  const std::int64_t bytes = bytes_for(sent.dtype(), sent.size(1));
  parallel_for(exec.threads, static_cast<std::int64_t>(tokens.size()), static_cast<double>(bytes) / 8, [&](std::int64_t row) {
    std::byte* const to = received.as<std::byte>() + row * bytes;
    const std::int64_t token = tokens[static_cast<std::size_t>(row)];
    if (token < 0) {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    } else {
      std::memcpy(to, sent.as<const std::byte>() + token * bytes, static_cast<std::size_t>(bytes));
    }
  });
}

void record_placed(std::span<const std::int64_t> tokens, const Tensor& received, const ReferenceOutput* sent, Reference& reference,
                   std::string_view name, const Storage& storage, RowOrder order) {
  const Tensor codes = as_codes(received, storage);
  ReferenceOutput& record = reference.output(name, codes.elements());
  const auto width = static_cast<std::size_t>(codes.elements()) / std::max<std::size_t>(tokens.size(), 1);
  record.unspecified.assign(record.exact.size(), 0);
  // Some slack: without any, golden mode's bits would pass in whatever order the rows are.
  const bool some = order == RowOrder::open && is_float(codes.dtype()) && codes.dtype() != DType::f8_e8m0;
  const double least = some ? flush_floor : 0.0;
  for (std::size_t row = 0; row < tokens.size(); ++row)
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t to = row * width + i;
      record.slack[to] = least;
      if (tokens[row] < 0) {
        record.unspecified[to] = 1;
        continue;
      }
      const std::size_t from = static_cast<std::size_t>(tokens[row]) * width + i;
      record.exact[to] = sent != nullptr ? sent->exact[from] : quant::get(codes, static_cast<std::int64_t>(to));
      if (sent == nullptr) continue;
      record.slack[to] = std::max(sent->slack[from], least);
      if (!sent->unspecified.empty()) record.unspecified[to] = sent->unspecified[from];
    }
}

}  // namespace dodona::ops
