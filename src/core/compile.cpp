#include <algorithm>
#include <stdexcept>

#include "core/call_context.h"

namespace dodona {

using namespace calls;

CompiledSchema::CompiledSchema(const OpInfo& info, const OpSchema& schema) : symbol_specs(schema.symbols) {
  const auto fail = [&](const std::string& what) { throw std::logic_error("schema of " + std::string(info.name) + ": " + what); };
  const auto require = [&](int found, const std::string& what) {
    if (found < 0) fail(what);
    return found;
  };
  for (const TensorSpec& spec : schema.tensors) {
    TensorRules rules;
    rules.shape = ShapeExpr::parse(spec.shape, symbols);
    if (!spec.same_dtype_as.empty())
      rules.dtype_tensor = require(tensor_index(schema, spec.same_dtype_as), "no tensor " + spec.same_dtype_as);
    if (!spec.view_of.empty()) rules.view_of = require(tensor_index(schema, spec.view_of), "no tensor " + spec.view_of);
    if (!spec.when.empty()) rules.when_attr = require(attr_index(schema, spec.when), "no attribute " + spec.when);
    if (!spec.dtype_attr.empty()) rules.dtype_attr = require(attr_index(schema, spec.dtype_attr), "no attribute " + spec.dtype_attr);
    if (spec.storage.scales) require(tensor_index(schema, spec.storage.scales->of), "no tensor " + spec.storage.scales->of);
    if (spec.storage.code && (bits(*spec.storage.code) > 8 || std::all_of(spec.dtypes.begin(), spec.dtypes.end(), is_float)))
      fail(spec.name + " holds codes of " + std::string(name(*spec.storage.code)) + " and is made of no integers");
    tensors.push_back(std::move(rules));
  }
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    if (schema.tensors[i].bound.empty()) continue;
    const int known = symbols.count();
    tensors[i].bound = DimExpr::parse(schema.tensors[i].bound, symbols);
    // Attributes are known whether or not a shape names them.
    for (int s = known; s < symbols.count(); ++s)
      if (const int attr = attr_index(schema, symbols.name(s)); attr < 0 || !is_size(schema.attrs[slot(attr)].default_value))
        fail("no symbol " + symbols.name(s));
  }
  for (const auto& [output, input] : schema.properties.in_place)
    tensors[slot(require(tensor_index(schema, output), "no tensor " + output))].may_alias =
        require(tensor_index(schema, input), "no tensor " + input);
  for (const std::string& argument : schema.properties.prepared) require(tensor_index(schema, argument), "no tensor " + argument);
  for (const std::string& symbol : schema.properties.rows_independent) require(symbols.find(symbol), "no symbol " + symbol);
  symbol_rules.resize(slot(symbols.count()));
  for (int s = 0; s < symbols.count(); ++s) {
    auto& rules = symbol_rules[slot(s)];
    const int attr = attr_index(schema, symbols.name(s));
    if (attr >= 0 && is_size(schema.attrs[slot(attr)].default_value)) rules.attr = attr;
    for (const SymbolSpec& spec : symbol_specs)
      if (spec.name == symbols.name(s)) rules.spec = &spec;
  }
  for (const SymbolSpec& spec : symbol_specs) require(symbols.find(spec.name), "no symbol " + spec.name);
}

void compile(const OpInfo& info, OpSchema& schema) {
  constexpr std::size_t capacity = Fields::capacity;
  if (schema.tensors.size() > capacity || schema.attrs.size() > capacity)
    throw std::logic_error("schema of " + std::string(info.name) + ": more than " + std::to_string(capacity) + " tensors or attributes");
  // What nothing rounds is compared by its bits, unless the schema says otherwise.
  for (TensorSpec& spec : schema.tensors)
    if (spec.direction != Direction::in && spec.judge == Judge::budget && !spec.dtypes.empty() && !is_float(spec.dtypes.front()))
      spec.judge = Judge::exact;
  schema.compiled = std::make_shared<const CompiledSchema>(info, schema);
}

void require_complete(const OpInfo& info, const OpSchema& schema, bool has_condition, bool has_make_inputs) {
  const auto require = [&](bool holds, const std::string& argument, const std::string& what) {
    if (!holds) throw std::logic_error("schema of " + std::string(info.name) + ": " + argument + " " + what);
  };
  bool has_kin = false;
  for (const TensorSpec& spec : schema.tensors) {
    require(!spec.doc.empty(), spec.name, "has no description");
    require(spec.judge != Judge::top_k || has_condition, spec.name, "is judged by its members, and the op has no condition");
    require(spec.kin.empty() || spec.direction == Direction::in, spec.name, "is no input, and is to be made of others");
    require(spec.kin.empty() || has_make_inputs, spec.name, "is made of other inputs, and the op has no make_inputs");
    has_kin = has_kin || !spec.kin.empty();
  }
  for (const AttrSpec& spec : schema.attrs) require(!spec.doc.empty(), spec.name, "has no description");
  require(has_kin || !has_make_inputs, "make_inputs", "makes no input that says so");
}

}  // namespace dodona
