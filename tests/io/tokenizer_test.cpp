#include "io/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "../temp_folder.h"

namespace dodona::io {
namespace {

/// Stands in for the package: as many tokens as the text has characters.
constexpr const char* stand_in = R"(
class Encoding:
    def __init__(self, ids): self.ids = ids
class Tokenizer:
    @staticmethod
    def from_file(path): return Tokenizer()
    def get_vocab(self, with_added_tokens=True): return {"a": 5}
    def encode(self, text): return Encoding(list(range(len(text))))
    def decode(self, ids, skip_special_tokens=True): return "\n\u00e9 piece end" * len(ids)
)";

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

TEST(Tokenizer, LongTextsComeAndGoThroughNoFile) {
  const helpers::TempFolder folder;
  folder.write("tokenizers.py", stand_in);
  folder.write("tokenizer.json", "{}");
  const Environment package("PYTHONPATH", folder.path()), scratch("TMPDIR", "/nowhere");
  const Tokenizer tokenizer = Tokenizer::open(folder.file("tokenizer.json"));
  EXPECT_EQ(tokenizer.largest(), 5);
  std::vector<std::int64_t> all(50'000);
  std::iota(all.begin(), all.end(), 0);
  std::string text, back;
  for (const std::int64_t id : all) text += id % 2 == 0 ? "é" : "\n", back += "\né piece end";
  EXPECT_EQ(tokenizer.encode(text), all);
  EXPECT_EQ(tokenizer.decode(all), back);
}

}  // namespace
}  // namespace dodona::io
