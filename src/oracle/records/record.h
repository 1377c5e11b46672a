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

/// The cases of a suite that one of several records of it holds.
struct RecordPart {
  std::size_t index = 0, count = 1;     ///< from 0
  std::vector<std::int64_t> positions;  ///< where the cases of the record stand in the suite
  bool operator==(const RecordPart&) const = default;
};

struct Record {
  std::string path, name, made_by;
  std::optional<RecordPart> part;
  std::vector<RecordedCase> cases;
};

struct RecordProgress {
  std::size_t done = 0, total = 0;
  std::string line;
};
using OnProgress = std::function<void(const RecordProgress&)>;

/// A record while it is made: cases come in any order, and each is kept as it comes.
class RecordInProgress {
 public:
  /// Makes the folder, and takes over what a partial record of the same suite, part and version holds. Throws Error (bad_file). The suite
  /// must outlive this; of a part its cases are the part's.
  RecordInProgress(const Suite& suite, const std::string& folder, const std::optional<RecordPart>& part = {});
  /// Cases of the suite that are still to be made, in order.
  std::vector<std::size_t> missing() const;
  std::size_t resumed() const { return resumed_; }
  /// What `recorded_case` gave for that case. Throws Error (bad_file).
  void keep(std::size_t index, const std::string& recorded);
  /// When none is missing: the record takes the place of an older one.
  Record finish();

 private:
  const Suite& suite_;
  std::optional<RecordPart> part_;
  std::string folder_, head_;
  std::map<std::size_t, RecordedCase> cases_;
  std::size_t resumed_ = 0;
};
/// Runs one case of the suite; tensors go to the folder. As a line of a partial record. Throws Error naming the case.
std::string recorded_case(const Suite& suite, std::size_t index, const std::string& folder, const Exec& exec);

/// Records the suite into `folder`, one case after the other. Cases that a partial record holds are not made again; `resumed` counts them.
/// Throws Error; what was finished until then is kept for the next time.
Record make_record(const Suite& suite, const std::string& folder, const Exec& exec, const OnProgress& progress = {},
                   std::size_t* resumed = nullptr);

/// Makes one record of the records of all parts, in any order: that of the whole suite, byte for byte. Throws Error (bad_file,
/// missing_argument) for parts of other suites or versions, for one that is missing and for one that comes twice.
Record merge_records(const std::vector<std::string>& parts, const std::string& folder);

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

/// Recomputes a case in the recorded modes (or only `mode`) and compares bits.
VerifiedCase verify_case(const Record& record, std::size_t index, std::optional<Mode> mode, const Exec& exec);
/// Every case of the record.
std::vector<VerifiedCase> verify_record(const Record& record, std::optional<Mode> mode, const Exec& exec, const OnProgress& progress = {});

/// The first case in which two records differ; nothing when they agree. `steps` counts those that agree.
std::optional<Difference> first_difference(const std::string& a, const std::string& b, std::size_t& steps);

}  // namespace dodona::oracle
