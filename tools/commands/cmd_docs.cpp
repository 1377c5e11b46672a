#include <fmt/format.h>

#include "tools/common.h"
#include "tools/pages/pages.h"

namespace dodona::tools {

void add_docs(CLI::App& app, int&) {
  struct Options {
    std::string page, recordings, speeds;
  };
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("docs", "Print a page made from the inventory or from the commands' own options");
  command->add_option("PAGE", options->page, "ops, cli: Markdown; man: a manual page; bash, zsh: completion scripts")
      ->required()
      ->check(CLI::IsMember({"ops", "cli", "man", "bash", "zsh"}));
  command->add_option("--recordings", options->recordings, "Folder of recorded cases that the page ops cites as evidence")
      ->check(CLI::ExistingDirectory);
  command->add_option("--speeds", options->speeds, "What tools/bench --record has written, for the page ops")->check(CLI::ExistingFile);
  command->callback([options, &app] {
    const std::string& page = options->page;
    fmt::print("{}", page == "ops"    ? ops_page(options->recordings, options->speeds)
                     : page == "cli"  ? cli_page(app)
                     : page == "man"  ? man_page(app)
                     : page == "bash" ? bash_completion(app)
                                      : zsh_completion(app));
  });
}

}  // namespace dodona::tools
