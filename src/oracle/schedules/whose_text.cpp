// What `whose` found, in words and as JSON.
#include <algorithm>
#include <span>

#include "dodona/error.h"
#include "oracle/schedules/whose.h"

namespace dodona::oracle {
namespace {

std::string count_of(auto number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string names_of(const Whose& whose, const std::vector<Schedule>& group) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, group.size()); ++i)
    text += (i > 0 ? " = " : "") + name(group[i], registry().at(whose.op), whose.several_machines);
  return group.size() > most ? text + " = " + std::to_string(group.size() - most) + " more" : text;
}

std::string nearest_of(const Whose& whose) {
  if (whose.others.empty()) return {};
  const Compared& nearest = whose.others.front();
  return name(nearest.schedule, registry().at(whose.op), whose.several_machines) + ", differs in " + std::to_string(nearest.differing) +
         " of " + count_of(nearest.elements, "element");
}

/// How many elements it takes to tell apart those that differ least often.
std::string apart_of(const Whose& whose) {
  const auto rarest = std::min_element(whose.apart.begin(), whose.apart.end(), [](const Compared& a, const Compared& b) {
    return a.differing * b.elements < b.differing * a.elements;
  });
  if (rarest == whose.apart.end() || rarest->elements == 0) return {};
  const Op& op = registry().at(whose.op);
  const std::string pair = ": " + name(whose.found.front().front(), op, whose.several_machines) + " and " +
                           name(rarest->schedule, op, whose.several_machines) + " differ in ";
  if (rarest->differing == 0) return pair + "none of " + std::to_string(rarest->elements) + " elements of other inputs";
  return pair + "one element of some " + std::to_string(rarest->elements / rarest->differing);
}

io::Json json_of(const Schedule& schedule, const Op& op) {
  io::Json attrs = io::Json::object();
  for (const auto& [attr, value] : schedule.attrs) attrs[attr] = to_string(value);
  return {{"name", name(schedule, op)},
          {"mode", std::string(name(schedule.mode))},
          {"attrs", attrs},
          {"line_options", line_options(schedule, op)}};
}

io::Json json_of(const Compared& compared, const Op& op) {
  io::Json entry = json_of(compared.schedule, op);
  entry["elements"] = compared.elements;
  entry["differing"] = compared.differing;
  return entry;
}

}  // namespace

std::string line_of(const Whose& whose) {
  if (whose.found.empty())
    return "no schedule of " + whose.op + " gives these bits" +
           (whose.left > 0         ? " among the " + std::to_string(whose.tried) + " tried in time"
            : whose.others.empty() ? ""
                                   : "; nearest: " + nearest_of(whose));
  constexpr std::size_t most = 4;
  std::string names;
  for (const auto& group : std::span(whose.found).first(std::min(most, whose.found.size())))
    names += (names.empty() ? "" : ", or of ") + names_of(whose, group);
  if (whose.found.size() > most) names += ", or of " + count_of(whose.found.size() - most, "other");
  return "these are the bits of " + names +
         (whose.compared < whose.elements ? " in the " + count_of(whose.compared, "element") + " compared" : "");
}

std::string text_of(const Whose& whose) {
  const Op& op = registry().at(whose.op);
  std::string text = whose.op + ": " + count_of(whose.tried, "schedule") + " held against " + count_of(whose.elements, "element") + "\n";
  constexpr std::size_t most_groups = 8;
  for (const auto& group : std::span(whose.found).first(std::min(most_groups, whose.found.size()))) {
    text += "  all bits        " + names_of(whose, group) + "\n";
    const std::string options = line_options(group.front(), op);
    text += "  as a case line  " + (options.empty() ? "(the defaults)" : options) + "   checked by --mode " +
            std::string(name(group.front().mode)) + "\n";
    if (group.size() > 1) text += "                  the same bits here and of inputs made to tell them apart\n";
  }
  if (whose.found.size() > most_groups) text += "  all bits        " + count_of(whose.found.size() - most_groups, "other") + "\n";
  if (whose.found.size() > 1)
    text += (whose.answer == WhoseAnswer::named ? "  left open       these " : "  undecided       these ") +
            count_of(whose.elements, "element") + " do not tell them apart; more rows would" + apart_of(whose) + "\n";
  if (whose.compared < whose.elements && !whose.found.empty())
    text += "  undecided       time was up: " + std::to_string(whose.compared) + " of " + count_of(whose.elements, "element") +
            " were compared\n";
  if (whose.left > 0) text += "  undecided       time was up: " + count_of(whose.left, "schedule") + " not tried\n";
  if (!whose.others.empty()) text += "  nearest other   " + nearest_of(whose) + "\n";
  if (whose.answer == WhoseAnswer::none)
    text += "  none of them made these numbers from these inputs; a kernel that is not among them, or an error, may have\n";
  return text;
}

io::Json to_json(const Whose& whose) {
  const Op& op = registry().at(whose.op);
  io::Json found = io::Json::array(), others = io::Json::array(), apart = io::Json::array();
  for (const auto& group : whose.found) {
    io::Json same = io::Json::array();
    for (const Schedule& schedule : group) same.push_back(json_of(schedule, op));
    found.push_back(same);
  }
  for (const Compared& other : whose.others) others.push_back(json_of(other, op));
  for (const Compared& other : whose.apart) apart.push_back(json_of(other, op));
  return {{"op", whose.op},
          {"answer", std::string(name(whose.answer))},
          {"elements", whose.elements},
          {"compared", whose.compared},
          {"found", found},
          {"apart", apart},
          {"others", others},
          {"tried", whose.tried},
          {"not_tried", whose.left}};
}

}  // namespace dodona::oracle
