#include <fmt/format.h>

#include <map>

#include "dodona/error.h"
#include "oracle/trust/audit.h"
#include "oracle/trust/customary.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

constexpr int exit_vacuous = 3;  ///< --strict: some check passes a gross fault

struct AuditOptions : ExecOptions {
  std::string op;
  bool strict = false, list = false;
};

/// One fault over all its injections.
struct FaultRow {
  int injected = 0, caught = 0, within = 0, customary = 0, vacuous = 0, idle = 0;
  std::string example;
};

std::map<std::string_view, FaultRow> by_fault(const oracle::Audit& audit) {
  std::map<std::string_view, FaultRow> rows;
  for (const oracle::Injection& injection : audit.injections) {
    FaultRow& row = rows[injection.fault->id];
    row.injected += injection.counts() ? 1 : 0;
    row.idle += injection.counts() ? 0 : 1;
    row.caught += injection.caught == oracle::Caught::by_judge ? 1 : 0;
    row.vacuous += injection.vacuous() ? 1 : 0;
    row.within += injection.caught == oracle::Caught::within && !injection.vacuous() ? 1 : 0;
    row.customary += injection.counts() && injection.customary ? 1 : 0;
    if (row.example.empty()) row.example = injection.pattern;
  }
  return rows;
}

std::vector<std::string> cells(const std::string& name, int injected, int caught, int within, int customary, int vacuous) {
  return {name,
          std::to_string(injected),
          std::to_string(caught),
          std::to_string(within),
          std::to_string(vacuous),
          std::to_string(customary),
          std::to_string(injected - customary)};
}

const std::vector<std::string> columns{"", "injected", "caught", "within contract", "vacuous", "customary catches", "customary misses"};
const std::vector<bool> right{false, true, true, true, true, true, true};

void print_op(const Op& op, const oracle::Audit& audit) {
  auto header = columns;
  header[0] = "fault";
  std::vector<std::vector<std::string>> rows;
  const auto grouped = by_fault(audit);
  std::vector<std::string> idle;
  for (const oracle::Fault& fault : oracle::faults()) {
    const auto found = grouped.find(fault.id);
    if (found == grouped.end()) continue;
    const FaultRow& row = found->second;
    if (row.injected == 0) {
      idle.emplace_back(fault.id);
    } else {
      rows.push_back(cells(std::string(fault.id), row.injected, row.caught, row.within, row.customary, row.vacuous));
    }
  }
  fmt::print("{}\n{}", op.name(), table(header, rows, right));
  if (!idle.empty()) fmt::print("changed nothing, or refused by the op: {}\n", fmt::join(idle, ", "));
  std::vector<std::string> sources;
  for (const TensorSpec& spec : op.schema().tensors) {
    if (spec.direction == Direction::in) continue;
    const auto check = oracle::customary_check(op, spec.name, spec.dtypes.empty() ? DType::bf16 : spec.dtypes.front());
    fmt::print("customary check of {}: {}\n", spec.name, check.source);
  }
  for (const oracle::Injection& injection : audit.injections)
    if (injection.vacuous())
      fmt::print("{}: {} in {} passes: {}\n", colored("VACUOUS", "31"), injection.fault->id, injection.site, injection.line);
}

io::Json to_json(const Op& op, const oracle::Audit& audit) {
  io::Json list = io::Json::array();
  for (const oracle::Injection& injection : audit.injections)
    list.push_back({{"fault", std::string(injection.fault->id)},
                    {"severity", std::string(oracle::name(injection.fault->severity))},
                    {"strikes", std::string(oracle::name(injection.fault->strikes))},
                    {"argument", injection.site},
                    {"case", injection.line},
                    {"outcome", std::string(oracle::name(injection.caught))},
                    {"vacuous", injection.vacuous()},
                    {"customary", injection.counts() ? io::Json(injection.customary) : io::Json(nullptr)},
                    {"pattern", injection.pattern}});
  return {{"op", std::string(op.name())}, {"injected", audit.injected()},   {"caught", audit.caught()}, {"within_contract", audit.within()},
          {"vacuous", audit.vacuous()},   {"customary", audit.customary()}, {"injections", list}};
}

void print_library(bool json) {
  io::Json list = io::Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const oracle::Fault& fault : oracle::faults()) {
    list.push_back({{"id", std::string(fault.id)},
                    {"summary", std::string(fault.summary)},
                    {"strikes", std::string(oracle::name(fault.strikes))},
                    {"severity", std::string(oracle::name(fault.severity))}});
    rows.push_back({std::string(fault.id), std::string(oracle::name(fault.strikes)), std::string(oracle::name(fault.severity)),
                    std::string(fault.summary)});
  }
  if (json) {
    fmt::print("{}\n", io::json_text(list, 2));
  } else {
    fmt::print("{}", table({"fault", "strikes", "severity", "what goes wrong"}, rows, {false, false, false, false}));
  }
}

int audit(const AuditOptions& options) {
  if (options.list) return print_library(options.json), exit_pass;
  const Exec exec = options.exec();
  std::vector<const Op*> ops;
  if (options.op.empty()) {
    for (const auto& op : registry().all()) ops.push_back(op.get());
  } else {
    ops.push_back(&registry().at(options.op));
  }
  Progress progress(options.json || options.quiet);
  io::Json list = io::Json::array();
  std::vector<std::vector<std::string>> rows;
  oracle::Audit all;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const oracle::Audit one =
        oracle::audit_op(*ops[i], exec, [&](std::size_t, std::size_t, const std::string& line) { progress.step(i, ops.size(), line); });
    all.injections.insert(all.injections.end(), one.injections.begin(), one.injections.end());
    rows.push_back(cells(std::string(ops[i]->name()), one.injected(), one.caught(), one.within(), one.customary(), one.vacuous()));
    if (options.json) list.push_back(to_json(*ops[i], one));
    if (ops.size() == 1 && !options.json) {
      progress.finish();
      print_op(*ops[i], one);
    }
  }
  progress.finish();
  const int exit_code = options.strict && all.vacuous() > 0 ? exit_vacuous : exit_pass;
  if (options.json) {
    fmt::print("{}\n", io::json_text({{"ops", list}, {"exit_code", exit_code}}, 2));
  } else if (ops.size() > 1) {
    rows.push_back(cells("all", all.injected(), all.caught(), all.within(), all.customary(), all.vacuous()));
    auto header = columns;
    header[0] = "op";
    fmt::print("{}", table(header, rows, right));
    for (const oracle::Injection& injection : all.injections)
      if (injection.vacuous())
        fmt::print("{}: {} in {} passes: {}\n", colored("VACUOUS", "31"), injection.fault->id, injection.site, injection.line);
  }
  return exit_code;
}

}  // namespace

void add_audit(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<AuditOptions>();
  auto* command =
      app.add_subcommand("audit", "Inject realistic faults: which do our judges catch, which the customary tolerance of upstream's tests?");
  command->add_option("OP", options->op, "Only this op, fault by fault (default: every op, one line each)");
  command->add_flag("--faults", options->list, "List the faults and what they do");
  command->add_flag("--strict", options->strict, "Exit with 3 when some check is vacuous: a gross fault changes the outputs and passes");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Faults that change no output, and calls that the op refuses, are not counted. A fine fault may stay within what the contract\n"
      "leaves open; a gross one may not.");
  command->callback([options, &exit_code] { exit_code = audit(*options); });
}

}  // namespace dodona::tools
