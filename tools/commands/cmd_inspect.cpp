#include <fmt/format.h>

#include <charconv>

#include "dodona/error.h"
#include "model/weights/inspect.h"
#include "tools/layer_range.h"
#include "tools/model_options.h"

namespace dodona::tools {
namespace {

struct InspectOptions {
  std::string folder, layers;
  ModelOptions model;
  std::size_t most = 40;
  bool values = false, json = false;
};

using model::Finding;

io::Json to_json(const InspectOptions& options, const model::ModelConfig& config, const model::Inspection& inspection) {
  io::Json parts = io::Json::array(), tensors = io::Json::array();
  for (const model::InspectedPart& part : inspection.parts) {
    io::Json row{
        {"part", part.title}, {"forms", part.forms}, {"expected", part.expected}, {"present", part.present}, {"bytes", part.bytes}};
    for (const Finding finding :
         {Finding::missing, Finding::misnamed, Finding::misshaped, Finding::unknown, Finding::unread, Finding::unusable}) {
      const auto at = part.findings.find(finding);
      row[std::string(name(finding))] = at == part.findings.end() ? 0 : at->second;
    }
    parts.push_back(std::move(row));
  }
  for (const model::InspectedTensor& tensor : inspection.tensors)
    tensors.push_back({{"finding", std::string(name(tensor.finding))},
                       {"name", tensor.name},
                       {"expected", tensor.expected},
                       {"found", tensor.found},
                       {"file", tensor.file}});
  return {{"folder", options.folder},
          {"model", config.name},
          {"quantization", std::string(model::scheme_of(config.quant.algo).name)},
          {"files", inspection.files},
          {"tensors", inspection.present},
          {"bytes", inspection.bytes},
          {"parts", parts},
          {"findings", tensors},
          {"values_looked_at", options.values},
          {"spare", inspection.spare},
          {"unreadable", inspection.unreadable},
          {"unfinished", inspection.unfinished},
          {"fits", inspection.fits()}};
}

std::string forms_text(const model::InspectedPart& part) {
  std::string text;
  for (const auto& [form, count] : part.forms) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, form);
  return text;
}

/// Parts in a row that are alike but for their number become one.
struct Row {
  std::string first, last;
  model::InspectedPart sum;
};
bool alike(const model::InspectedPart& a, const model::InspectedPart& b) {
  const auto kind = [](const std::string& title) { return title.substr(std::min(title.find('('), title.size())); };
  return a.title.starts_with("layer") && b.title.starts_with("layer") && kind(a.title) == kind(b.title) && a.forms == b.forms &&
         a.expected == b.expected && a.present == b.present && a.findings.empty() && b.findings.empty();
}

void print(const InspectOptions& options, const model::ModelConfig& config, const model::Inspection& inspection) {
  fmt::print("{}: {}, {}; {} tensors, {:.3f} GB in {} file{}\n\n", options.folder, config.name, model::scheme_of(config.quant.algo).name,
             inspection.present, static_cast<double>(inspection.bytes) * 1e-9, inspection.files, inspection.files == 1 ? "" : "s");
  const bool unread = !inspection.unreadable.empty();
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < inspection.parts.size();) {
    const model::InspectedPart& first = inspection.parts[i];
    std::size_t end = i + 1;
    std::int64_t present = first.present, bytes = first.bytes;
    for (; end < inspection.parts.size() && alike(first, inspection.parts[end]); ++end)
      present += inspection.parts[end].present, bytes += inspection.parts[end].bytes;
    std::string title = first.title;
    if (end > i + 1) {
      const std::string& last = inspection.parts[end - 1].title;
      const auto number = [](const std::string& text) { return text.substr(6, text.find(' ', 6) - 6); };
      title = "layers " + number(first.title) + " to " + number(last) + title.substr(title.find(" ("));
    }
    const auto count = [&](Finding finding) {
      const auto at = first.findings.find(finding);
      return at == first.findings.end() ? std::string() : std::to_string(at->second);
    };
    rows.push_back({title, forms_text(first), std::to_string(present), fmt::format("{:.3f} GB", static_cast<double>(bytes) * 1e-9),
                    count(Finding::missing), count(Finding::misnamed), count(Finding::misshaped), count(Finding::unknown)});
    if (unread) rows.back().push_back(count(Finding::unread));
    if (options.values) rows.back().push_back(count(Finding::unusable));
    i = end;
  }
  std::vector<std::string> heads{"part", "linear modules", "tensors", "bytes", "missing", "misnamed", "misshaped", "unknown"};
  std::vector<bool> to_the_right{false, false, true, true, true, true, true, true};
  if (unread) heads.emplace_back("unread"), to_the_right.push_back(true);
  if (options.values) heads.emplace_back("unusable"), to_the_right.push_back(true);
  fmt::print("{}", table(heads, rows, to_the_right));
  if (inspection.spare > 0)
    fmt::print("\n{} tensor{} that nothing reads: copies of embedding and head in NextN layers, tables\n", inspection.spare,
               inspection.spare == 1 ? "" : "s");
  for (const std::string& message : inspection.unreadable) fmt::print("\nunreadable: {}\n", message);
  for (const std::string& file : inspection.unfinished) fmt::print("\n{} looks like a download that was interrupted\n", file);
  if (!inspection.tensors.empty()) fmt::print("\n");
  for (std::size_t i = 0; i < inspection.tensors.size() && i < options.most; ++i) {
    const model::InspectedTensor& tensor = inspection.tensors[i];
    std::string line = fmt::format("{:<9}  {}", name(tensor.finding), tensor.name);
    if (!tensor.expected.empty()) line += ": expected " + tensor.expected;
    if (!tensor.found.empty()) line += fmt::format("{}found {} in {}", tensor.expected.empty() ? ": " : ", ", tensor.found, tensor.file);
    fmt::print("{}\n", line);
  }
  if (inspection.tensors.size() > options.most)
    fmt::print("and {} more; --most shows them, --json all\n", inspection.tensors.size() - options.most);
  const std::string good =
      options.values ? "every tensor fits the configuration, and every value is a finite number" : "every tensor fits the configuration";
  fmt::print("\n{}\n", inspection.fits() ? colored(good, "32") : colored("the checkpoint does not fit the configuration", "31"));
}

int inspect(const InspectOptions& options) {
  const bool own = options.model.config.empty() && options.model.preset.empty();
  const model::ModelConfig config = own ? model::load_config(options.folder) : options.model.load("");
  const LayerRange range = options.layers.empty() ? LayerRange{0, config.total_layers() - 1} : parse_layers(options.layers);
  Progress progress(false);
  const model::ValueLook look{options.values, [&](std::int64_t done, std::int64_t parts) {
                                progress.step(static_cast<std::size_t>(done), static_cast<std::size_t>(parts), options.folder);
                              }};
  const model::Inspection inspection = model::inspect_checkpoint(options.folder, config, range.first, range.last, look);
  progress.finish();
  if (options.json)
    fmt::print("{}\n", io::json_text(to_json(options, config, inspection), 2));
  else
    print(options, config, inspection);
  if (!inspection.unreadable.empty()) return exit_cannot;
  return inspection.fits() ? exit_pass : exit_fail;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InspectOptions>();
  auto* command = app.add_subcommand(
      "inspect",
      "Hold a checkpoint's tensors against its configuration: which are missing, misnamed, of another type or shape, or unknown. Reads "
      "headers alone, unless --values. Exit code 1 where something does not fit, 2 where a file cannot be read");
  command->add_option("folder", options->folder, "Folder with the checkpoint")->required();
  options->model.add(*command, "that of the folder");
  command->add_option("--layers", options->layers, "A layer, 3, or a range of layers, 0..3, both ends included (default: all)");
  command->add_option("--most", options->most, "Tensors that do not fit to show (default 40)")->check(whole_number());
  command->add_flag("--values", options->values,
                    "Look at the values too: weights and scales that are infinite or no number, scales of whole tensors that are not "
                    "positive. Reads all that the layers hold");
  command->add_flag("--json", options->json, "Print one JSON value instead of text");
  command->callback([options, &exit_code] { exit_code = inspect(*options); });
}

}  // namespace dodona::tools
