#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <vector>

#include "core/special.h"
#include "dodona/op.h"
#include "pages.h"

namespace dodona::tools {
namespace {

using Words = std::vector<std::string>;

Words op_names() {
  Words names;
  for (const auto& op : registry().all()) names.emplace_back(op->name());
  return names;
}

Words optional_arguments() {
  std::set<std::string> names;
  for (const auto& op : registry().all())
    for (const TensorSpec& spec : op->schema().tensors)
      if (spec.optional) names.insert(spec.name);
  return {names.begin(), names.end()};
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

Words names_of(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// The words that an option or a positional accepts; empty for free text and files.
Words values_of(const CLI::Option& option, const std::string& command) {
  const std::string type = option.get_type_name();
  if (const std::size_t open = type.find('{'), close = type.find('}'); open != std::string::npos && close != std::string::npos)
    return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
  if (option.get_positional()) {
    const std::string name = option.get_name(true);
    const bool names_an_op = name == "OP" || name == "LINE" || (name == "CASE" && command == "run");
    return names_an_op ? op_names() : Words{};
  }
  const std::string name = option.get_lnames().empty() ? "" : option.get_lnames().front();
  if (name == "mode") {
    Words words;
    for (const Mode mode : mode_list) words.emplace_back(dodona::name(mode));
    if (command == "verify") words.emplace_back("all");
    return words;
  }
  if (name == "gpu") return {gpu_names().begin(), gpu_names().end()};
  if (name == "isa") return {"generic", "v3", "v4", "v4_vnni", "neon"};
  if (name == "dist") return {"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};
  if (name == "special") {
    Words words;
    for (const SpecialText& special : specials()) words.emplace_back(special.name);
    return words;
  }
  if (name == "with" || name == "without") return optional_arguments();
  if (name == "dialect") return {dialects().begin(), dialects().end()};
  if (name == "op") return op_names();
  return {};
}

/// Within single quotes of a shell.
std::string quoted(const std::string& text) {
  return "'" + CLI::detail::find_and_replace(text, "'", "'\\''") + "'";
}

/// A description within the brackets of zsh's _arguments.
std::string described(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == '\\' || c == ':') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string options, values, positionals;
  Words top;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : names_of(*option)) top.push_back(name);
  for (const CLI::App* command : commands_of(app)) {
    top.push_back(command->get_name());
    Words names;
    for (const CLI::Option* option : command->get_options()) {
      const Words mine = names_of(*option), accepted = values_of(*option, command->get_name());
      names.insert(names.end(), mine.begin(), mine.end());
      if (option->get_positional() && !accepted.empty())
        positionals += fmt::format("    {}) words='{}' ;;\n", command->get_name(), fmt::join(accepted, " "));
      if (option->get_positional() || !takes_value(*option)) continue;
      Words patterns;
      for (const std::string& name : mine) patterns.push_back(fmt::format("'{} {}'", command->get_name(), name));
      values += fmt::format("    {}) words='{}' value=1 ;;\n", fmt::join(patterns, "|"), fmt::join(accepted, " "));
    }
    options += fmt::format("    {}) words='{}' ;;\n", command->get_name(), fmt::join(names, " "));
  }
  return fmt::format(R"(# Completion of dodona for bash. Made by `dodona docs bash`; do not edit.
_dodona() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words= value= word
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) ;; *) command=$word; break ;; esac
  done
  if [ -z "$command" ]; then
    COMPREPLY=($(compgen -W '{}' -- "$current"))
    return
  fi
  case "$command $previous" in
{}  esac
  if [ -n "$value" ]; then
    :
  elif [[ $current == -* ]]; then
    case $command in
{}    esac
  else
    case $command in
{}    esac
  fi
  # Without a match bash goes on with file names.
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _dodona dodona
)",
                     fmt::join(top, " "), values, options, positionals);
}

std::string zsh_completion(const CLI::App& app) {
  const auto specs = [&](const CLI::App& command) {
    std::string text;
    int position = 0;
    for (const CLI::Option* option : command.get_options()) {
      const Words accepted = values_of(*option, command.get_name());
      const std::string action = accepted.empty() ? "_files" : fmt::format("({})", fmt::join(accepted, " "));
      if (option->get_positional()) {
        const std::string number = option->get_items_expected_max() > 1 ? "*" : std::to_string(++position);
        text += " \\\n        " + quoted(fmt::format("{}:{}:{}", number, described(option->get_name(true)), action));
        continue;
      }
      const std::string argument = takes_value(*option) ? fmt::format(":{}:{}", described(option->get_type_name()), action) : "";
      for (const std::string& name : names_of(*option))
        text += " \\\n        " + quoted(fmt::format("*{}[{}]{}", name, described(option->get_description()), argument));
    }
    return text;
  };
  std::string commands, branches;
  for (const CLI::App* command : commands_of(app)) {
    commands += "    " + quoted(command->get_name() + ":" + described(command->get_description())) + "\n";
    branches += fmt::format("    {})\n      _arguments{} ;;\n", command->get_name(), specs(*command));
  }
  return fmt::format(R"(#compdef dodona
# Completion of dodona for zsh. Made by `dodona docs zsh`; do not edit.
local -a commands
commands=(
{})
if (( CURRENT == 2 )); then
  if [[ $PREFIX == -* ]]; then
    _arguments{}
  else
    _describe -t commands command commands
  fi
else
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
fi
)",
                     commands, specs(app), branches);
}

}  // namespace dodona::tools
