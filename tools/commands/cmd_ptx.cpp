#include "cmd_ptx.h"

#include <fmt/format.h>

#include <filesystem>

#include "dodona/error.h"
#include "dodona/ptx.h"
#include "io/safetensors.h"
#include "tools/common.h"
#include "tools/ptx_launch.h"

namespace dodona::tools {
namespace {

struct PtxOptions : ExecOptions, PtxLaunchOptions {
  std::string action, output, race = "auto", uninit = "auto";
  std::uint64_t findings = 32;
  std::vector<std::string> case_words;
};

ptx::Check check(const std::string& word) {
  return word == "on" ? ptx::Check::on : word == "off" ? ptx::Check::off : ptx::Check::automatic;
}

PtxLaunch prepared(const PtxOptions& options) {
  const Exec exec = options.exec();
  oracle::Case c;
  std::string text;
  for (const std::string& word : options.case_words) text += (text.empty() ? "" : " ") + word;
  if (!text.empty()) c = inputs_of(text, exec.threads);
  PtxLaunch p = prepare(options, c, exec.threads);
  p.launch.race = check(options.race);
  p.launch.uninitialised = check(options.uninit);
  p.launch.findings = options.findings;
  return p;
}

io::Json place_json(const ptx::Place& p) {
  return {{"line", p.line}, {"instruction", p.instruction}, {"source", p.source}, {"lane", p.lane}, {"warp", p.warp}};
}

int run(const PtxOptions& options) {
  PtxLaunch p = prepared(options);
  const ptx::Report report = p.module->launch(p.kernel, p.launch);
  if (!options.output.empty()) {
    io::write_safetensors(options.output, p.memory);
  }
  if (options.json) {
    io::Json findings = io::Json::array(), open = io::Json::array();
    for (const ptx::Finding& f : report.findings) {
      io::Json finding = place_json(f.place);
      finding["kind"] = f.kind;
      finding["address"] = f.address;
      finding["count"] = f.count;
      finding["text"] = f.text;
      findings.push_back(std::move(finding));
    }
    for (const ptx::OpenReading& o : report.open) open.push_back({{"line", o.line}, {"text", o.text}, {"fused", o.fused}});
    fmt::print("{}\n", io::json_text({{"kernel", report.kernel},
                                      {"blocks", report.blocks},
                                      {"lane_instructions", report.lane_instructions},
                                      {"seconds", report.seconds},
                                      {"findings", findings},
                                      {"open", open}},
                                     2));
  } else {
    fmt::print("{}: {} blocks of {} threads, {} instructions of lanes in {:.3g} s\n", report.kernel, report.blocks,
               report.threads_per_block, report.lane_instructions, report.seconds);
    fmt::print("watched for races: {}; for what nobody has written: {}\n", report.race_checked ? "yes" : "no",
               report.uninitialised_checked ? "yes" : "no");
    for (const ptx::OpenReading& o : report.open) fmt::print("{}\n", text_of(o));
    for (const ptx::Finding& f : report.findings) fmt::print("{}\n", f.text);
    if (report.findings.empty()) fmt::print("no findings\n");
  }
  return report.findings.empty() ? exit_pass : exit_fail;
}

int trace(const PtxOptions& options) {
  const PtxLaunch p = prepared(options);
  const ptx::Trace found = p.module->trace(p.kernel, p.launch, element_of(options, p));
  if (options.json) {
    io::Json json = place_json(found.place);
    json["expression"] = found.expression;
    json["nodes"] = found.nodes;
    fmt::print("{}\n", io::json_text(json, 2));
  } else {
    fmt::print("{}", found.expression);
  }
  return exit_pass;
}

int list(const PtxOptions& options) {
  const ptx::Module module(read_text(options.file), std::filesystem::path(options.file).filename().string());
  fmt::print("PTX {}, {}\n", module.version(), module.target());
  for (const ptx::Kernel& k : module.kernels()) {
    fmt::print("{}{}, {} bytes of shared memory{}\n", k.name,
               k.block ? fmt::format(", blocks of {} x {} x {}", k.block->x, k.block->y, k.block->z) : "", k.static_shared,
               k.dynamic_shared ? " and what a launch gives" : "");
    for (const ptx::Parameter& p : k.parameters) fmt::print("  .{} {}, {} bytes\n", p.type, p.name, p.bytes);
    for (const std::string& missing : k.missing) fmt::print("  not there: {}\n", missing);
    const bool asks = options.contract == "ptxas" || !options.machine_code.empty();
    if (!asks) {
      for (const ptx::OpenReading& o : k.open) fmt::print("  {}\n", text_of(o));
      continue;
    }
    const ptx::Readings readings = module.readings(k.name, tools_of(options), options.machine_code);
    for (const ptx::OpenReading& o : readings.open) fmt::print("  {}\n", text_of(o));
    fmt::print("  readings {}: {}\n", readings.settled ? "settled" : "not settled", readings.said);
  }
  return exit_pass;
}

int act(const PtxOptions& options) {
  return options.action == "list" ? list(options) : options.action == "trace" ? trace(options) : run(options);
}

}  // namespace

void add_ptx(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PtxOptions>();
  auto* command = app.add_subcommand("ptx", "Run any kernel's PTX to a Hopper GPU's bits, and name what it does that it must not");
  command
      ->add_option("ACTION", options->action,
                   "run: a launch; trace: a launch, and how one element was computed; list: the file's kernels and their parameters")
      ->required()
      ->check(CLI::IsMember({"run", "trace", "list"}));
  command->add_option("FILE", options->file, "The kernel's PTX, as Triton and nvcc write it for sm_80 to sm_90a")->required();
  command->add_option("CASE", options->case_words, "A case file, or a case line: where arguments in.NAME come from");
  options->add_file_options(*command);
  options->add_launch_options(*command);
  command->add_option("--race", options->race, "Watch for races: on, off, auto (launches of at most 16384 threads)")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off", "auto"}));
  command->add_option("--uninit", options->uninit, "Watch for reads of what nobody has written, likewise")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off", "auto"}));
  command->add_option("--findings", options->findings, "At most so many findings")->capture_default_str();
  command->add_option("-o,--output", options->output, "Write the memory of the arguments afterwards (safetensors): for `dodona check`");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->footer(
      "Exit code 0: it ran and nothing was found; 1: something was (the kernel went on all the same); 2: it cannot be run.\n"
      "  dodona ptx run add.ptx --grid 4 --arg in.input --arg in.weight --arg out=f32[4,64] --arg 64 rmsnorm T=4 H=64\n"
      "What is known of the bits, what is watched, and what is not there: docs/ptx.md.");
  command->callback([options, &exit_code] { exit_code = act(*options); });
}

}  // namespace dodona::tools
