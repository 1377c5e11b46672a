#include "oracle/explain.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "dodona/error.h"
#include "oracle/mistakes.h"

namespace dodona::oracle {
namespace {

bool fails(const OutputVerdict& output) {
  return output.outcome == Outcome::fail;
}

/// What would be left of the failures if the kernel had made the mistake; nothing when the call does not allow it.
std::optional<Explanation> replay(const Case& c, const NamedTensors& actual, const Verdict& verdict, const Mistake& mistake,
                                  const JudgeOptions& options) {
  Arguments inputs = c.inputs;
  NamedTensors undone = actual;
  Verdict other;
  try {
    mistake.apply(inputs, undone);
    other = judge(*c.op, inputs, undone, options);
  } catch (const Error&) {
    // Sizes, ids or recipes that the op refuses: this mistake cannot have been made here.
    return std::nullopt;
  }
  Explanation explanation{mistake.id, mistake.text, {}, true, other.failing()};
  for (std::size_t i = 0; i < verdict.outputs.size() && i < other.outputs.size(); ++i) {
    if (fails(other.outputs[i])) explanation.complete = false;
    if (fails(verdict.outputs[i]) && !fails(other.outputs[i])) explanation.outputs.push_back(verdict.outputs[i].name);
    // A case in which nothing can fail explains nothing.
    if (other.outputs[i].outcome == Outcome::vacuous && verdict.outputs[i].outcome != Outcome::vacuous)
      return explanation.complete = false, explanation;
  }
  return explanation;
}

}  // namespace

std::vector<std::string> lines_of(const Explained& explained) {
  std::vector<std::string> lines;
  for (const Explanation& e : explained.found) {
    std::string outputs;
    for (const std::string& output : e.outputs) outputs += (outputs.empty() ? "" : ", ") + output;
    lines.push_back(e.complete           ? "reproduced by: " + e.text
                    : !e.outputs.empty() ? "reproduced in " + outputs + " by: " + e.text
                                         : "nearly reproduced (" + std::to_string(e.failing) + " elements still differ) by: " + e.text);
  }
  if (lines.empty())
    lines.push_back("none of " + std::to_string(explained.tried) + " well-known mistakes and recipes reproduces these outputs");
  if (explained.left > 0) lines.push_back("time was up: " + std::to_string(explained.left) + " mistakes were not tried");
  return lines;
}

Explained explain(const Case& c, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options, double seconds,
                  const std::function<void(std::size_t, std::size_t, const std::string&)>& progress) {
  Explained explained;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Mistake> mistakes = mistakes_of(*c.op, c.inputs, actual);
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds) {
      explained.left = static_cast<int>(mistakes.size() - i);
      break;
    }
    if (progress) progress(i, mistakes.size(), mistakes[i].id);
    const auto explanation = replay(c, actual, verdict, mistakes[i], options);
    if (!explanation) continue;
    ++explained.tried;
    const bool most = 10 * explanation->failing < verdict.failing();
    if (explanation->complete || !explanation->outputs.empty() || most) explained.found.push_back(*explanation);
  }
  std::stable_sort(explained.found.begin(), explained.found.end(), [](const Explanation& a, const Explanation& b) {
    return a.complete != b.complete ? a.complete : a.failing < b.failing;
  });
  return explained;
}

}  // namespace dodona::oracle
