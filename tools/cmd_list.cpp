#include <fmt/format.h>

#include "common.h"
#include "dodona/op.h"
#include "op_text.h"

namespace dodona::tools {
namespace {

void print_json() {
  io::Json list = io::Json::array();
  for (const auto& op : registry().all()) {
    io::Json modes = io::Json::array();
    for (const Mode mode : op->modes()) modes.push_back(std::string(name(mode)));
    list.push_back({{"name", std::string(op->name())},
                    {"category", std::string(name(op->info().category))},
                    {"source", std::string(name(op->info().source))},
                    {"modes", modes}});
  }
  fmt::print("{}\n", io::json_text(list, 2));
}

}  // namespace

void add_list(CLI::App& app, int&) {
  auto options = std::make_shared<ExecOptions>();
  auto* command = app.add_subcommand("list", "List the ops of the inventory: name, category, source, modes");
  options->add_json(*command);
  command->callback([options] {
    if (options->json) return print_json();
    std::vector<std::vector<std::string>> rows;
    for (const auto& op : registry().all())
      rows.push_back(
          {std::string(op->name()), std::string(name(op->info().category)), std::string(name(op->info().source)), modes_of(*op)});
    fmt::print("{}", table({"op", "category", "source", "modes"}, rows, {false, false, false, false}));
  });
}

}  // namespace dodona::tools
