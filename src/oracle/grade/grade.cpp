#include "oracle/grade/grade.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "core/random.h"
#include "dodona/error.h"
#include "io/command.h"
#include "io/sha256.h"
#include "io/stopwatch.h"
#include "io/temporary_folder.h"
#include "oracle/cases/drawn_case.h"
#include "oracle/cases/generate.h"
#include "oracle/grade/call_file.h"
#include "oracle/judge/judge.h"
#include "oracle/records/suite.h"
#include "oracle/report/check.h"

namespace dodona::oracle {
namespace {

constexpr int round = 5;                                 // of so many calls one repeats inputs, and one sizes
constexpr std::int64_t remembered_at_most = 256 << 20;   // bytes of outputs
constexpr int unanswered_in_a_row = 3;                   // calls after which a kernel is given up
constexpr std::uint64_t seeds = std::uint64_t{1} << 62;  // of inputs

std::string hexadecimal(std::uint64_t number) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

/// A number as people read it: three places behind the point, or none.
std::string plain(double number, int places = 3) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", number == std::floor(number) ? 0 : places, number);
  return text.data();
}

std::string fresh_nonce() {
  std::random_device device;
  const auto half = [&] { return static_cast<std::uint64_t>(device()) << 32 | static_cast<std::uint32_t>(device()); };
  return hexadecimal(half()) + hexadecimal(half());
}

/// A number that follows from the nonce and a purpose, and tells nothing of it.
std::uint64_t secret_number(const std::string& nonce, const std::string& purpose) {
  const std::string text = nonce + "/" + purpose;
  const io::Sha256Digest digest = io::sha256(std::as_bytes(std::span(text.data(), text.size())));
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

std::uint64_t secret_of(const std::string& nonce, int index, const std::string& purpose) {
  return secret_number(nonce, purpose + "/" + std::to_string(index));
}

/// Of every round the last two calls repeat what an earlier one had.
bool is_again(int index) {
  return index > 0 && index % round >= round - 2;
}
int earlier_call(const std::string& nonce, int index) {
  return static_cast<int>(secret_of(nonce, index, "earlier") % static_cast<std::uint64_t>(index));
}

/// The other process: what a call gives, in words that a verdict can repeat.
class Kernel {
 public:
  Kernel(const GradeRequest& request) : request_(request) {
    each_call_ = std::find(request.command.begin(), request.command.end(), call_word) != request.command.end();
    if (!each_call_) start();
  }

  struct Reply {
    bool done = false;
    CallOutcome outcome = CallOutcome::broken;
    std::string cause;
  };
  Reply call(const std::string& path) {
    const double seconds = std::exchange(first_, false) ? 2 * request_.seconds : request_.seconds;
    return each_call_ ? run(path, seconds) : ask(path, seconds);
  }
  const std::string& printed() const { return printed_; }

 private:
  void start() { process_ = std::make_unique<io::Command>(request_.command, io::Command::End::with_this_process, request_.stopped); }

  static std::string too_slow(double seconds) { return "gave no answer within " + plain(seconds) + " s"; }
  static std::string ended(int status) {
    return status > 128 ? "was ended by signal " + std::to_string(status - 128) : "ended with exit status " + std::to_string(status);
  }

  Reply run(const std::string& path, double seconds) {
    std::vector<std::string> words = request_.command;
    std::replace(words.begin(), words.end(), std::string(call_word), path);
    const io::CommandResult result = io::Command(words, io::Command::End::with_this_process, request_.stopped).wait(seconds);
    printed_ = result.output;
    if (result.timed_out) return {false, CallOutcome::broken, too_slow(seconds)};
    if (result.status != 0) return {false, CallOutcome::broken, ended(result.status)};
    return {true, CallOutcome::pass, {}};
  }

  Reply ask(const std::string& path, double seconds) {
    if (!process_) start();
    using Kind = io::Command::Answer::Kind;
    // Answers name the call, so that printed matter is not taken for one.
    const std::string refused = "refused " + path, failed = "failed " + path;
    const io::Command::Answer answer = process_->ask(path, {"done " + path, refused, failed}, seconds);
    printed_ = process_->printed();
    if (answer.kind == Kind::line && answer.text.starts_with("done")) return {true, CallOutcome::pass, {}};
    if (answer.kind == Kind::line) {
      const bool refuses = answer.text.starts_with(refused);
      const std::string& head = refuses ? refused : failed;
      const std::string reason = answer.text.size() > head.size() ? answer.text.substr(head.size() + 1) : "no reason given";
      return {false, refuses ? CallOutcome::refused : CallOutcome::broken, (refuses ? "refused: " : "failed: ") + reason};
    }
    const std::string cause = answer.kind == Kind::timed_out ? too_slow(seconds) : ended(process_->wait(0).status);
    process_.reset();
    return {false, CallOutcome::broken, cause};
  }

  const GradeRequest& request_;
  bool each_call_ = false, first_ = true;
  std::unique_ptr<io::Command> process_;
  std::string printed_;
};

/// What the kernel is said to take: lines of one op.
struct Claim {
  const Op* op = nullptr;
  std::vector<CaseLine> lines;
  bool dist = false;
};

Claim read_claim(const std::string& text) {
  Claim claim;
  claim.lines = expand_lines(text);  // which refuses variants: kernels are graded by the contract
  claim.op = &registry().at(claim.lines.front().op);
  claim.dist = text.find("--dist") != std::string::npos;
  if (text.find("--seed") != std::string::npos)
    throw Error(ErrorCode::bad_option, std::string(claim.op->name()), "--seed",
                "is drawn by the grader: what is given in advance is no secret");
  return claim;
}

/// Bytes of the elements that are compared, of one output.
bool equal_where_compared(const Tensor& a, const Tensor& b, const ReferenceOutput* reference) {
  const auto bytes = static_cast<std::size_t>(a.extent_bytes());
  const bool open = reference != nullptr && !reference->unspecified.empty();
  const std::size_t elements = open ? reference->unspecified.size() : 0;
  const auto *x = a.as<std::byte>(), *y = b.as<std::byte>();
  // Codes that are packed in bytes have several elements to a byte: those outputs are compared as a whole.
  if (!open || elements == 0 || bytes % elements != 0) return bytes == 0 || std::memcmp(x, y, bytes) == 0;
  const std::size_t width = bytes / elements;
  for (std::size_t i = 0; i < elements; ++i)
    if (!reference->unspecified[i] && std::memcmp(x + i * width, y + i * width, width) != 0) return false;
  return true;
}

bool one_value(const Tensor& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.extent_bytes());
  const std::int64_t elements = tensor.elements();
  if (elements < 2 || bytes % static_cast<std::size_t>(elements) != 0) return false;
  const auto* data = tensor.as<std::byte>();
  const std::size_t width = bytes / static_cast<std::size_t>(elements);
  return std::memcmp(data, data + width, bytes - width) == 0;
}

/// What one process makes of a grading's calls, and what it must keep of them.
class Judging {
 public:
  explicit Judging(const GradeRequest& request) : request_(request), claim_(read_claim(request.claim)), kernel_(request) {
    // Names in it are not to be listed.
    ::chmod(folder_.path().c_str(), 0711);
  }

  const Op& op() const { return *claim_.op; }

  JudgedCall call(const std::string& nonce, int index) {
    nonce_ = nonce;
    const io::Stopwatch clock;
    Drawn drawn = draw(index);
    JudgedCall made{.index = index};
    GradedCall& call = made.call;
    call.line = to_string(drawn.line);
    call.kind = drawn.kind;
    const CallFile file(folder_.file(hexadecimal(secret(index, "name"))), *claim_.op, drawn.inputs, secret(index, "junk"));
    const double before = clock.seconds();
    const Kernel::Reply reply = kernel_.call(file.path());
    if (request_.stopped != nullptr && request_.stopped())
      throw Error(ErrorCode::bad_value, "", "", "interrupted: call " + std::to_string(index + 1) + " was not graded");
    call.kernel_seconds = clock.seconds() - before;
    call.outcome = reply.outcome;
    call.cause = reply.cause;
    made.printed = kernel_.printed();
    if (reply.done) judge_outputs(file, drawn, made);
    call.judge_seconds = clock.seconds() - call.kernel_seconds;
    failing_ = failing_ || call.outcome == CallOutcome::fail;
    lines_.emplace(index, drawn.line);
    return made;
  }

 private:
  struct Drawn {
    CaseLine line;
    Arguments inputs;
    std::string kind = "new";
    int of = -1;  ///< the earlier call that is repeated
  };

  std::uint64_t secret(int index, const std::string& purpose) const { return secret_of(nonce_, index, purpose); }

  /// An earlier call with the same inputs, or with others of the same sizes; nothing where the op does not take those.
  std::optional<Drawn> drawn_again(int index, bool same_inputs) {
    Drawn drawn;
    drawn.of = earlier_call(nonce_, index);
    drawn.line = lines_.at(drawn.of);
    drawn.kind = same_inputs ? "again" : "sizes";
    if (!same_inputs) drawn.line.seed = secret(index, "seed") % seeds;
    try {
      drawn.inputs = generate(drawn.line);
      if (!same_inputs) require_taken(*claim_.op, drawn.inputs);
    } catch (const Error&) {
      return std::nullopt;
    }
    return drawn;
  }

  Drawn draw(int index) {
    if (is_again(index))
      if (auto again = drawn_again(index, index % round == round - 1)) return std::move(*again);
    Kept kept{claim_.lines[secret(index, "line") % claim_.lines.size()], claim_.dist, true, seeds};
    DrawnCase made = drawn_case(*claim_.op, secret(0, "cases"), static_cast<int>(secret(index, "case") % 1'000'000), kept);
    return {std::move(made.line), std::move(made.inputs)};
  }

  void judge_outputs(const CallFile& file, const Drawn& drawn, JudgedCall& made) {
    GradedCall& call = made.call;
    const CallFile::Contents contents = file.read();
    const auto foul = [&](const std::string& cause) { call.outcome = CallOutcome::foul, call.cause = cause; };
    if (!contents.changed.empty()) return foul("wrote " + contents.changed);
    if (!contents.broken.empty()) return foul(contents.broken);
    Case c;
    c.op = claim_.op;
    c.line = c.name = call.line;
    c.inputs = drawn.inputs;
    const GoldenRun golden = run_golden(*claim_.op, drawn.inputs, request_.exec);
    ExplainOptions explaining;
    explaining.on = request_.explain_seconds > 0 && !failing_;
    explaining.seconds = request_.explain_seconds;
    CheckResult result = check(c, golden, contents.outputs, {request_.mode, request_.exec}, explaining);
    call.outcome = result.outcome == Outcome::fail      ? CallOutcome::fail
                   : result.outcome == Outcome::vacuous ? CallOutcome::vacuous
                                                        : CallOutcome::pass;
    // Work that goes on after the answer is seen by what it changes while golden mode runs.
    const CallFile::Contents later = file.read();
    if (!later.changed.empty() || !later.broken.empty() || !same(contents.outputs, later.outputs))
      return foul("went on writing after it had said that it was done");
    tell_outputs(result, contents, made);
    compare_with_earlier(drawn, golden, contents, made);
    remember(made.index, contents.outputs);
  }

  static bool same(const NamedTensors& a, const NamedTensors& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!equal_where_compared(a[i].second, b[i].second, nullptr)) return false;
    return true;
  }

  static void tell_outputs(CheckResult& result, const CallFile::Contents& contents, JudgedCall& made) {
    for (const OutputCheck& output : result.outputs) {
      const std::string& name = output.verdict.name;
      const Tensor* const actual = find(contents.outputs, name);
      if (actual == nullptr) continue;
      const bool untouched = std::find(contents.untouched.begin(), contents.untouched.end(), name) != contents.untouched.end();
      made.outputs.push_back({.name = name,
                              .digest = io::to_hex(io::tensor_digest(*actual)),
                              .fails = output.verdict.outcome == Outcome::fail,
                              .written = !untouched,
                              .several = actual->elements() > 1,
                              .one_value = one_value(*actual)});
    }
    made.explained = likely_cause(result);
    result.explained.reset();
    made.likely = likely_cause(result);
  }

  void compare_with_earlier(const Drawn& drawn, const GoldenRun& golden, const CallFile::Contents& contents, JudgedCall& made) {
    if (drawn.kind != "again") return;
    const auto earlier = outputs_.find(drawn.of);
    if (earlier == outputs_.end()) return;
    GradedCall& call = made.call;
    for (const auto& [name, tensor] : contents.outputs) {
      const Tensor* was = find(earlier->second, name);
      if (was == nullptr || equal_where_compared(*was, tensor, golden.reference.find(name))) continue;
      const std::string text = name + " differs from that of call " + std::to_string(drawn.of) + ", which had the same inputs";
      if (!request_.same_bits) {
        made.notes.push_back("call " + std::to_string(made.index) + ": " + text);
      } else if (call.outcome == CallOutcome::pass || call.outcome == CallOutcome::vacuous) {
        call.outcome = CallOutcome::fail, call.cause = text;
      }
    }
  }

  /// Outputs as long as they are no burden.
  void remember(int index, const NamedTensors& outputs) {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : outputs) bytes += tensor.extent_bytes();
    if (remembered_ + bytes > remembered_at_most) return;
    remembered_ += bytes;
    outputs_.emplace(index, outputs);
  }

  const GradeRequest& request_;
  Claim claim_;
  /// Of this grading alone, in memory where there is such a place.
  io::TemporaryFolder folder_{"dodona", io::TemporaryFolder::Place::memory};
  Kernel kernel_;
  std::string nonce_;
  std::map<int, CaseLine> lines_;        ///< of the calls so far
  std::map<int, NamedTensors> outputs_;  ///< of the calls so far
  std::int64_t remembered_ = 0;          ///< bytes of those
  bool failing_ = false;                 ///< some call's outputs are wrong
};

std::string checked_nonce(const std::string& given) {
  if (given.empty()) return fresh_nonce();
  if (given.size() > 64 || given.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
    throw Error(ErrorCode::bad_option, "", "--nonce", "is '" + given + "', expected 1 to 64 hexadecimal digits");
  return given;
}

}  // namespace

std::string_view name(CallOutcome outcome) {
  constexpr std::array<std::string_view, 6> names{"pass", "vacuous", "fail", "refused", "broken", "foul"};
  return names[static_cast<std::size_t>(outcome)];
}

int Grade::count(CallOutcome outcome) const {
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), [&](const GradedCall& call) { return call.outcome == outcome; }));
}

double Grade::score() const {
  const int could_fail = static_cast<int>(calls.size()) - count(CallOutcome::vacuous);
  return could_fail > 0 ? static_cast<double>(count(CallOutcome::pass)) / could_fail : 0;
}

bool Grade::passes() const {
  const int passed = count(CallOutcome::pass), all = static_cast<int>(calls.size());
  return passed > 0 && passed + count(CallOutcome::vacuous) == all && 2 * passed >= all;
}

ClosedMemory::ClosedMemory() : before_(::prctl(PR_GET_DUMPABLE)) {
  ::prctl(PR_SET_DUMPABLE, 0);
}
ClosedMemory::~ClosedMemory() {
  if (before_ == 1) ::prctl(PR_SET_DUMPABLE, 1);
}

struct CallMaker::Parts {
  explicit Parts(const GradeRequest& asked) : request(asked) {}

  GradeRequest request;
  ClosedMemory closed = {};
  Judging judging{request};
};

CallMaker::CallMaker(const GradeRequest& request) {
  if (request.calls < 1 || request.calls > 1'000'000)
    throw Error(ErrorCode::bad_option, "", "--calls", "is " + std::to_string(request.calls) + ", expected 1 to 1000000");
  checked_nonce(request.nonce);
  parts_ = std::make_unique<Parts>(request);
}
CallMaker::~CallMaker() = default;

Grade CallMaker::begin() const {
  Grade made;
  made.op = parts_->judging.op().name();
  made.claim = parts_->request.claim;
  made.secret = parts_->request.nonce.empty();
  made.nonce = checked_nonce(parts_->request.nonce);
  return made;
}

void CallMaker::make(const std::string& nonce, const GradePart& part, const std::function<bool(JudgedCall)>& made) {
  for (const int index : calls_of(nonce, parts_->request.calls, part))
    if (!made(parts_->judging.call(nonce, index))) return;
}

std::vector<int> calls_of(const std::string& nonce, int calls, const GradePart& part) {
  std::vector<int> mine, owner(static_cast<std::size_t>(calls)), sizes(static_cast<std::size_t>(part.count), 0);
  for (int index = 0; index < calls; ++index) {
    // A call that is no other's goes where fewest are: known are those before it, so that all processes see the same.
    const int fewest = static_cast<int>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    int& whose = owner[static_cast<std::size_t>(index)];
    whose = is_again(index) ? owner[static_cast<std::size_t>(earlier_call(nonce, index))] : fewest;
    ++sizes[static_cast<std::size_t>(whose)];
    if (whose == part.index) mine.push_back(index);
  }
  return mine;
}

void GradeBook::add(JudgedCall call) {
  waiting_.emplace(call.index, std::move(call));
  for (auto next = waiting_.begin(); next != waiting_.end() && next->first == entered() && !ended_; next = waiting_.begin()) {
    enter(next->second);
    waiting_.erase(next);
  }
}

int GradeBook::entered() const {
  return static_cast<int>(grade_.calls.size());
}

void GradeBook::enter(JudgedCall& call) {
  const bool wrong = std::any_of(call.outputs.begin(), call.outputs.end(), [](const JudgedCall::Output& o) { return o.fails; });
  if (call.call.outcome == CallOutcome::fail && wrong) call.call.cause = cause_of(call);
  for (const JudgedCall::Output& output : call.outputs) seen_.emplace(output.name + output.digest, call.index);
  grade_.notes.insert(grade_.notes.end(), call.notes.begin(), call.notes.end());
  grade_.printed = call.printed;
  unanswered_ = call.call.outcome == CallOutcome::broken ? unanswered_ + 1 : 0;
  grade_.calls.push_back(std::move(call.call));
  if (unanswered_ < unanswered_in_a_row) return;
  grade_.notes.push_back("given up after " + std::to_string(unanswered_) + " calls in a row without an answer");
  ended_ = true;
}

/// Why outputs fail: what a kernel that does not compute them gives, before how they relate to golden's.
std::string GradeBook::cause_of(const JudgedCall& call) const {
  for (const JudgedCall::Output& output : call.outputs) {
    if (!output.fails) continue;
    if (!output.written) return output.name + " was not written";
    if (const auto found = seen_.find(output.name + output.digest); found != seen_.end() && output.several)
      return output.name + " is what call " + std::to_string(found->second) + " gave";
    if (output.one_value) return output.name + " is one value everywhere";
  }
  return grade_.count(CallOutcome::fail) == 0 ? call.explained : call.likely;
}

Grade grade(const GradeRequest& request, const std::function<void(int, int)>& progress) {
  CallMaker maker(request);
  Grade made = maker.begin();
  GradeBook book(made);
  maker.make(made.nonce, {}, [&](JudgedCall call) {
    book.add(std::move(call));
    if (progress) progress(book.entered(), request.calls);
    return !book.ended();
  });
  return made;
}

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double median_judge_seconds(const Grade& grade) {
  std::vector<double> seconds;
  for (const GradedCall& call : grade.calls) seconds.push_back(call.judge_seconds);
  return median(std::move(seconds));
}

constexpr std::array<CallOutcome, 6> outcomes{CallOutcome::pass,    CallOutcome::vacuous, CallOutcome::fail,
                                              CallOutcome::refused, CallOutcome::broken,  CallOutcome::foul};

}  // namespace

io::Json to_json(const Grade& grade) {
  io::Json calls = io::Json::array(), counts = io::Json::object();
  for (const CallOutcome outcome : outcomes) counts[std::string(name(outcome))] = grade.count(outcome);
  for (const GradedCall& call : grade.calls)
    calls.push_back({{"case", call.line},
                     {"kind", call.kind},
                     {"outcome", std::string(name(call.outcome))},
                     {"cause", call.cause},
                     {"kernel_seconds", call.kernel_seconds},
                     {"judge_seconds", call.judge_seconds}});
  return {{"op", grade.op},
          {"claim", grade.claim},
          {"verdict", grade.passes() ? "pass" : "fail"},
          {"score", grade.score()},
          {"counts", counts},
          {"nonce", grade.nonce},
          {"secret", grade.secret},
          {"median_judge_seconds", median_judge_seconds(grade)},
          {"notes", grade.notes},
          {"printed", grade.printed},
          {"calls", calls}};
}

std::string grade_text(const Grade& grade) {
  constexpr std::size_t shown = 10;
  std::string text;
  std::size_t failing = 0;
  for (std::size_t i = 0; i < grade.calls.size(); ++i) {
    const GradedCall& call = grade.calls[i];
    if (call.outcome == CallOutcome::pass || call.outcome == CallOutcome::vacuous || ++failing > shown) continue;
    text += "call " + std::to_string(i) + " " + std::string(name(call.outcome)) + ": " +
            (call.cause.empty() ? "outputs are wrong" : call.cause) + "\n  " + call.line + "\n";
  }
  if (failing > shown) text += "and " + std::to_string(failing - shown) + " more calls\n";
  for (const std::string& note : grade.notes) text += "note: " + note + "\n";
  if (failing > 0 && !grade.printed.empty())
    text += "the kernel printed last:\n" + grade.printed + (grade.printed.back() == '\n' ? "" : "\n");
  const int vacuous = grade.count(CallOutcome::vacuous);
  text += grade.op + (grade.passes() ? ": PASS, " : ": FAIL, ") + std::to_string(grade.count(CallOutcome::pass)) + " of " +
          std::to_string(grade.calls.size()) + " calls pass" + (vacuous > 0 ? ", " + std::to_string(vacuous) + " vacuous" : "") +
          "; score " + plain(grade.score()) + "; " + plain(1e3 * median_judge_seconds(grade), 1) + " ms a verdict\n";
  return text + "the same calls again: --nonce " + grade.nonce + "\n";
}

}  // namespace dodona::oracle
