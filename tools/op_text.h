// What is said of an op in words: shared by `dodona info` and the generated pages.
#pragma once

#include <string>
#include <string_view>

#include "dodona/op.h"

namespace dodona::tools {

/// `bf16|f16`, `as input`, `by attribute out_dtype`.
std::string dtypes_of(const TensorSpec& spec);
/// Role, layout, alignment, judge and whatever else the schema asks of a tensor.
std::string traits_of(const TensorSpec& spec);
/// The description, what the memory holds, and how case lines make it of other inputs.
std::string meaning_of(const TensorSpec& spec);
/// What an attribute accepts: words, types or a range; empty for anything.
std::string attr_limits(const AttrSpec& spec);
/// recipe, no effect, or nothing.
std::string kind_of(const AttrSpec& spec);
/// `deepseek: rounded`: its values under dialects other than the default one.
std::string dialects_of(const AttrSpec& spec);
/// `K: a multiple of 16 at least 64`.
std::string symbol_rule(const SymbolSpec& spec);
/// `golden fast hopper`.
std::string modes_of(const Op& op);
/// The judges of the outputs, each once, in their order.
std::string judges_of(const Op& op);
/// Lines broken at spaces after at most `width` characters.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent);

}  // namespace dodona::tools
