// What `whose` found, in words and as JSON.
#include <algorithm>

#include "dodona/error.h"
#include "oracle/schedules/whose.h"

namespace dodona::oracle {
namespace {

std::string count_of(std::int64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string names_of(const Whose& whose, const std::vector<Schedule>& group) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, group.size()); ++i) text += (i > 0 ? " = " : "") + name(group[i], whose.several_machines);
  return group.size() > most ? text + " = " + std::to_string(group.size() - most) + " more" : text;
}

std::string nearest_of(const Whose& whose) {
  if (whose.others.empty()) return {};
  const Compared& nearest = whose.others.front();
  return name(nearest.schedule, whose.several_machines) + ", differs in " + std::to_string(nearest.differing) + " of " +
         count_of(nearest.elements, "element");
}

io::Json json_of(const Schedule& schedule, const Op& op) {
  io::Json attrs = io::Json::object();
  for (const auto& [attr, value] : schedule.attrs) attrs[attr] = to_string(value);
  return {
      {"name", name(schedule)}, {"mode", std::string(name(schedule.mode))}, {"attrs", attrs}, {"line_options", line_options(schedule, op)}};
}

}  // namespace

std::string line_of(const Whose& whose) {
  if (whose.found.empty())
    return "no schedule of " + whose.op + " gives these bits" +
           (whose.left > 0         ? " among the " + std::to_string(whose.tried) + " tried in time"
            : whose.others.empty() ? ""
                                   : "; nearest: " + nearest_of(whose));
  std::string names;
  for (const auto& group : whose.found) names += (names.empty() ? "" : ", or of ") + names_of(whose, group);
  return "these are the bits of " + names +
         (whose.compared < whose.elements ? " in the " + count_of(whose.compared, "element") + " compared" : "");
}

std::string text_of(const Whose& whose) {
  const Op& op = registry().at(whose.op);
  std::string text = whose.op + ": " + count_of(whose.tried, "schedule") + " held against " + count_of(whose.elements, "element") + "\n";
  for (const auto& group : whose.found) {
    text += "  all bits        " + names_of(whose, group) + "\n";
    const std::string options = line_options(group.front(), op);
    text += "  as a case line  " + (options.empty() ? "(the defaults)" : options) + "   checked by --mode " +
            std::string(name(group.front().mode)) + "\n";
    if (group.size() > 1) text += "                  the same bits here and of inputs made to tell them apart\n";
  }
  if (whose.found.size() > 1) text += "  undecided       these outputs do not tell them apart; more rows would\n";
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
  io::Json found = io::Json::array(), others = io::Json::array();
  for (const auto& group : whose.found) {
    io::Json same = io::Json::array();
    for (const Schedule& schedule : group) same.push_back(json_of(schedule, op));
    found.push_back(same);
  }
  for (const Compared& other : whose.others) {
    io::Json entry = json_of(other.schedule, op);
    entry["elements"] = other.elements;
    entry["differing"] = other.differing;
    others.push_back(entry);
  }
  return {{"op", whose.op},
          {"answer", std::string(name(whose.answer))},
          {"elements", whose.elements},
          {"compared", whose.compared},
          {"found", found},
          {"others", others},
          {"tried", whose.tried},
          {"not_tried", whose.left}};
}

}  // namespace dodona::oracle
