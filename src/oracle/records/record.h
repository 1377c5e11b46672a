// Records: what a suite's cases gave, as digests and, where asked for, tensors. Made once, verified on every commit.
//
// A record is a folder. record.json holds, case by case, the line, the contract's version, digests of the inputs, and by mode the digest of
// each output with hashes of its parts, which say where it differs. tensors/ holds outputs, by digest. While a record is made, finished
// cases are appended to record.partial.jsonl: an interrupted one is taken up where it stopped, and the old record stays until the new one
// is whole.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "oracle/records/suite.h"

namespace dodona::oracle {

/// One recorded output.
struct RecordedOutput {
  std::string name, dtype, digest;
  std::vector<std::int64_t> shape;
  std::vector<std::string> parts;  ///< hashes of equal runs of elements, at most 64
};

struct RecordedCase {
  std::string line;
  int contract_version = 0;
  std::map<std::string, std::string> inputs;                 ///< digests
  std::map<std::string, std::vector<RecordedOutput>> modes;  ///< by mode
  std::map<std::string, std::string> tensors;                ///< by mode: the file in the record's folder; empty for digests only
};

struct Record {
  std::string path, name, made_by;
  std::vector<RecordedCase> cases;
};

struct RecordProgress {
  std::size_t done = 0, total = 0;
  std::string line;
};
using OnProgress = std::function<void(const RecordProgress&)>;

/// Records the suite into `folder`, which is made. Cases that a partial record of the same suite and version holds are not made again;
/// `resumed` counts them. Throws Error; what was finished until then is kept for the next time.
Record make_record(const Suite& suite, const std::string& folder, const Exec& exec, const OnProgress& progress = {},
                   std::size_t* resumed = nullptr);

bool is_record(const std::string& path);
/// Throws bad_file for a folder without a whole record, and for one that is broken.
Record read_record(const std::string& folder);

/// Where two recorded outputs part.
struct Difference {
  std::string line, op, mode, output;
  std::string what;  ///< for a reader: the element and both values where tensors are at hand, else the elements among which it is
};

enum class CaseState { same, different, contract_changed, inputs_changed, error };
std::string_view name(CaseState state);

struct VerifiedCase {
  std::string line;
  CaseState state = CaseState::same;
  std::optional<Difference> difference;
  std::string remark;  ///< which contract versions, what error
};

/// Recomputes every case in the recorded modes (or only `mode`) and compares bits.
std::vector<VerifiedCase> verify_record(const Record& record, std::optional<Mode> mode, const Exec& exec, const OnProgress& progress = {});

/// The first case in which two records differ; nothing when they agree. `steps` counts those that agree.
std::optional<Difference> first_difference(const std::string& a, const std::string& b, std::size_t& steps);

}  // namespace dodona::oracle
