#include <fmt/format.h>

#include <filesystem>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "oracle/fib/fib_export.h"
#include "oracle/fib/fib_import.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

struct ImportCommand : ExecOptions {
  std::string root, output, trace;
  std::uint64_t seed = 0;
  std::vector<std::string> only, axes, maps;
};

/// NAME=VALUE words of an option.
std::pair<std::string, std::string> name_and_value(const std::string& option, const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == word.size())
    throw Error(ErrorCode::bad_option, "", option, "needs NAME=VALUE, got '" + word + "'");
  return {word.substr(0, equals), word.substr(equals + 1)};
}

oracle::fib::ImportOptions options_of(const ImportCommand& command, int threads) {
  oracle::fib::ImportOptions options;
  options.seed = command.seed;
  options.only = command.only;
  options.threads = threads;
  for (const std::string& word : command.axes) {
    const auto [axis, text] = name_and_value("--axis", word);
    const AttrValue value = parse_attr_value(text);
    const auto* size = std::get_if<std::int64_t>(&value);
    if (size == nullptr || *size < 0) throw Error(ErrorCode::bad_option, "", "--axis", "needs a size for " + axis + ", got '" + text + "'");
    options.axes[axis] = *size;
  }
  for (const std::string& word : command.maps) {
    const auto [definition, op] = name_and_value("--map", word);
    registry().at(op);
    options.ops[definition] = op;
  }
  return options;
}

io::Json to_json(const oracle::fib::Imported& one, const std::string& path) {
  io::Json json{{"definition", one.definition}, {"workload", one.uuid}, {"dialect", one.dialect}, {"op", one.op}, {"notes", one.notes}};
  if (!path.empty()) json["path"] = path;
  if (!one.skipped.empty()) json["skipped"] = one.skipped;
  if (!one.error.empty()) json["error"] = one.error;
  return json;
}

void import_all(const ImportCommand& command, int& exit_code) {
  const Exec exec = command.exec();
  io::Json report = io::Json::array();
  std::string traces;
  int made = 0, skipped = 0, wrong = 0;
  oracle::fib::import_set(command.root, options_of(command, exec.threads), [&](const oracle::fib::Imported& one) {
    std::string path;
    if (one.made) {
      const auto folder = std::filesystem::path(command.output) / one.op;
      std::filesystem::create_directories(folder);
      path = (folder / (one.made->name + ".safetensors")).string();
      oracle::save_case(*one.made, path);
      if (!command.trace.empty()) traces += oracle::fib::trace_of(*one.made, *one.workload, exec) + "\n";
    }
    made += one.made ? 1 : 0;
    skipped += one.skipped.empty() ? 0 : 1;
    wrong += one.error.empty() ? 0 : 1;
    if (command.json) {
      report.push_back(to_json(one, path));
    } else {
      fmt::print("{} {}  {}\n", one.definition, one.uuid,
                 one.made               ? "-> " + path
                 : !one.skipped.empty() ? "skipped: " + one.skipped
                                        : "ERROR: " + one.error);
      for (const std::string& note : one.notes) fmt::print("    {}\n", note);
    }
  });
  if (!command.trace.empty()) io::write_file(command.trace, std::as_bytes(std::span(traces)));
  if (command.json) {
    fmt::print("{}\n", io::json_text({{"cases", made}, {"skipped", skipped}, {"errors", wrong}, {"workloads", report}}, 2));
  } else {
    fmt::print("{} cases, {} skipped, {} errors\n", made, skipped, wrong);
  }
  exit_code = wrong > 0 || made == 0 ? exit_cannot : exit_pass;
}

struct ExportCommand : ExecOptions {
  std::string folder;
  std::vector<std::string> ops;
};

}  // namespace

void add_import(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ImportCommand>();
  auto* command = app.add_subcommand("import", "Make cases from FlashInfer-Bench Definitions and Workloads, or fi_trace dumps");
  command->add_option("--fib", options->root, "Folder of the set: definitions/, workloads/, blob/; or a folder of fi_trace dumps")
      ->required();
  command->add_option("-o,--output", options->output, "Folder for the cases")->required();
  command->add_option("--definition", options->only, "Only this Definition; may be repeated")->expected(1)->take_all();
  command->add_option("--axis", options->axes, "NAME=N: sizes for Definitions without a workload; may be repeated")
      ->expected(1)
      ->take_all();
  command->add_option("--map", options->maps, "DEFINITION=OP: the op of a Definition that nothing else tells")->expected(1)->take_all();
  command->add_option("--seed", options->seed, "Seed of inputs that a workload calls random (default 0)");
  command->add_option("--trace", options->trace, "Run every case on this CPU too and write the Traces to this file (JSON lines)");
  options->add_mode(*command, "Mode of the run for --trace: fast (default), golden, or a GPU's bits: hopper, blackwell, ada, ampere");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->footer(
      "A Definition is matched by its tag fi_api, then by op_type and name. Of a paged cache only the pages that are named are made or "
      "read.\n"
      "Python in these files is not executed. Exit code 2 when a workload is wrong, or no case came of the set.");
  command->callback([options, &exit_code] { import_all(*options, exit_code); });
}

void add_export(CLI::App& app, int&) {
  auto options = std::make_shared<ExportCommand>();
  auto* command = app.add_subcommand("export", "Write the ops as FlashInfer-Bench Definitions, Workloads and inputs");
  command->add_option("--fib", options->folder, "Folder to write definitions/, workloads/ and blob/ to")->required();
  command->add_option(
      "OP", options->ops,
      "Ops to write, all their case lines, or case lines in quotes: 'rmsnorm T=4 H=64 --special zero-rows' (default: all ops)");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->callback([options] {
    const auto names = oracle::fib::export_set(options->folder, options->ops, options->exec().threads);
    if (options->json) {
      fmt::print("{}\n", io::json_text(io::Json(names), 2));
    } else {
      fmt::print("{} Definitions written to {}\n", names.size(), options->folder);
    }
  });
}

}  // namespace dodona::tools
