// The versions of contracts: a record, or a case that somebody keeps, is held against the contract it was made under.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <sstream>

#include "command.h"
#include "dodona/op.h"
#include "io/sha256.h"

namespace dodona::tools_test {
namespace {

/// A line of the list: the op, the version of its contract, and a digest of the contract's words.
std::string line_of(const Op& op) {
  const std::string digest = io::to_hex(io::sha256(std::as_bytes(std::span(op.contract()))));
  return std::string(op.name()) + " " + std::to_string(op.contract_version()) + " " + digest.substr(0, 16);
}

TEST(Contracts, WhoChangesTheWordsDecidesOnTheVersion) {
  const std::string list = "tests/documents/contracts.txt";
  std::map<std::string, std::string> told;
  std::istringstream lines(read_raw(fs::path(DODONA_SOURCE_DIR) / list));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#')
      EXPECT_TRUE(told.emplace(line.substr(0, line.find(' ')), line).second) << list << " has " << line << " again";
  for (const auto& op : registry().all()) {
    const std::string name(op->name()), now = line_of(*op);
    EXPECT_EQ(told[name], now) << "the contract of " << name << " is not the one of " << list
                               << ": if a mode's bits, or what passes, changed for calls that could be made before, raise its "
                                  "contract_version, and in any case put the line there: "
                               << now;
    const std::string before = told[name];
    if (std::istringstream then(before), here(now); !before.empty()) {
      std::string word;
      int old_version = 0, version = 0;
      then >> word >> old_version;
      here >> word >> version;
      EXPECT_GE(version, old_version) << name << ": versions only rise";
    }
    told.erase(name);
  }
  for (const auto& [name, line] : told) ADD_FAILURE() << list << " has " << line << ", but there is no such op";
}

}  // namespace
}  // namespace dodona::tools_test
