// Grading a kernel of another process, from C.
#include <memory>

#include "capi/guard.h"
#include "capi/record.h"
#include "dodona/error.h"
#include "io/json.h"
#include "oracle/grade/grade.h"

namespace dodona::capi {
namespace {

oracle::GradeRequest read_request(const char* claim, const char* const* words, std::size_t word_count, const char* text) {
  oracle::GradeRequest request;
  request.claim = claim;
  for (std::size_t i = 0; i < word_count; ++i) request.command.emplace_back(&required(words[i], "a word of the command"));
  const io::Json options = io::parse_json(text, "grade options");
  for (const auto& [name, value] : options.items()) {
    if (name == "calls") {
      request.calls = static_cast<int>(io::get_int(options, name));
    } else if (name == "nonce") {
      request.nonce = io::get_string(options, name);
    } else if (name == "mode") {
      const auto mode = parse_mode(io::get_string(options, name));
      if (!mode || *mode == Mode::fast) throw Error(ErrorCode::bad_option, "", "mode", "must be golden or a GPU's mode");
      request.mode = *mode;
    } else if (name == "threads") {
      const std::int64_t threads = io::get_int(options, name);
      if (threads < 0 || threads > 4096)
        throw Error(ErrorCode::bad_option, "", "threads", "is " + std::to_string(threads) + ", expected 1 to 4096");
      if (threads > 0) request.exec.threads = static_cast<int>(threads);
    } else if (name == "seconds") {
      request.seconds = io::get_double(options, name);
    } else if (name == "explain_seconds") {
      request.explain_seconds = io::get_double(options, name);
    } else if (name == "same_bits") {
      request.same_bits = io::get_bool(options, name);
    } else {
      throw Error(ErrorCode::bad_option, "", name, "is no option of a grading");
    }
  }
  return request;
}

}  // namespace
}  // namespace dodona::capi

int dodona_grade(const char* claim, const char* const* words, size_t word_count, const char* options, dodona_record** record) {
  using dodona::capi::required;
  return dodona::capi::guarded([&] {
    required(record, "the place for the record") = nullptr;
    if (word_count > 0) required(words, "the command");
    const dodona::oracle::Grade made = dodona::oracle::grade(
        dodona::capi::read_request(&required(claim, "the claim"), words, word_count, options == nullptr ? "{}" : options));
    dodona::io::Json json = dodona::oracle::to_json(made);
    json["text"] = dodona::oracle::grade_text(made);
    auto text = std::make_unique<dodona_record>();
    text->text = dodona::io::json_text(json);
    *record = text.release();
  });
}
