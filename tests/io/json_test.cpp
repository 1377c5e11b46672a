#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "io/json_events.h"
#include "tests/io/helpers.h"

using namespace dodona;
using namespace dodona::io;
using namespace dodona::io::testing;

namespace {

std::string rejects(std::string_view text, const std::string& part, const JsonLimits& limits = {}) {
  return expect_error([&] { parse_json(text, "test", limits); }, ErrorCode::bad_file, part);
}

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

}  // namespace

TEST(Json, ReadsEveryKindOfValue) {
  const Json json =
      parse_json(R"({"n":null,"t":true,"f":false,"i":-7,"u":18446744073709551615,"d":2.5e-1,"s":"\u00e9\n","a":[1,[]],"o":{}})");
  EXPECT_TRUE(json["n"].is_null());
  EXPECT_EQ(json["t"], true);
  EXPECT_EQ(json["f"], false);
  EXPECT_EQ(json["i"], -7);
  EXPECT_EQ(json["u"], UINT64_MAX);
  EXPECT_EQ(json["d"], 0.25);
  EXPECT_EQ(json["s"], "é\n");
  EXPECT_EQ(json["a"].dump(), "[1,[]]");
  EXPECT_TRUE(json["o"].is_object());
}

TEST(Json, ScalarsAreWholeTexts) {
  EXPECT_EQ(parse_json(" 3 "), 3);
  EXPECT_EQ(parse_json("\"x\""), "x");
}

TEST(Json, KeepsTheOrderOfMembers) {
  EXPECT_EQ(json_text(parse_json(R"({"z":1, "a":2, "m":{"y":3,"b":4}})")), R"({"z":1,"a":2,"m":{"y":3,"b":4}})");
}

TEST(Json, ManyMembersSurviveTheGrowthOfTheObject) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += (i ? "," : "") + ("\"k" + std::to_string(i)) + "\":[" + std::to_string(i) + "]";
  const Json json = parse_json(text + "}");
  ASSERT_EQ(json.size(), 1000u);
  EXPECT_EQ(json["k777"][0], 777);
}

TEST(Json, DuplicateKeyIsNamedWithItsPlace) {
  rejects(R"({"a":1,"b":2,"a":3})", "key 'a' occurs more than once in the outermost object");
  rejects(R"({"x":[0,{"y":{"k":1,"k":1}}]})", "key 'k' occurs more than once in the object at '/x/1/y'");
}

TEST(Json, KeysThatBecomeEqualByEscapesAreDuplicates) {
  rejects(R"({"a":1,"\u0061":2})", "key 'a' occurs more than once");
}

TEST(Json, SameKeyInDifferentObjectsIsFine) {
  EXPECT_EQ(parse_json(R"({"a":{"a":1},"b":{"a":2}})").size(), 2u);
}

TEST(Json, DepthIsCapped) {
  EXPECT_NO_THROW(parse_json(nested(64)));
  rejects(nested(65), "line 1, column 65: nested deeper than 64");
  rejects(R"({"a":{"b":[]}})", "nested deeper than 2", {.max_depth = 2});
  EXPECT_NO_THROW(parse_json(R"({"a":{"b":1}})", "test", {.max_depth = 2}));
}

TEST(Json, DepthBombCostsNoStack) {
  rejects(std::string(5'000'000, '['), "nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  rejects(objects, "nested deeper than 64");
}

TEST(Json, BracketsInStringsHaveNoDepth) {
  EXPECT_NO_THROW(parse_json("[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"]"));
}

TEST(Json, SizeIsCapped) {
  rejects("[1,2,3]", "7 bytes of JSON, the limit is 6", {.max_bytes = 6});
  EXPECT_NO_THROW(parse_json("[1,2,3]", "test", {.max_bytes = 7}));
}

TEST(Json, NumberOfValuesIsCapped) {
  rejects("[1,2,3]", "more than 3 values", {.max_values = 3});
  EXPECT_NO_THROW(parse_json("[1,2,3]", "test", {.max_values = 4}));
}

TEST(Json, IllFormedUtf8IsRejectedWithItsPosition) {
  rejects("{\"a\":\n\"\xff\"}", "line 2, column 2: byte 7 is not valid UTF-8");
  rejects("\"\xC0\xAF\"", "not valid UTF-8");
  rejects(R"("\ud800")", "surrogate");
}

TEST(Json, NulBytesAreRejectedWhereverTheyStand) {
  rejects(std::string_view("{}\0{", 4), "line 1, column 3: unexpected NUL byte");
  rejects(std::string_view("\"a\0\"", 4), "unexpected NUL byte");
  rejects(std::string_view("\"\\\0\"", 4), "unexpected NUL byte");
  EXPECT_EQ(parse_json(R"("\u0000")").get<std::string>().size(), 1u);
}

TEST(Json, NumbersTooLargeForADoubleAreRejected) {
  rejects("[1e400]", "number overflow parsing '1e400'");
  rejects("-1e999", "number overflow");
  EXPECT_EQ(parse_json("1e-400"), 0.0);
}

TEST(Json, SyntaxErrorsSayWhereAndWhatWasExpected) {
  rejects("{\"a\": 1,\n \"b\" 2}",
          "line 2, column 6: syntax error while parsing object separator - unexpected number literal; expected ':'");
  rejects("", "unexpected end of input");
  rejects("   ", "unexpected end of input");
  rejects("[1,", "unexpected end of input");
  for (const char* bad : {"{",        "}",   "[1,]",  "{\"a\":1,}", "{a:1}",  "{'a':1}", "01",      "+1",    ".5",     "1.",    "NaN",
                          "Infinity", "nul", "[1] 2", "// x\n1",    "\"\t\"", "\"\\x\"", "{\"a\"}", "[1 2]", "\"open", "{1:2}", "{}{}"})
    rejects(bad, "test: line 1, column");
}

TEST(Json, ErrorsStayShortHoweverLongTheText) {
  EXPECT_LT(rejects("\"" + std::string(1'000'000, 'a'), "missing closing quote").size(), 400u);
}

TEST(Json, FilesAreNamedInErrors) {
  const TempFolder folder;
  const std::string path = folder.file("config.json");
  write_raw(path, R"({"a": })");
  expect_error([&] { read_json(path); }, ErrorCode::bad_file, "config.json: line 1, column 7");
  write_raw(path, R"({"a": 5})");
  EXPECT_EQ(get_int(read_json(path), "a"), 5);
  write_raw(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  expect_error([&] { read_json(path); }, ErrorCode::bad_file, "Git LFS pointer");
  expect_error([&] { read_json(folder.file("none.json")); }, ErrorCode::bad_file, "none.json: cannot open");
}

TEST(JsonFields, TypedAccess) {
  const Json json = parse_json(R"({"s":"x","i":3,"d":0.5,"b":true,"o":{"k":1},"a":[1,2],"t":["p","q"]})");
  EXPECT_EQ(get_string(json, "s"), "x");
  EXPECT_EQ(get_int(json, "i"), 3);
  EXPECT_EQ(get_double(json, "d"), 0.5);
  EXPECT_EQ(get_double(json, "i"), 3.0);
  EXPECT_TRUE(get_bool(json, "b"));
  EXPECT_EQ(get_int(get_object(json, "o"), "k"), 1);
  EXPECT_EQ(get_array(json, "a").size(), 2u);
  EXPECT_EQ(get_ints(json, "a"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(get_strings(json, "t"), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(get_string_or(json, "s", "y"), "x");
  EXPECT_EQ(get_string_or(json, "none", "y"), "y");
  EXPECT_EQ(get_int_or(json, "none", 9), 9);
  EXPECT_EQ(get_double_or(json, "none", 9.5), 9.5);
  EXPECT_TRUE(get_bool_or(json, "none", true));
  EXPECT_EQ(find_field(json, "none"), nullptr);
}

TEST(JsonFields, ErrorsNameFieldExpectationAndValue) {
  const Json json = parse_json(R"({"s":"x","d":1.5,"n":null,"a":[1,"two"],"big":9223372036854775808,"o":{}})");
  const auto fails = [&](const std::function<void()>& action, const std::string& part) { expect_error(action, ErrorCode::bad_file, part); };
  fails([&] { get_string(json, "q", "config.json"); }, "config.json: field 'q' is missing");
  fails([&] { get_int(json, "s", "config.json"); }, "config.json: field 's': expected a whole number of 64 bits, got the string 'x'");
  fails([&] { get_int(json, "d"); }, "got the number 1.5");
  fails([&] { get_int(json, "big"); }, "got the number 9223372036854775808");
  fails([&] { get_double(json, "s"); }, "expected a number");
  fails([&] { get_bool(json, "n"); }, "expected true or false, got null");
  fails([&] { get_object(json, "a"); }, "expected an object, got an array");
  fails([&] { get_array(json, "o"); }, "expected an array, got an object");
  fails([&] { get_ints(json, "a"); }, "element 1 of field 'a': expected a whole number");
  fails([&] { get_strings(json, "a"); }, "element 0 of field 'a': expected a string");
  fails([&] { get_int_or(json, "n", 1); }, "got null");
  fails([&] { get_string(json["a"], "x", "list"); }, "list: expected an object with field 'x', got an array");
}

/// Takes every event but those of one kind, and writes them down.
class Spelled final : public JsonEvents {
 public:
  explicit Spelled(std::string refused = {}) : refused_(std::move(refused)) {}
  std::string text;

  bool number(std::uint64_t value) override { return met("+" + std::to_string(value)); }
  bool string(std::string_view value) override { return met("'" + std::string(value) + "'"); }
  bool key(std::string_view value) override { return met(std::string(value) + ":"); }
  bool start_object() override { return met("{"); }
  bool end_object() override { return met("}"); }
  bool start_array() override { return met("["); }
  bool end_array() override { return met("]"); }

 private:
  bool met(const std::string& event) {
    text += event;
    return event != refused_;
  }
  std::string refused_;
};

TEST(JsonEvents, ComeInTheOrderOfTheText) {
  Spelled all;
  EXPECT_TRUE(read_events(" {\"a\" : [0, 123456789012345678,\t\"e\"] ,\"b\":{\"\":\"\"},\"d\":[[],{}]}\n", all));
  EXPECT_EQ(all.text, "{a:[+0+123456789012345678'e']b:{:''}d:[[]{}]}");
  Spelled none_false("[");
  EXPECT_FALSE(read_events(R"({"a":[1,2]})", none_false));
  EXPECT_EQ(none_false.text, "{a:[");
  JsonEvents nothing;
  EXPECT_FALSE(read_events("{}", nothing));
}
TEST(JsonEvents, LeaveWhatIsNotPlainToTheTree) {
  for (const char* value : {"-2", "2.5", "2e3", "1234567890123456789", "null", "true", "false", "\"\\u00e9\"", "\"\\n\"", "\"é\""}) {
    Spelled all;
    EXPECT_FALSE(read_events(std::string("{\"a\":") + value + "}", all)) << value;
  }
}
TEST(JsonEvents, TakeNoTextThatIsNoObjectOfJson) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {""sv, " "sv, "[]"sv, "3"sv, "{"sv, "{}x"sv, "{}\0"sv, "{\"a\":1,}"sv, "{\"a\0\":1}"sv, "\xEF\xBB\xBF{}"sv, "{\"\xff\":1}"sv,
        "{\"\xed\xa0\x80\":1}"sv, "{\"a\":01}"sv, "{\"a\":1e999}"sv, "{} {}"sv, "{\"a\":\"\n\"}"sv, "/**/{}"sv}) {
    Spelled all;
    EXPECT_FALSE(read_events(text, all)) << text;
    if (!text.starts_with("[") && !text.starts_with("\xEF") && text != "3") EXPECT_FALSE(survives([&] { parse_json(text); })) << text;
  }
}

TEST(JsonText, RefusesStringsThatAreNotUtf8) {
  expect_error([] { json_text(Json("\xff")); }, ErrorCode::bad_value, "cannot write JSON");
  EXPECT_EQ(json_text(Json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

TEST(JsonFuzz, EveryTruncationIsAnError) {
  const std::string text = R"({"a":[1,2.5,{"b":"\u00e9"}],"c":null,"d":true})";
  for (std::size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(survives([&] { parse_json(std::string_view(text).substr(0, n)); })) << n;
}

/// What Spelled would write down of it; nothing where something in it is not plain.
std::optional<std::string> spelled(const Json& value) {
  if (value.is_number_unsigned()) return value < 1'000'000'000'000'000'000U ? std::optional("+" + json_text(value)) : std::nullopt;
  if (value.is_string()) return "'" + value.get<std::string>() + "'";
  if (!value.is_structured()) return std::nullopt;
  std::string text;
  for (const auto& [key, member] : value.items()) {
    const auto part = spelled(member);
    if (!part) return std::nullopt;
    text += (value.is_object() ? key + ":" : "") + *part;
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}
/// Strings are not plain in their spelling alone.
bool has_plain_strings(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c != '\\' && static_cast<unsigned char>(c) < 0x80; });
}

TEST(JsonFuzz, EventsOfMutatedTextsAreThoseOfTheirTrees) {
  const Buffer seed = buffer(R"({ "model":{"dim":7168,"names":["a","bcd"],"scale":123456789012345678} , "f":[[],{}],"d":0,"e":10})");
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Buffer bytes = mutate(seed, random);
    const std::string_view text = as_text(bytes);
    Spelled events;
    const bool taken = read_events(text, events);
    try {
      const Json tree = parse_json(text);
      const auto expected = tree.is_object() && has_plain_strings(text) ? spelled(tree) : std::nullopt;
      EXPECT_EQ(taken, expected.has_value()) << text;
      if (taken) EXPECT_EQ(events.text, expected) << text;
      accepted += taken;
    } catch (const Error& error) {
      if (error.message().find("more than once") == std::string::npos) EXPECT_FALSE(taken) << text << "\n" << error.message();
    }
  }
  EXPECT_GT(accepted, 200);
}

TEST(JsonFuzz, MutatedTextsGiveAValueOrAnError) {
  const Buffer seed = buffer(R"({"model":{"dim":7168,"names":["a","b\u00e9\n"],"scale":-2.5e-3},"flags":[true,false,null],"dim":0})");
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Buffer bytes = mutate(seed, random);
    accepted += survives([&] { json_text(parse_json(as_text(bytes))); });
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 9'900);
}
