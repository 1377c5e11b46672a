#include "io/tokenizer.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dodona/error.h"
#include "io/command.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/text.h"

namespace dodona::io {
namespace {

namespace fs = std::filesystem;

/// Reads a request, writes the answer; exit status 3 where the package is missing, 4 where the tokenizer cannot be read.
constexpr const char* bridge = R"(
import json, sys
try:
    from tokenizers import Tokenizer
except ImportError as error:
    print(error)
    sys.exit(3)
with open(sys.argv[1], encoding="utf-8") as file:
    request = json.load(file)
try:
    tokenizer = Tokenizer.from_file(request["tokenizer"])
except Exception as error:
    print(error)
    sys.exit(4)
answer = {"largest": max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)}
if "text" in request:
    answer["ids"] = tokenizer.encode(request["text"]).ids
if "ids" in request:
    answer["text"] = tokenizer.decode(request["ids"], skip_special_tokens=False)
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(answer, file)
)";

/// Goes away with what lies in it.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "dodona-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw Error(ErrorCode::bad_file, "", "", pattern + ": cannot create a folder");
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Json ask(Json request, const std::string& tokenizer) {
  constexpr double patience = 120;
  const Scratch scratch;
  request["tokenizer"] = tokenizer;
  std::ofstream(scratch.file("bridge.py")) << bridge;
  std::ofstream(scratch.file("request.json")) << json_text(request);
  const char* const named = std::getenv("DODONA_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  const CommandResult result = run_command(shell_quoted(python) + " " + shell_quoted(scratch.file("bridge.py")) + " " +
                                               shell_quoted(scratch.file("request.json")) + " " + shell_quoted(scratch.file("answer.json")),
                                           patience);
  constexpr int no_package = 3, no_tokenizer = 4;
  if (result.status == no_tokenizer && !result.timed_out)
    throw Error(ErrorCode::bad_file, "", "", tokenizer + ": no tokenizer that the package tokenizers reads: " + last_line(result.output));
  if (result.status != 0 || result.timed_out)
    throw Error(ErrorCode::missing_argument, "", "",
                tokenizer + ": " + python +
                    (result.status == no_package ? " has no package 'tokenizers' (Hugging Face), which reads it"
                     : result.timed_out          ? " did not answer"
                                                 : " failed: " + last_line(result.output)) +
                    "; install it, name a Python that has it in DODONA_PYTHON, or give tokens with --prompt-ids");
  return read_json(scratch.file("answer.json"));
}

}  // namespace

Tokenizer Tokenizer::open(const std::string& path) {
  const MappedFile file = MappedFile::open(path);
  if (is_lfs_pointer(file.bytes())) throw Error(ErrorCode::bad_file, "", "", path + ": " + lfs_pointer_advice);
  Tokenizer tokenizer(path);
  tokenizer.largest_ = get_int(ask(Json::object(), path), "largest", path);
  return tokenizer;
}

std::vector<std::int64_t> Tokenizer::encode(const std::string& text) const {
  if (first_invalid_utf8(text) != std::string_view::npos) throw Error(ErrorCode::bad_value, "", "--prompt", "is not valid UTF-8");
  return ask({{"text", text}}, path_).at("ids").get<std::vector<std::int64_t>>();
}

std::string Tokenizer::decode(const std::vector<std::int64_t>& tokens) const {
  return get_string(ask({{"ids", tokens}}, path_), "text", path_);
}

}  // namespace dodona::io
