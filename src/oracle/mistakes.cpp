#include "oracle/mistakes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "core/fixed_math.h"
#include "core/shape_expr.h"
#include "quant/element.h"
#include "quant/swizzle.h"
#include "quant/ue8m0.h"

namespace dodona::oracle {
namespace {

using Source = std::function<std::int64_t(std::int64_t)>;
using Change = std::function<double(double)>;

constexpr double ln2 = 0.6931471805599453;

/// A copy that keeps the layout, for its values to be changed.
Tensor writable_copy(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor result = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
  copy(tensor, result);
  return result;
}

/// Element i becomes what was element source(i); -1 makes it zero.
Tensor moved(const Tensor& tensor, const Source& source) {
  Tensor result = writable_copy(tensor);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t from = source(i);
    quant::set_bits(result, i, from < 0 ? 0 : quant::get_bits(tensor, from));
  }
  return result;
}

Tensor changed(const Tensor& tensor, const Change& change) {
  Tensor result = writable_copy(tensor);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(result, i, change(quant::get(tensor, i)));
  return result;
}

class Collector {
 public:
  Collector(const Op& op, const Arguments& inputs, const NamedTensors& actual) : op_(op), inputs_(inputs), actual_(actual) {}

  std::vector<Mistake> collect() {
    for (const AttrSpec& spec : op_.schema().attrs) attribute(spec);
    for (const std::string_view dialect : dialects()) add_dialect(std::string(dialect));
    for (const TensorSpec& spec : op_.schema().tensors) {
      const Tensor* tensor = inputs_.find(spec.name);
      if (spec.direction == Direction::out || tensor == nullptr || !tensor->defined() || tensor->elements() == 0) continue;
      input(spec, *tensor);
    }
    logarithm_bases();
    exchanged_inputs();
    outputs();
    return std::move(found_);
  }

 private:
  // ---- attributes ----

  AttrValue value_of(const AttrSpec& spec) const {
    const AttrValue* given = inputs_.find_attr(spec.name);
    return given != nullptr ? *given : spec.default_value;
  }

  void add_attribute(const AttrSpec& spec, const AttrValue& value, const std::string& remark = {}) {
    const std::string name = spec.name;
    found_.push_back({"attr:" + name + "=" + to_string(value),
                      "computed with " + name + "=" + to_string(value) + " instead of " + to_string(value_of(spec)) + remark,
                      [name, value](Arguments& inputs, NamedTensors&) { inputs.set_attr(name, value); }});
  }

  void attribute(const AttrSpec& spec) {
    if (spec.ignored) return;
    const AttrValue now = value_of(spec);
    if (const auto* word = std::get_if<std::string>(&now)) {
      for (const std::string& choice : spec.choices)
        if (choice != *word) add_attribute(spec, choice);
    } else if (const auto* flag = std::get_if<bool>(&now)) {
      add_attribute(spec, !*flag);
    } else if (std::holds_alternative<std::int64_t>(now) && std::holds_alternative<std::int64_t>(spec.default_value)) {
      const std::int64_t whole = std::get<std::int64_t>(now);
      // Sizes clash with the tensors and are passed over; counts (groups, columns) are off by one.
      if (whole > 0 && whole <= 64)
        for (const std::int64_t step : {1, -1}) add_attribute(spec, whole + step, ": off by one");
    } else if (std::holds_alternative<double>(spec.default_value)) {
      const double real = std::holds_alternative<double>(now)         ? std::get<double>(now)
                          : std::holds_alternative<std::int64_t>(now) ? static_cast<double>(std::get<std::int64_t>(now))
                                                                      : std::get<double>(spec.default_value);
      real_attribute(spec, real);
    }
  }

  void real_attribute(const AttrSpec& spec, double now) {
    std::set<double> tried{now};
    const auto attempt = [&](double value, const char* remark) {
      if (std::isfinite(value) && tried.insert(value).second) add_attribute(spec, value, remark);
    };
    if (spec.name.find("eps") != std::string::npos) {
      attempt(0.0, ": omitted");
      for (const double usual : {1e-6, 1e-5, 1e-8, 1e-12}) attempt(usual, "");
      return;
    }
    attempt(1.0, ": left out");
    attempt(now * now, ": applied twice");
    if (now != 0) attempt(1 / now, ": its inverse");
    if (spec.name.find("scale") != std::string::npos)
      for (const int width : {64, 128, 192, 512, 576})
        attempt(1 / std::sqrt(static_cast<double>(width)), ": the softmax scale of another width");
  }

  void add_dialect(const std::string& dialect) {
    std::vector<std::pair<std::string, AttrValue>> values;
    for (const AttrSpec& spec : op_.schema().attrs) {
      AttrValue value = spec.default_value;
      for (const auto& [other, its] : spec.dialect_values)
        if (other == dialect) value = its;
      if (spec.recipe && to_string(value) != to_string(value_of(spec))) values.emplace_back(spec.name, value);
    }
    // A single choice is tried as an attribute.
    if (values.size() < 2) return;
    std::string text;
    for (const auto& [name, value] : values) text += (text.empty() ? "" : ", ") + name + "=" + to_string(value);
    found_.push_back(
        {"dialect:" + dialect, "computed by the recipe of " + dialect + " (" + text + ")", [values](Arguments& inputs, NamedTensors&) {
           for (const auto& [name, value] : values) inputs.set_attr(name, value);
         }});
  }

  // ---- inputs, by role ----

  /// `make` gives the tensor that the kernel must have read; nothing when the mistake does not apply after all.
  void add_input(const std::string& id, const std::string& argument, const std::string& text,
                 const std::function<Tensor(const Tensor&)>& make) {
    found_.push_back({id + ":" + argument, argument + ": " + text, [argument, make](Arguments& inputs, NamedTensors&) {
                        const Tensor before = *inputs.find(argument);
                        inputs.set(argument, make(before));
                      }});
  }
  void add_move(const std::string& id, const std::string& argument, const std::string& text, const Source& source) {
    add_input(id, argument, text, [source](const Tensor& t) { return moved(t, source); });
  }
  void add_change(const std::string& id, const std::string& argument, const std::string& text, const Change& change) {
    add_input(id, argument, text, [change](const Tensor& t) { return changed(t, change); });
  }

  void input(const TensorSpec& spec, const Tensor& tensor) {
    const std::string& name = spec.name;
    switch (spec.role) {
      case Role::values:
      case Role::logits: values(spec, tensor); break;
      case Role::weight:
        add_change("weight-omitted", name, "left out (taken for 1)", [](double) { return 1.0; });
        add_change("weight-plus-one", name, "1 added to it, as models with zero-centred norms do", [](double x) { return x + 1; });
        break;
      case Role::cos_sin: cos_sin(name, tensor); break;
      case Role::scale: scale(spec, tensor); break;
      case Role::positions:
      case Role::indices:
      case Role::page_table:
      case Role::expert_ids: ids(name, tensor); break;
      case Role::lengths:
        add_change("length-one-less", name, "one less (the newest key is not seen)", [](double x) { return x > 1 ? x - 1 : x; });
        break;
      case Role::probs:
        add_change("logarithms", name, "taken for logarithms (the exponential was applied)", [](double x) { return fixed::exp(x); });
        break;
      case Role::lse_base_2:
      case Role::lse_base_e:
      case Role::indptr:
      case Role::coins: break;
    }
  }

  void values(const TensorSpec& spec, const Tensor& tensor) {
    const std::string& name = spec.name;
    const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 1;
    if (width > 1 && width % 2 == 0) {
      add_move("halves-swapped", name, "the halves of each row are swapped (gate and up, or rope halves)",
               [=](std::int64_t i) { return i / width * width + (i % width + width / 2) % width; });
      if (op_.info().category == Category::rope || op_.info().category == Category::attention) {
        // Heads may lie side by side in a row: pairs are those of a head.
        const std::int64_t head = head_width(width);
        add_move("pairs-to-halves", name, "interleaved pairs taken for halves", [=](std::int64_t i) {
          const std::int64_t c = i % head;
          return i - c + (c < head / 2 ? 2 * c : 2 * (c - head / 2) + 1);
        });
        add_move("halves-to-pairs", name, "halves taken for interleaved pairs", [=](std::int64_t i) {
          const std::int64_t c = i % head;
          return i - c + c / 2 + c % 2 * (head / 2);
        });
      }
    }
    if (tensor.dtype() == DType::u8)
      add_input("nibbles-swapped", name, "the nibbles of each byte are swapped", [](const Tensor& t) {
        Tensor result = writable_copy(t);
        for (std::int64_t i = 0; i < t.elements(); ++i) {
          const std::uint64_t byte = quant::get_bits(t, i);
          quant::set_bits(result, i, (byte >> 4 | byte << 4) & 0xFF);
        }
        return result;
      });
    if (is_packed(tensor.dtype()))
      add_move("nibbles-swapped", name, "the nibbles of each byte are swapped",
               [count = tensor.elements()](std::int64_t i) { return (i ^ 1) < count ? i ^ 1 : i; });
    if (tensor.rank() >= 2 && tensor.size(-2) == width && width > 1)
      add_move("transposed", name, "rows and columns are swapped", [=](std::int64_t i) {
        const std::int64_t at = i % (width * width);
        return i - at + at % width * width + at / width;
      });
    if (spec.name.find("bias") != std::string::npos) add_change("bias-ignored", name, "ignored (taken for 0)", [](double) { return 0.0; });
    if (tensor.dtype() == DType::f32) {
      add_change("rounded-to-bf16", name, "rounded to bf16 before use", [](double x) { return quant::round_to(DType::bf16, x); });
      add_change("rounded-to-tf32", name, "cut to the 10 bits of TF32 before use", [](double x) {
        const auto single = static_cast<float>(x);
        std::uint32_t bits_of = 0;
        std::memcpy(&bits_of, &single, sizeof bits_of);
        bits_of &= 0xFFFFE000;
        float cut = 0;
        std::memcpy(&cut, &bits_of, sizeof cut);
        return static_cast<double>(cut);
      });
    }
    if (contracted(spec)) {
      for (const std::int64_t tail : {16, 32, 64, 128, 256})
        if (tail < width)
          add_move("tail-dropped-" + std::to_string(tail), name,
                   "the last " + std::to_string(tail) + " of the summed dimension are dropped",
                   [=](std::int64_t i) { return i % width >= width - tail ? -1 : i; });
      for (const std::int64_t tile : {32, 64, 128})
        if (tile < width)
          add_move("head-dropped-" + std::to_string(tile), name,
                   "the first " + std::to_string(tile) + " of the summed dimension are dropped",
                   [=](std::int64_t i) { return i % width < tile ? -1 : i; });
    }
    if (tensor.rank() >= 2 && tensor.elements() / std::max<std::int64_t>(width, 1) > 1) {
      const std::int64_t rows = tensor.elements() / width;
      for (const std::int64_t step : {1, -1})
        add_move(step > 0 ? "next-row" : "previous-row", name,
                 std::string("every row is taken from the ") + (step > 0 ? "next" : "previous") + " one",
                 [=](std::int64_t i) { return (i / width + step + rows) % rows * width + i % width; });
    }
  }

  /// The width of a head where a row holds several, from an attribute that names it; else the row's.
  std::int64_t head_width(std::int64_t width) const {
    for (const char* attr : {"head_size", "head_dim"}) {
      const AttrValue* value = inputs_.find_attr(attr);
      const auto* whole = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
      if (whole != nullptr && *whole > 1 && width % *whole == 0) return *whole;
    }
    return width;
  }

  /// Whether the last dimension is summed over: its symbols are in no output's shape.
  bool contracted(const TensorSpec& spec) const {
    const auto last_symbols = [](const std::string& text) {
      SymbolNames names;
      const ShapeExpr shape = ShapeExpr::parse(text, names);
      std::vector<std::string> symbols;
      if (shape.alternatives().front().dims.empty()) return symbols;
      for (const int s : shape.alternatives().front().dims.back().symbols()) symbols.push_back(names.name(s));
      return symbols;
    };
    const std::vector<std::string> mine = last_symbols(spec.shape);
    if (op_.info().category != Category::gemm && op_.info().category != Category::moe) return false;
    for (const TensorSpec& other : op_.schema().tensors) {
      if (other.direction == Direction::in) continue;
      for (const std::string& symbol : mine)
        if ((" " + other.shape + " ").find(symbol) != std::string::npos) return false;
    }
    return !mine.empty();
  }

  void cos_sin(const std::string& name, const Tensor& tensor) {
    const std::int64_t width = tensor.size(-1), half = width / 2;
    add_move("cos-sin-exchanged", name, "cosines and sines are exchanged",
             [=](std::int64_t i) { return i / width * width + (i % width + half) % width; });
    add_input("sine-negated", name, "rotated the other way (the sines' sign)", [=](const Tensor& t) {
      Tensor result = writable_copy(t);
      for (std::int64_t i = 0; i < t.elements(); ++i)
        if (i % width >= half) quant::set(result, i, -quant::get(t, i));
      return result;
    });
    add_input("cos-sin-interleaved", name, "taken for cosines and sines in turn", [=](const Tensor& t) {
      return moved(t, [=](std::int64_t i) {
        const std::int64_t c = i % width;
        return i - c + (c < half ? 2 * c : 2 * (c - half) + 1);
      });
    });
    add_input("not-rotated", name, "not applied (cosine 1, sine 0)", [=](const Tensor& t) {
      Tensor result = writable_copy(t);
      for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(result, i, i % width < half ? 1.0 : 0.0);
      return result;
    });
  }

  void scale(const TensorSpec& spec, const Tensor& tensor) {
    const std::string& name = spec.name;
    add_change("scale-ignored", name, "ignored (taken for 1)", [](double) { return 1.0; });
    add_change("scale-inverted", name, "inverted", [](double x) { return x != 0 ? 1 / x : 0.0; });
    add_change("scale-squared", name, "applied twice", [](double x) { return x * x; });
    add_change("scale-power-of-two-up", name, "rounded up to a power of two (UE8M0)",
               [](double x) { return x > 0 && std::isfinite(x) ? std::exp2(std::ceil(std::log2(x))) : x; });
    const std::int64_t count = tensor.elements();
    if (count < 2) return;
    add_move("scale-first-for-all", name, "its first element is used for all", [](std::int64_t) { return 0; });
    const std::int64_t width = tensor.size(-1), rows = count / width;
    if (tensor.rank() < 2 || rows < 2) return;
    for (const std::int64_t step : {1, -1})
      add_move(step > 0 ? "scale-next-row" : "scale-previous-row", name, "its rows are off by one",
               [=](std::int64_t i) { return (i / width + step + rows) % rows * width + i % width; });
    if (width < 2) return;
    add_move("scale-transposed", name, "laid out by columns instead of rows", [=](std::int64_t i) { return i % rows * width + i / rows; });
    add_move("scale-transposed-back", name, "laid out by rows instead of columns",
             [=](std::int64_t i) { return i % width * rows + i / width; });
    if (rows % 128 == 0 && width % 4 == 0) {
      const auto offset = [=](std::int64_t i) {
        return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, i / width, i % width, width);
      };
      add_move("scale-read-linear", name, "taken for linear, not swizzled 128x4", offset);
      add_input("scale-read-swizzled", name, "taken for swizzled 128x4, not linear", [=](const Tensor& t) {
        Tensor result = writable_copy(t);
        for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(result, offset(i), quant::get_bits(t, i));
        return result;
      });
    }
  }

  void ids(const std::string& name, const Tensor& tensor) {
    std::int64_t limit = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) limit = std::max(limit, static_cast<std::int64_t>(quant::get(tensor, i)) + 1);
    if (limit < 2) return;
    for (const int step : {1, -1})
      add_change(step > 0 ? "off-by-plus-one" : "off-by-minus-one", name, std::string("off by ") + (step > 0 ? "+1" : "-1"), [=](double x) {
        // Negative ids mark padding.
        if (x < 0) return x;
        return static_cast<double>((static_cast<std::int64_t>(x) + step + limit) % limit);
      });
    const std::int64_t count = tensor.elements();
    if (count > 1) add_move("first-for-all", name, "its first element is used for all", [](std::int64_t) { return 0; });
    if (count > 1) add_move("reversed", name, "in reverse order", [=](std::int64_t i) { return count - 1 - i; });
  }

  /// A kernel that works in the other base throughout: it reads and writes all logarithms so.
  void logarithm_bases() {
    std::vector<std::string> read, written;
    for (const TensorSpec& spec : op_.schema().tensors)
      if (spec.role == Role::lse_base_2 || spec.role == Role::lse_base_e)
        (spec.direction == Direction::out ? written : read).push_back(spec.name);
    const auto scaled = [](const Tensor& t, double factor) { return changed(t, [factor](double x) { return x * factor; }); };
    const auto add = [&](const std::string& id, const std::string& text, double factor, bool inputs_too, bool outputs_too) {
      found_.push_back({id, text, [=](Arguments& inputs, NamedTensors& actual) {
                          for (const std::string& name : read)
                            if (const Tensor* tensor = inputs.find(name); tensor != nullptr && inputs_too)
                              inputs.set(name, scaled(*tensor, factor));
                          for (auto& [name, tensor] : actual)
                            if (outputs_too && std::find(written.begin(), written.end(), name) != written.end())
                              tensor = scaled(tensor, factor);
                        }});
    };
    for (const bool natural : {true, false}) {
      const double factor = natural ? 1 / ln2 : ln2;
      const std::string base = natural ? "natural" : "base-2";
      if (!read.empty() && !written.empty())
        add("lse-" + base, "all log-sum-exps are read and written as " + base + " logarithms", factor, true, true);
      if (!read.empty()) add("lse-read-" + base, "log-sum-exps are read as " + base + " logarithms", factor, true, false);
      if (!written.empty()) add("lse-written-" + base, "log-sum-exps are written as " + base + " logarithms", factor, false, true);
    }
  }

  /// Two inputs that could be taken for one another.
  void exchanged_inputs() {
    const auto& tensors = op_.schema().tensors;
    for (std::size_t a = 0; a < tensors.size(); ++a)
      for (std::size_t b = a + 1; b < tensors.size(); ++b) {
        const Tensor *first = inputs_.find(tensors[a].name), *second = inputs_.find(tensors[b].name);
        if (tensors[a].direction != Direction::in || tensors[b].direction != Direction::in || first == nullptr || second == nullptr)
          continue;
        if (!first->defined() || !second->defined() || first->dtype() != second->dtype() || !(first->shape() == second->shape())) continue;
        const std::string x = tensors[a].name, y = tensors[b].name;
        found_.push_back({"exchanged:" + x + "," + y, x + " and " + y + " are exchanged", [x, y](Arguments& inputs, NamedTensors&) {
                            const Tensor keep = *inputs.find(x);
                            inputs.set(x, *inputs.find(y));
                            inputs.set(y, keep);
                          }});
      }
  }

  // ---- outputs ----

  void add_output(const std::string& id, const std::string& output, const std::string& text,
                  const std::function<Tensor(const Tensor&)>& undo) {
    found_.push_back({id + ":" + output, output + ": " + text, [output, undo](Arguments&, NamedTensors& actual) {
                        for (auto& [name, tensor] : actual)
                          if (name == output) tensor = undo(tensor);
                      }});
  }

  void outputs() {
    for (const auto& [name, tensor] : actual_) {
      const TensorSpec& spec = *op_.schema().find_tensor(name);
      const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 1;
      const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
      if (tensor.dtype() == DType::u8 && spec.judge == Judge::code)
        add_output("nibbles-swapped", name, "the nibbles of each byte are swapped", [](const Tensor& t) {
          Tensor result = writable_copy(t);
          for (std::int64_t i = 0; i < t.elements(); ++i) {
            const std::uint64_t byte = quant::get_bits(t, i);
            quant::set_bits(result, i, (byte >> 4 | byte << 4) & 0xFF);
          }
          return result;
        });
      if (bits(tensor.dtype()) == 8 && spec.judge == Judge::code && tensor.rank() == 2 && rows % 128 == 0 && width % 4 == 0 && rows > 0)
        add_output("written-linear", name, "written row by row, not swizzled 128x4", [=](const Tensor& t) {
          Tensor result = writable_copy(t);
          for (std::int64_t i = 0; i < t.elements(); ++i)
            quant::set_bits(result, quant::scale_offset(quant::ScaleLayout::swizzled_128x4, i / width, i % width, width),
                            quant::get_bits(t, i));
          return result;
        });
      if (tensor.rank() >= 2 && rows > 1 && width > 1)
        add_output("written-transposed", name, "written by columns instead of rows",
                   [=](const Tensor& t) { return moved(t, [=](std::int64_t i) { return i % width * rows + i / width; }); });
    }
    for (std::size_t a = 0; a < actual_.size(); ++a)
      for (std::size_t b = a + 1; b < actual_.size(); ++b)
        if (actual_[a].second.dtype() == actual_[b].second.dtype() && actual_[a].second.shape() == actual_[b].second.shape())
          found_.push_back({"outputs-exchanged:" + actual_[a].first + "," + actual_[b].first,
                            actual_[a].first + " and " + actual_[b].first + " are exchanged",
                            [a, b](Arguments&, NamedTensors& actual) { std::swap(actual[a].second, actual[b].second); }});
  }

  const Op& op_;
  const Arguments& inputs_;
  const NamedTensors& actual_;
  std::vector<Mistake> found_;
};

}  // namespace

std::vector<Mistake> mistakes_of(const Op& op, const Arguments& inputs, const NamedTensors& actual) {
  return Collector(op, inputs, actual).collect();
}

}  // namespace dodona::oracle
