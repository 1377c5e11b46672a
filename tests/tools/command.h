// Runs the command as a user does.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/temp_folder.h"

namespace dodona::tools_test {

namespace fs = std::filesystem;
using nlohmann::json;

struct Output {
  std::string out, err;
  int status = -1;
};

using dodona::helpers::read_raw;

class Command : public testing::Test {
 protected:
  Output run(const std::string& arguments, const std::string& environment = "") const {
    const fs::path err = folder_ / "stderr";
    Output output;
    FILE* pipe = popen((environment + " " DODONA_COMMAND " " + arguments + " 2>'" + err.string() + "'").c_str(), "r");
    std::array<char, 4096> buffer;
    std::size_t n = 0;
    while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) output.out.append(buffer.data(), n);
    output.status = WEXITSTATUS(pclose(pipe));
    output.err = read_raw(err);
    return output;
  }
  std::string file(const std::string& name, const std::string& content) const { return temporary_.write(name, content); }
  /// A bad call: exit 2, one line on stderr that holds `expected`, nothing on stdout.
  void expect_error(const std::string& arguments, const std::string& expected) const {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, 2) << arguments << "\n" << output.out << output.err;
    EXPECT_NE(output.err.find(expected), std::string::npos) << arguments << "\n" << output.err;
    EXPECT_EQ(output.out, "") << arguments;
  }

  const dodona::helpers::TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path golden_ = fs::path(DODONA_SOURCE_DIR) / "tests/golden";
};

}  // namespace dodona::tools_test
