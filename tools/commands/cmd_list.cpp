#include <fmt/format.h>

#include "dodona/op.h"
#include "ops/kernels.h"
#include "tools/common.h"
#include "tools/op_text.h"

namespace dodona::tools {
namespace {

void print_json() {
  io::Json list = io::Json::array();
  for (const auto& op : registry().all()) {
    io::Json modes = io::Json::array(), sources = io::Json::array();
    for (const Mode mode : op->modes()) modes.push_back(std::string(name(mode)));
    for (const Source source : op->info().sources) sources.push_back(std::string(name(source)));
    list.push_back(
        {{"name", std::string(op->name())}, {"category", std::string(name(op->info().category))}, {"sources", sources}, {"modes", modes}});
  }
  fmt::print("{}\n", io::json_text(list, 2));
}

void print_kernels_json() {
  io::Json list = io::Json::array();
  for (const ops::Kernel& kernel : ops::kernels())
    list.push_back({{"name", std::string(kernel.name)},
                    {"source", std::string(name(kernel.source))},
                    {"category", std::string(kernel.category)},
                    {"used_by", std::string(kernel.used_by)},
                    {"in", ops::op_of(kernel) != nullptr}});
  fmt::print("{}\n", io::json_text(list, 2));
}

void print_kernels() {
  std::vector<std::vector<std::string>> rows;
  for (const ops::Kernel& kernel : ops::kernels())
    rows.push_back({std::string(kernel.name), ops::op_of(kernel) != nullptr ? "in" : "", std::string(name(kernel.source)),
                    std::string(kernel.category), std::string(kernel.used_by)});
  fmt::print("{}\n{}\n", table({"kernel", "", "source", "category", "used by"}, rows, {false, false, false, false, false}),
             ops::kernels_in_words());
}

}  // namespace

void add_list(CLI::App& app, int&) {
  auto options = std::make_shared<ExecOptions>();
  auto* command = app.add_subcommand("list", "List the ops of the inventory: name, category, source, modes");
  options->add_json(*command);
  auto inventory = std::make_shared<bool>(false);
  command->add_flag("--inventory", *inventory, "List the kernels that the models call instead, and which of them are in");
  command->callback([options, inventory] {
    if (*inventory) return options->json ? print_kernels_json() : print_kernels();
    if (options->json) return print_json();
    std::vector<std::vector<std::string>> rows;
    for (const auto& op : registry().all())
      rows.push_back({std::string(op->name()), std::string(name(op->info().category)), to_string(op->info().sources), modes_of(*op)});
    fmt::print("{}", table({"op", "category", "source", "modes"}, rows, {false, false, false, false}));
  });
}

}  // namespace dodona::tools
