#include "io/tokenizer.h"

#include <cstdlib>
#include <optional>

#include "dodona/error.h"
#include "io/command.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/text.h"

namespace dodona::io {
namespace {

/// Answers the request on the first line of its stdin, by a piece for each further line; exit status 3 where the package is missing, 4
/// where the tokenizer cannot be read.
constexpr const char* bridge = R"(
import json, sys
try:
    from tokenizers import Tokenizer
except ImportError as error:
    print(error)
    sys.exit(3)
request = json.loads(sys.stdin.buffer.readline())
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
answer = json.dumps(answer)
for begin in range(0, len(answer), 30000):
    print("piece", answer[begin:begin + 30000], flush=True)
    sys.stdin.buffer.readline()
print("end", flush=True)
)";

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

[[noreturn]] void fail_missing(const std::string& tokenizer, const std::string& why) {
  throw Error(ErrorCode::missing_argument, "", "",
              tokenizer + ": " + why + "; install it, name a Python that has it in DODONA_PYTHON, or give tokens with --prompt-ids");
}
[[noreturn]] void fail_ended(const std::string& tokenizer, const std::string& python, const CommandResult& result) {
  constexpr int no_package = 3, no_tokenizer = 4;
  if (result.status == no_tokenizer)
    throw Error(ErrorCode::bad_file, "", "", tokenizer + ": no tokenizer that the package tokenizers reads: " + last_line(result.output));
  fail_missing(tokenizer, result.status == no_package ? python + " has no package 'tokenizers' (Hugging Face), which reads it"
                                                      : python + " failed: " + last_line(result.output));
}

/// Nothing of it lies in files, which a signal would leave behind.
Json ask(Json request, const std::string& tokenizer) {
  constexpr double patience = 120;
  request["tokenizer"] = tokenizer;
  const char* const named = std::getenv("DODONA_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  std::optional<Command> command;
  try {
    command.emplace(std::vector<std::string>{python, "-c", bridge}, Command::End::with_this_process);
  } catch (const Error& error) {
    fail_missing(tokenizer, "the package 'tokenizers' (Hugging Face) reads it, and its Python is not there: " + error.message());
  }
  std::string text, line = json_text(request);
  while (true) {
    const Command::Answer answer = command->ask(line, {"piece", "end"}, patience);
    if (answer.kind == Command::Answer::Kind::timed_out) fail_missing(tokenizer, python + " did not answer");
    if (answer.kind == Command::Answer::Kind::ended) fail_ended(tokenizer, python, command->wait(patience));
    if (answer.text == "end") return parse_json(text, tokenizer);
    text += answer.text.substr(std::string_view("piece ").size());
    line = "next";
  }
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
