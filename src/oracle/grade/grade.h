// Grading a kernel that is not trusted: another process, inputs that it has not seen, outputs held against golden mode.
//
// Who makes the inputs, keeps the answers and judges is this process. The kernel's gets a file for each call (call_file.h) and nothing that
// tells how it was made; golden mode runs when the outputs have been read. Sizes, types, optional inputs and distributions vary with every
// call, calls are repeated among others with the same inputs and with other inputs of the same sizes, and what rooms for outputs held
// before is junk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/exec.h"
#include "io/json.h"

namespace dodona::oracle {

/// The word of a command that stands for the path of a call's file: such a command is started for every call. Any other is started once,
/// is sent the PATH of each call on its stdin, a line each, and answers `done PATH`, `refused PATH REASON` or `failed PATH REASON` on its
/// stdout.
inline constexpr const char* call_word = "{call}";

struct GradeRequest {
  std::string claim;                 ///< case line, ranges allowed: the sizes, types and attributes that the kernel takes; the others vary
  std::vector<std::string> command;  ///< program and arguments
  int calls = 40;
  std::string nonce;  ///< hexadecimal digits: everything that is drawn follows from them; empty: fresh ones
  Mode mode = Mode::golden;
  Exec exec = {};
  double seconds = 60;          ///< for each call, of the first one twice as many
  double explain_seconds = 0;   ///< for the first failing call: how long well-known mistakes are looked for
  bool same_bits = false;       ///< outputs of equal inputs must be equal to the bit
  bool (*stopped)() = nullptr;  ///< asked while the kernel runs and after it: whether to end with an error instead of a grade
};

/// How a call of a kernel ended.
enum class CallOutcome {
  pass,
  vacuous,  ///< right, but zeros would have been
  fail,     ///< outputs that are wrong
  refused,  ///< the kernel says that it cannot
  broken,   ///< it crashed, ran out of time, or answered nothing that can be read
  foul,     ///< it wrote what it must not, or when it must not
};
std::string_view name(CallOutcome outcome);

struct GradedCall {
  std::string line;          ///< the case line; known when it is over
  std::string kind = "new";  ///< new; sizes: of an earlier call, with other inputs; again: the inputs of an earlier call
  CallOutcome outcome = CallOutcome::broken;
  std::string cause;          ///< why it does not pass, in one line
  double kernel_seconds = 0;  ///< from the path being sent to the answer
  double judge_seconds = 0;   ///< everything else: making inputs, reading, golden mode, judging
};

struct Grade {
  std::string op, claim, nonce;
  bool secret = false;  ///< the nonce was drawn for this grading
  std::vector<GradedCall> calls;
  std::vector<std::string> notes;  ///< what does not decide: outputs that are not the same run after run
  std::string printed;             ///< the last lines that the kernel printed
  int count(CallOutcome outcome) const;
  /// Passing calls as a share of those that could have failed.
  double score() const;
  /// Every call that could have failed passes, and at least half of all could.
  bool passes() const;
};

/// Throws Error: bad_option for a command that cannot be started and a claim that no call fits; what the op says of a claim.
Grade grade(const GradeRequest& request, const std::function<void(int done, int total)>& progress = {});

// ---- the same by several processes, each with a process of the kernel's own

/// The calls that one of several processes makes: those that repeat an earlier one's inputs or sizes where that one is made, so that what
/// a kernel keeps of its calls is seen as it is in one process; the others where fewest are.
struct GradePart {
  int index = 0, count = 1;
};
/// In order. They follow from the nonce.
std::vector<int> calls_of(const std::string& nonce, int calls, const GradePart& part);

/// A call as the process that made it knows it. What its cause is follows from the calls before it.
struct JudgedCall {
  struct Output {
    std::string name, digest;
    bool fails = false, written = true, several = true, one_value = false;
  };
  int index = 0;
  GradedCall call = {};
  std::vector<Output> outputs = {};
  std::string likely = {},
              explained = {};  ///< causes of outputs that are wrong; the latter with what explaining found, if it was asked for
  std::vector<std::string> notes = {};
  std::string printed = {};  ///< by the kernel, so far
};

/// While a grading goes on no other process of the user may look into this one: it knows the nonce, and the answers of earlier calls.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

 private:
  int before_;
};

/// Makes calls, judges them, and holds them against the earlier ones that they repeat.
class CallMaker {
 public:
  /// Starts the kernel. Throws Error as grade() does.
  explicit CallMaker(const GradeRequest& request);
  ~CallMaker();

  /// A grade without calls, with a nonce: the one that was given, or a fresh one.
  Grade begin() const;
  /// The calls of one part, until `made` is false.
  void make(const std::string& nonce, const GradePart& part, const std::function<bool(JudgedCall)>& made);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Enters calls into a grade in their order, in whichever they come.
class GradeBook {
 public:
  /// The grade must outlive this.
  explicit GradeBook(Grade& grade) : grade_(grade) {}
  void add(JudgedCall call);
  int entered() const;
  /// Given up: no call is entered any more.
  bool ended() const { return ended_; }

 private:
  void enter(JudgedCall& call);
  std::string cause_of(const JudgedCall& call) const;

  Grade& grade_;
  std::map<int, JudgedCall> waiting_;
  std::map<std::string, int> seen_;  ///< the call that first gave an output: by name and digest
  int unanswered_ = 0;
  bool ended_ = false;
};

io::Json to_json(const Grade& grade);
/// Several lines: what did not pass, and the verdict last.
std::string grade_text(const Grade& grade);

}  // namespace dodona::oracle
