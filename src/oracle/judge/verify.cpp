#include "oracle/judge/verify.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/make_case.h"

namespace dodona::oracle {
namespace {

namespace fs = std::filesystem;

/// A GPU's bits are held against what that GPU made. Recordings that name none are an H200's.
bool made_on(const Case& c, Mode mode) {
  // Generated outputs are golden mode's.
  if (!c.recorded()) return false;
  std::string device = c.provenance;
  std::transform(device.begin(), device.end(), device.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const std::string_view gpu : gpu_names())
    if (device.find("nvidia " + std::string(gpu)) != std::string::npos) return mode_of_gpu(gpu) == mode;
  return mode == Mode::hopper;
}

/// A formula is the GPU's in what no implementation may choose, and no GPU made the rest.
bool speaks_for_a_gpu(const Case& c, const GoldenRun& golden) {
  if (c.provenance.find("\"formula\"") == std::string::npos) return true;
  return std::all_of(c.outputs.begin(), c.outputs.end(), [&](const auto& output) {
    const ReferenceOutput* const known = golden.reference.find(output.first);
    return known == nullptr || std::all_of(known->slack.begin(), known->slack.end(), [](double slack) { return slack == 0; });
  });
}

/// `golden` is computed by the first mode that needs it.
CaseResult verify_one(const Case& c, Mode mode, const Exec& exec, const Sample& sample, std::optional<SampledGolden>& golden) {
  CaseResult result{c.path, std::string(c.op->name()), c.name, mode, {}, {}, false, c.ignored};
  try {
    // A call that the emulation does not cover is no fault of the recording.
    if ((of_a_gpu(mode) && !made_on(c, mode)) || !c.op->supports(runnable(*c.op, c.inputs), mode)) {
      result.no_such_mode = true;
      return result;
    }
    if (!c.line.empty()) refuse_variants(parse_case_line(c.line), "verify");
    if (c.outputs.empty()) throw Error(ErrorCode::bad_file, result.op, c.path, "holds no recorded outputs");
    if (!golden) golden = run_golden(*c.op, c.inputs, exec, sample);
    if (of_a_gpu(mode) && !speaks_for_a_gpu(c, golden->golden)) {
      result.no_such_mode = true;
      return result;
    }
    result.verdict = judge(*c.op, c.inputs, golden->golden, c.outputs, {mode, exec});
    for (const OutputVerdict& output : result.verdict->outputs) result.samples.push_back(text_of(golden->taken, output.name, sample));
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

}  // namespace

CaseList find_cases(const std::vector<std::string>& paths, const std::string& only_op) {
  CaseList list;
  std::set<std::string> unknown;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw Error(ErrorCode::bad_file, "", path, "does not exist");
    if (!fs::is_directory(path)) {
      list.files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied))
      if (entry.is_regular_file() && entry.path().extension() == ".safetensors") found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    for (const std::string& file : found) {
      // The folder names the op; the file's own metadata decides when it is judged.
      const std::string folder = fs::path(file).parent_path().filename().string();
      if (registry().find(folder) == nullptr) {
        const std::string op = case_op(file);
        if (registry().find(op) == nullptr) {
          ++list.skipped;
          if (!op.empty() && !op.starts_with("_")) unknown.insert(op);
          continue;
        }
      }
      if (only_op.empty() || folder == only_op) list.files.push_back(file);
    }
  }
  list.unknown_ops.assign(unknown.begin(), unknown.end());
  return list;
}

std::vector<std::string> golden_path() {
  std::vector<std::string> paths;
  const char* text = std::getenv("DODONA_GOLDEN_PATH");
  std::string rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    if (colon != 0) paths.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return paths;
}

std::vector<CaseResult> verify_file(const std::string& file, const std::vector<Mode>& modes, const Exec& exec, const Sample& sample) {
  std::vector<CaseResult> results;
  try {
    Case c = load_case(file, exec.threads);
    complete(c, exec);
    std::optional<SampledGolden> golden;
    for (const Mode mode : modes) results.push_back(verify_one(c, mode, exec, sample, golden));
  } catch (const Error& error) {
    CaseResult failed;
    failed.path = file;
    failed.mode = modes.front();
    failed.error = error.what();
    results.push_back(failed);
  }
  return results;
}

std::vector<CaseResult> verify(const std::vector<std::string>& files, const std::vector<Mode>& modes, const Exec& exec,
                               const std::function<void(std::size_t, std::size_t, const std::string&)>& progress, const Sample& sample) {
  std::vector<CaseResult> results;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (progress) progress(i, files.size(), files[i]);
    for (CaseResult& result : verify_file(files[i], modes, exec, sample)) results.push_back(std::move(result));
  }
  return results;
}

std::vector<OpSummary> summarize(const std::vector<CaseResult>& results) {
  std::vector<OpSummary> rows;
  for (const CaseResult& result : results) {
    if (result.no_such_mode) continue;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const OpSummary& r) { return r.op == result.op && r.mode == result.mode; });
    if (row == rows.end()) {
      rows.push_back({result.op, result.mode, 0, 0, 0, "", 0, Outcome::pass, {}});
      row = rows.end() - 1;
    }
    ++row->cases;
    if (!result.verdict) {
      ++row->errors;
      continue;
    }
    row->passed += result.verdict->outcome == Outcome::pass || result.verdict->outcome == Outcome::known_defect ? 1 : 0;
    row->outcome = std::max(row->outcome, result.verdict->outcome);
    row->max_share = std::max(row->max_share, result.verdict->max_share());
    row->judges.clear();
    for (const OutputVerdict& output : result.verdict->outputs) {
      const std::string judge(name(output.judge));
      if (row->judges.find(judge) == std::string::npos) row->judges += (row->judges.empty() ? "" : ", ") + judge;
      if (!output.defect.empty() && std::find(row->defects.begin(), row->defects.end(), output.defect) == row->defects.end())
        row->defects.push_back(output.defect);
    }
  }
  const auto position = [](const std::string& op) {
    const auto all = registry().all();
    return std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry->name() == op; }) - all.begin();
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const OpSummary& a, const OpSummary& b) {
    return std::pair(position(a.op), a.mode) < std::pair(position(b.op), b.mode);
  });
  return rows;
}

}  // namespace dodona::oracle
