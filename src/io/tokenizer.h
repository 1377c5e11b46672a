// Text to tokens and back, by Hugging Face's `tokenizers`, which reads tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dodona::io {

/// A tokenizer.json in the hands of the Python package `tokenizers`, the library that wrote the format: no Debian package and no C++ one
/// reads it. Each call is a process: `python3`, or what DODONA_PYTHON names.
class Tokenizer {
 public:
  /// Throws Error: bad_file for a file that is none, missing_argument where Python or the package is not there, saying what would help.
  static Tokenizer open(const std::string& path);

  /// The largest id that it can give, added tokens among them.
  std::int64_t largest() const { return largest_; }
  /// With the tokens that the tokenizer puts around a text.
  std::vector<std::int64_t> encode(const std::string& text) const;
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  explicit Tokenizer(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::int64_t largest_ = 0;
};

}  // namespace dodona::io
