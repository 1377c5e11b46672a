#include <fmt/format.h>

#include "dodona/version.h"
#include "pages.h"

namespace dodona::tools {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// Help as the command prints it; a footer that all commands share is printed once, with the first.
std::string help_of(const CLI::App& command, const CLI::App& app) {
  std::string help = command.help(app.get_name());
  const std::string shared = app.get_footer();
  if (&command != &app && command.get_footer() == shared)
    if (const std::size_t at = help.rfind(shared); at != std::string::npos) help.resize(at);
  while (help.ends_with("\n")) help.pop_back();
  return help + "\n";
}

/// Text for troff: nothing in it is a request or an escape.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begin = true;
  for (const char c : text) {
    if (line_begin && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begin = c == '\n';
  }
  return out;
}

/// `-o, --output TEXT`, or `CASE...` for a positional.
std::string heading_of(const CLI::Option& option) {
  const bool many = option.get_items_expected_max() > 1;
  if (option.get_positional()) return "\\fI" + roff(option.get_name(true)) + "\\fR" + (many ? " ..." : "");
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR"); };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  const bool takes_value = option.get_items_expected_max() > 0;
  return names + (takes_value ? " \\fI" + roff(option.get_type_name()) + "\\fR" : "");
}

std::string options_of(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options())
    text +=
        fmt::format(".TP\n{}\n{}{}\n", heading_of(*option), roff(option->get_description()), option->get_required() ? " (required)" : "");
  return text;
}

/// A footer, its lines kept.
std::string footer_text(const std::string& footer) {
  return ".PP\n" + CLI::detail::find_and_replace(roff(footer), "\n", "\n.br\n") + "\n";
}

}  // namespace

std::string cli_page(const CLI::App& app) {
  std::string page =
      "# The command\n\nMade by `tools/docs` from the commands' own help; do not edit.\n\n```text\n" + help_of(app, app) + "```\n";
  for (const CLI::App* command : commands_of(app))
    page += fmt::format("\n## dodona {}\n\n```text\n{}```\n", command->get_name(), help_of(*command, app));
  return page;
}

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH DODONA 1 \"\" \"dodona {}\" \"User Commands\"\n", version());
  page += ".SH NAME\ndodona \\- CPU oracle for the kernels of DeepSeek inference\n";
  page += ".SH SYNOPSIS\n.B dodona\n\\fICOMMAND\\fR [\\fIOPTION\\fR ...] [\\fIARGUMENT\\fR ...]\n";
  page += ".SH DESCRIPTION\n" + roff(app.get_description()) + "\n.SH OPTIONS\n" + options_of(app) + ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) {
    page += fmt::format(".SS dodona {}\n{}\n{}", roff(command->get_name()), roff(command->get_description()), options_of(*command));
    if (command->get_footer() != app.get_footer()) page += footer_text(command->get_footer());
  }
  return page + ".SH EXIT STATUS AND ENVIRONMENT\n" + footer_text(app.get_footer());
}

}  // namespace dodona::tools
