#include "dodona/op.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <numeric>

#include "core/caches.h"
#include "core/define.h"
#include "dodona/error.h"

namespace dodona {

std::string_view name(Category category) {
  constexpr std::array<std::string_view, 12> names{"normalization", "activation", "rope",        "attention", "gemm",     "quantization",
                                                   "moe",           "sampling",   "speculative", "nsa",       "kv_cache", "utility"};
  return names[static_cast<std::size_t>(category)];
}

std::string_view name(Source source) {
  constexpr std::array<std::string_view, 6> names{"sgl-kernel", "flashinfer", "triton", "torch", "deep_gemm", "tilelang"};
  return names[static_cast<std::size_t>(source)];
}

std::string to_string(const Sources& sources) {
  std::string text;
  for (const Source source : sources) text += (text.empty() ? "" : ", ") + std::string(name(source));
  return text;
}

std::string_view name(Role role) {
  constexpr std::array<std::string_view, 15> names{"values",  "weight", "positions",  "indices",    "page_table",
                                                   "lengths", "indptr", "expert_ids", "scale",      "cos_sin",
                                                   "probs",   "logits", "lse_base_2", "lse_base_e", "coins"};
  static_assert(names.size() == static_cast<std::size_t>(Role::coins) + 1);
  return names[static_cast<std::size_t>(role)];
}

std::string_view name(Judge judge) {
  constexpr std::array<std::string_view, 5> names{"exact", "code", "budget", "top-k", "grouping"};
  return names[static_cast<std::size_t>(judge)];
}

std::string_view name(Layout layout) {
  constexpr std::array<std::string_view, 4> names{"rows", "contiguous", "column-major", "any"};
  return names[static_cast<std::size_t>(layout)];
}

std::string folded(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t';
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string to_string(const AttrValue& value) {
  struct Printer {
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
      std::array<char, 32> buffer;
      const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v).ptr;
      return {buffer.data(), end};
    }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(DType v) const { return std::string(name(v)); }
  };
  return std::visit(Printer{}, value);
}

const TensorSpec* OpSchema::find_tensor(std::string_view name) const {
  for (const auto& spec : tensors)
    if (spec.name == name) return &spec;
  return nullptr;
}

const AttrSpec* OpSchema::find_attr(std::string_view name) const {
  for (const auto& spec : attrs)
    if (spec.name == name) return &spec;
  return nullptr;
}

const Tensor* Arguments::find(std::string_view name) const {
  return dodona::find(tensors, name);
}

const AttrValue* Arguments::find_attr(std::string_view name) const {
  for (const auto& [key, value] : attrs)
    if (key == name) return &value;
  return nullptr;
}

void Arguments::set(std::string_view name, Tensor tensor) {
  for (auto& [key, current] : tensors)
    if (key == name) {
      current = std::move(tensor);
      return;
    }
  tensors.emplace_back(name, std::move(tensor));
}

void Arguments::set_attr(std::string_view name, AttrValue value) {
  for (auto& [key, current] : attrs)
    if (key == name) {
      current = std::move(value);
      return;
    }
  attrs.emplace_back(name, std::move(value));
}

ReferenceOutput& Reference::output(std::string_view name, std::int64_t elements) {
  for (auto& output : outputs_)
    if (output.name == name) return output;
  if (!memory_allows(2 * elements * static_cast<std::int64_t>(sizeof(double))))
    throw Error(ErrorCode::out_of_memory, "", std::string(name),
                "has " + std::to_string(elements) + " elements, whose budgets need more memory than is left");
  ReferenceOutput& output = outputs_.emplace_back();
  output.name = name;
  output.exact.assign(static_cast<std::size_t>(elements), 0.0);
  output.slack.assign(static_cast<std::size_t>(elements), 0.0);
  return output;
}

const ReferenceOutput* Reference::find(std::string_view name) const {
  for (const auto& output : outputs_)
    if (output.name == name) return &output;
  return nullptr;
}

std::vector<Mode> Op::modes() const {
  std::vector<Mode> found;
  for (const Mode mode : mode_list)
    if (has(mode)) found.push_back(mode);
  return found;
}

std::span<const std::string_view> dialects() {
  static constexpr std::array<std::string_view, 4> names{"sglang", "flashinfer", "trtllm", "deepseek"};
  return names;
}

namespace {

/// Levenshtein distance, for "did you mean".
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

struct Registry::Ops {
  std::vector<Entry> entries;
  std::vector<std::unique_ptr<Op>> made;
  std::unique_ptr<std::once_flag[]> once;

  const Op& get(std::size_t i) {
    std::call_once(once[i], [&] { made[i] = entries[i].make(); });
    return *made[i];
  }
};

Registry::Registry(std::span<const Entry> entries)
    : ops_(new Ops{{entries.begin(), entries.end()},
                   std::vector<std::unique_ptr<Op>>(entries.size()),
                   std::make_unique<std::once_flag[]>(entries.size())}) {}

Registry::~Registry() = default;

std::span<const Registry::Entry> Registry::entries() const {
  return ops_->entries;
}

std::span<const std::unique_ptr<Op>> Registry::all() const {
  for (std::size_t i = 0; i < ops_->entries.size(); ++i) ops_->get(i);
  return ops_->made;
}

const Op* Registry::find(std::string_view name) const {
  for (std::size_t i = 0; i < ops_->entries.size(); ++i)
    if (ops_->entries[i].name == name) return &ops_->get(i);
  return nullptr;
}

const Op& Registry::at(std::string_view name) const {
  if (const Op* op = find(name)) return *op;
  std::string nearest;
  std::size_t best = name.size() / 2 + 1;
  for (const Entry& entry : ops_->entries) {
    const std::size_t distance = edit_distance(name, entry.name);
    if (distance < best) best = distance, nearest = entry.name;
  }
  throw Error(ErrorCode::unknown_op, "", "",
              "there is no op '" + std::string(name) + "'" + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

}  // namespace dodona
