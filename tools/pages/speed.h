// Speeds that `tools/bench` has written down, for the page of ops.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dodona::tools {

struct SpeedRow {
  std::string line;  ///< what follows the op's name: "T=512 H=7168"
  std::string mode;  ///< "fast", "fast, packed", "golden"
  int threads = 1;
  std::string data;  ///< "cold", "warm"; empty where it does not matter
  double seconds = 0;
  std::string rate;   ///< "41.2 GB/s"
  std::string share;  ///< "0.92 C": of the limit measured in the same run
  std::string peer;   ///< "Eigen 30.1 ms"; empty without one
};

struct Speeds {
  std::string machine;  ///< what was measured, and the limits of that run; Markdown
  std::map<std::string, std::vector<SpeedRow>> of_op;
};

/// Three digits and a unit.
std::string time_text(double seconds);

/// Reads the JSON of Google Benchmark. An empty path gives no speeds. Throws Error(bad_file).
Speeds read_speeds(const std::string& path);

/// `rmsnorm/T=512_H=7168/threads:2/real_time`: the words of a case line again, whose blanks a benchmark's name cannot have.
std::string words_of(const std::string& name);

}  // namespace dodona::tools
