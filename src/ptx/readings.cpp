// How ptxas read the sums that PTX leaves open, found out from machine code.
#include <algorithm>
#include <iterator>
#include <optional>

#include "dodona/error.h"
#include "ptx/contraction.h"
#include "ptx/program.h"
#include "ptx/sass.h"
#include "ptx/toolchain.h"

namespace dodona::ptx {
namespace {

using Places = std::vector<std::size_t>;

/// One by one it takes a run of ptxas for each sum.
constexpr std::size_t most_single_sums = 64;

std::string shown(const std::map<std::string, std::uint64_t>& counts) {
  std::string text;
  for (const auto& [kind, count] : counts) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  return text.empty() ? "no float instructions" : text;
}

/// Of a kernel's text the fma of each type, as machine code counts them: pairs and single ones alike.
std::map<std::string, std::uint64_t> fma_of(const Kernel& kernel) {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [opcode, count] : kernel.instructions) {
    if (!opcode.starts_with("fma.")) continue;
    std::string type = opcode.substr(opcode.rfind('.') + 1);
    if (type == "f16" || type == "bf16") type += "x2";
    counts["fma." + type] += count;
  }
  return counts;
}

class Search {
 public:
  Search(const Program& program, const Kernel& kernel, const Toolchain& tools) : program_(program), tools_(tools) {
    found_.kernel = kernel.name;
    found_.open = kernel.open;
    for (const OpenReading& o : kernel.open) {
      all_.push_back(o.place);
      if (o.fused) customary_.push_back(o.place);
    }
    std::sort(all_.begin(), all_.end());
    std::sort(customary_.begin(), customary_.end());
  }

  Readings find(const Kernel& kernel, const std::string& machine_code) {
    std::optional<MachineCode> given;
    if (!machine_code.empty()) given = of_kernel(read_sass(disassembled(tools_, machine_code), machine_code), machine_code);
    if (given) found_.counts = given->counts;
    if (all_.empty()) {
      found_.settled = true;
      found_.said = "PTX leaves nothing open";
    } else if (!tools_.ptxas.empty() && !tools_.disassembler.empty()) {
      by_ptxas(given);
    } else if (given) {
      by_counts(kernel, *given);
    } else {
      found_.said = "neither machine code nor ptxas and a disassembler are at hand: the reading is the customary one";
    }
    return found_;
  }

 private:
  struct Candidate {
    const char* name;
    Places fused;
  };
  std::vector<Candidate> candidates() const {
    return {{"the customary reading", customary_}, {"two roundings each", {}}, {"one rounding each", all_}};
  }

  MachineCode of_kernel(const std::map<std::string, MachineCode, std::less<>>& functions, const std::string& name) const {
    const auto at = functions.find(found_.kernel);
    if (at == functions.end()) throw Error(ErrorCode::bad_file, "", name, "has no machine code of " + found_.kernel);
    return at->second;
  }
  MachineCode made(const std::string& text) const {
    return of_kernel(read_sass(assembled(tools_, text, program_.target), tools_.disassembler), tools_.disassembler);
  }
  /// All sums written out.
  MachineCode made(const Places& fused) const {
    Places apart;
    std::set_difference(all_.begin(), all_.end(), fused.begin(), fused.end(), std::back_inserter(apart));
    return made(text_with(program_.source, *program_.syntax, fused, apart));
  }

  void take(const Places& fused, const std::string& said) {
    for (OpenReading& o : found_.open) o.fused = std::binary_search(fused.begin(), fused.end(), o.place);
    found_.settled = true;
    found_.said = said;
  }

  void by_ptxas(const std::optional<MachineCode>& given) {
    MachineCode target = made(program_.source);
    if (given && given->counts != target.counts) {
      by_given_counts(*given, shown(target.counts));
      return;
    }
    found_.counts = target.counts;
    const std::string of = given ? "the machine code that is given counts " + shown(target.counts) + ", as this ptxas gives; "
                                 : "ptxas makes " + shown(target.counts) + "; ";
    std::vector<MachineCode> codes;
    for (const Candidate& c : candidates()) {
      codes.push_back(made(c.fused));
      if (codes.back().instructions == target.instructions) return take(c.fused, of + "the same instructions come of " + c.name);
    }
    for (std::size_t k = 0; k < codes.size(); ++k)
      if (codes[k].counts == target.counts && !ambiguous(codes, k))
        return take(candidates()[k].fused, of + "the same counts come of " + candidates()[k].name);
    if (all_.size() > most_single_sums) {
      found_.said = of + "none of the three readings gives them, and more than " + std::to_string(most_single_sums) + " sums are open";
      return;
    }
    // A sum that is given a rounding, and nothing else: where that changes the counts, ptxas had taken a product in.
    Places fused;
    for (const std::size_t place : all_)
      if (made(text_with(program_.source, *program_.syntax, {}, {place})).counts != target.counts) fused.push_back(place);
    const MachineCode mixed = made(fused);
    if (mixed.instructions == target.instructions || mixed.counts == target.counts)
      return take(fused, of + "sum by sum, the same " + (mixed.instructions == target.instructions ? "instructions" : "counts") +
                             " come of one rounding in " + std::to_string(fused.size()) + " of " + std::to_string(all_.size()));
    found_.said = of + "no reading gives them";
  }
  /// Whether another reading with other roundings has the same counts.
  bool ambiguous(const std::vector<MachineCode>& codes, std::size_t k) const {
    for (std::size_t other = 0; other < codes.size(); ++other)
      if (other != k && codes[other].counts == codes[k].counts && codes[other].instructions != codes[k].instructions &&
          candidates()[other].fused != candidates()[k].fused)
        return true;
    return false;
  }

  /// Machine code of another ptxas, or of other flags: what is compared is the text's readings, made by this one.
  void by_given_counts(const MachineCode& given, const std::string& ours) {
    const std::string of = "the machine code that is given counts " + shown(given.counts) + ", this ptxas makes " + ours + " of the text; ";
    const Candidate* only = nullptr;
    const std::vector<Candidate> all = candidates();
    std::size_t matches = 0;
    for (const Candidate& c : all)
      if (made(c.fused).counts == given.counts && (only == nullptr || only->fused != c.fused)) {
        only = &c;
        ++matches;
      }
    if (matches == 1) return take(only->fused, of + "the given counts come of " + only->name);
    found_.said = of + (matches == 0 ? "no reading gives the given counts: it was made by another version or with other flags"
                                     : "several readings give the given counts");
  }

  /// Without ptxas: the fma of the text and those of a reading, against the machine's.
  void by_counts(const Kernel& kernel, const MachineCode& given) {
    const auto text = fma_of(kernel);
    const std::string of = "the machine code counts " + shown(given.counts) + ", the text has " + shown(text) + "; ";
    const std::vector<Candidate> all = candidates();
    std::vector<const Candidate*> matches;
    for (const Candidate& c : all) {
      auto expected = text;
      // The text that is shown has the customary ones fused.
      for (const OpenReading& o : kernel.open) {
        const bool fused = std::binary_search(c.fused.begin(), c.fused.end(), o.place);
        if (fused == o.fused) continue;
        std::string type = o.text.substr(0, o.text.find(' '));
        type = type.substr(type.rfind('.') + 1);
        if (type == "f16" || type == "bf16") type += "x2";
        expected["fma." + type] += fused ? 1 : std::uint64_t{0} - 1;
      }
      bool same = true;
      for (const char* type : {"f32", "f64", "f16x2", "bf16x2"}) {
        const std::string kind = std::string("fma.") + type;
        const auto here = expected.find(kind);
        const auto there = given.counts.find(kind);
        same = same && (here == expected.end() ? 0 : here->second) == (there == given.counts.end() ? 0 : there->second);
      }
      if (same && (matches.empty() || matches.back()->fused != c.fused)) matches.push_back(&c);
    }
    if (matches.size() == 1) return take(matches.front()->fused, of + "that is " + matches.front()->name);
    found_.said = of + (matches.empty() ? "no reading gives that without ptxas" : "several readings give that") +
                  ": the reading is the customary one";
  }

  const Program& program_;
  const Toolchain& tools_;
  Places all_, customary_;
  Readings found_;
};

}  // namespace

Readings Module::readings(std::string_view name, const Toolchain& tools, const std::string& machine_code) const {
  const Kernel& k = kernel(name);
  return Search(*program_, k, tools).find(k, machine_code);
}

}  // namespace dodona::ptx
