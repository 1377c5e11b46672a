// The audit: do our judges, and the customary checks, notice the faults of the library?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "oracle/faults/faults.h"

namespace dodona::oracle {

enum class Caught {
  by_judge,   ///< our verdict fails
  within,     ///< outputs changed, by no more than the contract leaves open
  no_change,  ///< no output that the contract speaks of changed: not applicable here
  refused,    ///< the op refuses the changed call, or its outputs have other shapes: not applicable here
};
std::string_view name(Caught caught);

/// One fault in one argument of one case.
struct Injection {
  const Fault* fault;
  std::string site, line;
  Caught caught = Caught::no_change;
  bool customary = false;         ///< the customary checks of upstream notice it
  std::string pattern = {};       ///< what our verdict says of it
  bool caught_elsewhere = false;  ///< an op's own mistake: on another line of it
  bool may_tie = false;           ///< members in another order, which the contract may leave open: of torch.topk's, of equals

  bool counts() const { return caught == Caught::by_judge || caught == Caught::within; }
  /// A gross fault passes: the check could not have failed.
  bool vacuous() const { return caught == Caught::within && fault->severity == Severity::gross && !caught_elsewhere && !may_tie; }
};

struct Audit {
  std::vector<Injection> injections;

  int injected() const;   ///< that changed something
  int caught() const;     ///< by our judge
  int within() const;     ///< of fine faults
  int customary() const;  ///< noticed by upstream's check
  int vacuous() const;
};

/// Injects every fault that fits into the case, or of these the wanted ones, asked for one by one. Throws Error when the case itself cannot
/// run.
Audit audit_case(const CaseLine& line, const Exec& exec, const std::function<bool(const Fault&, const Audit& so_far)>& wanted = {});
/// All case lines of an op. Mistakes of its own that pass on one line (ties, biases that choose nothing else) and are caught on another are
/// not vacuous there; `progress` is called before each with its number and the total.
Audit audit_op(const Op& op, const Exec& exec, const std::function<void(std::size_t, std::size_t, const std::string&)>& progress = {});

}  // namespace dodona::oracle
