// The tables of the documents on DeepSeek's kernels, held against what runs: tests/documents/kernels.txt.
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "command.h"
#include "dodona/op.h"

namespace dodona::tools_test {
namespace {

const std::string folder = DODONA_SOURCE_DIR "/tests/documents/";

struct Row {
  std::string document, op, kernel, shown;
};
struct Table {
  std::map<std::string, std::string> commands;
  std::vector<Row> rows;
};

std::vector<std::string> split(const std::string& line, const std::string& mark) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = line.find(mark, begin);
    parts.push_back(line.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + mark.size();
  }
}

Table read_table() {
  Table table;
  std::ifstream file(folder + "kernels.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("= ")) {
      const std::size_t colon = line.find(": ");
      std::string arguments = line.substr(colon + 2);
      if (const std::size_t at = arguments.find("CONFIGS"); at != std::string::npos) arguments.replace(at, 7, folder + "configs");
      EXPECT_TRUE(table.commands.emplace(line.substr(2, colon - 2), arguments).second) << line;
      continue;
    }
    const std::vector<std::string> parts = split(line, " | ");
    EXPECT_EQ(parts.size(), 4U) << line;
    if (parts.size() == 4) table.rows.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  return table;
}

/// "op" of the graph -> kernels that ran inside it; "shared_experts" and "experts" have those of all that is in them.
using Ran = std::map<std::string, std::set<std::string>>;
using Calls = std::set<std::pair<std::string, std::string>>;
std::string bare(std::string op) {
  if (op.starts_with("self.")) op = op.substr(5);
  if (op.ends_with("()")) op.resize(op.size() - 2);
  return op;
}
void collect(const json& node, std::vector<std::string> callers, Ran& ran, Calls& calls) {
  callers.push_back(bare(node["op"]));
  for (const json& kernel : node["kernels"])
    for (const std::string& caller : callers) ran[caller].insert(kernel["kernel"]);
  for (const json& child : node["children"]) {
    calls.emplace(callers.back(), bare(child["op"]));
    collect(child, callers, ran, calls);
  }
}

class Documents : public Command {
 protected:
  const Table table_ = read_table();
  std::map<std::string, Ran> ran_;
  std::map<std::string, Calls> calls_;  ///< of a command's graph: who calls whom

  /// What ran in the command of that name, once for all rows.
  const Ran& ran(const std::string& name) {
    const auto known = ran_.find(name);
    if (known != ran_.end()) return known->second;
    Ran& ran = ran_[name];
    const auto command = table_.commands.find(name);
    if (command == table_.commands.end()) {
      ADD_FAILURE() << "no command '" << name << "'";
      return ran;
    }
    const bool drawn = !command->second.starts_with("run ");
    const Output output = run(command->second + (drawn ? " --graph json" : ""));
    EXPECT_EQ(output.status, 0) << command->second << "\n" << output.err;
    if (output.status != 0) return ran;
    if (drawn)
      collect(json::parse(output.out)["graph"], {}, ran, calls_[name]);
    else
      ran[""].insert(split(command->second, " ")[1]);
    return ran;
  }
  bool runs(const std::string& name, const std::string& kernel) {
    for (const auto& [op, kernels] : ran(name))
      if (kernels.contains(kernel)) return true;
    return false;
  }
};

TEST_F(Documents, EveryKernelOfEveryOpIsRunByItsCommandOrRefusedWithItsReason) {
  int rows = 0, refused = 0;
  for (const Row& row : table_.rows) {
    if (row.document == "kernel traces" || row.document == "execution graph") continue;
    SCOPED_TRACE(row.op + " = " + row.kernel);
    ++rows;
    if (row.shown.starts_with("refused: ")) {
      ++refused;
      expect_error("layer --preset tiny --kv-len 6 --use " + row.op + "=" + row.kernel, row.shown.substr(9));
      continue;
    }
    const Ran& ran = this->ran(row.shown);
    if (ran.contains("")) {
      EXPECT_TRUE(runs(row.shown, row.kernel));
      continue;
    }
    // Merging is counted to attn_mha there.
    const std::string in_graph = row.op == "attn_mha" && row.kernel.starts_with("merge") ? "merge_state_v2" : row.op;
    const auto found = ran.find(in_graph);
    ASSERT_NE(found, ran.end()) << "the graph has no such op";
    EXPECT_TRUE(found->second.contains(row.kernel));
  }
  EXPECT_EQ(rows, 121);
  EXPECT_EQ(refused, 2);
}

TEST_F(Documents, EveryOpIsCalledByItsCaller) {
  int rows = 0, none = 0;
  for (const Row& row : table_.rows) {
    if (row.document != "execution graph") continue;
    SCOPED_TRACE(row.op + " calls " + row.kernel);
    ++rows;
    const bool is_none = row.shown.starts_with("none: ");
    none += is_none ? 1 : 0;
    if (!is_none) ran(row.shown);
    const Calls& calls = calls_[is_none ? "fused_rope" : row.shown];
    EXPECT_EQ(calls.contains({row.op, row.kernel}), !is_none);
  }
  EXPECT_EQ(rows, 70);
  EXPECT_EQ(none, 1);
}

TEST_F(Documents, EveryKernelIsAnOpOfItsSourceThatACommandRuns) {
  std::set<std::string> kernels;
  int rows = 0;
  for (const Row& row : table_.rows) {
    SCOPED_TRACE(row.op + " " + row.kernel);
    if (row.document == "execution graph") continue;
    if (row.document != "kernel traces") {
      kernels.insert(row.kernel);
      continue;
    }
    ++rows;
    if (row.shown.starts_with("none: ")) {
      EXPECT_EQ(registry().find(row.kernel), nullptr);
      continue;
    }
    const std::vector<std::string> source = split(row.op, ": ");
    const std::string& name = source.size() > 1 ? source[1] : row.kernel;
    const Op* const op = registry().find(name);
    ASSERT_NE(op, nullptr);
    EXPECT_NE(to_string(op->info().sources).find(source[0]), std::string::npos) << to_string(op->info().sources);
    EXPECT_TRUE(runs(row.shown, name));
  }
  EXPECT_EQ(rows, 77);
  // The inventory's sixty are all in the tables.
  std::set<std::string> missing;
  for (const json& op : json::parse(run("list --inventory --json").out))
    if (!kernels.contains(op["name"])) missing.insert(op["name"]);
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace dodona::tools_test
