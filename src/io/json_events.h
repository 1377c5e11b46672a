// JSON as it is read, for wide texts of a known form: nothing is built of them.
//
// A checkpoint's headers and index are 40 MB for R1 in NVFP4, whose reading nlohmann's reader would make .4 s of processor time; they hold
// brackets, plain names and whole numbers. So this reads those, in .03 s, and leaves every other text to the tree. Libraries that are
// as fast were tried: simdjson (.03 s), which Debian has as a shared library alone, whose name differs from one distribution to the
// next, so that libdodona.so and wheels could no longer be carried to another machine; RapidJSON (.06 s), headers alone, whose release
// of 2016 takes half a surrogate pair for a character and adds to null pointers, which the fuzzer's build stops at.
#pragma once

#include <cstdint>
#include <string_view>

namespace dodona::io {

/// What is met in a text, one after the other, for readers of wide texts of a known form, to which a tree is a detour. Each event says
/// whether the text may be of that form; those that a reader leaves out are not.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool number(std::uint64_t /*value*/) { return false; }
  virtual bool string(std::string_view /*value*/) { return false; }
  virtual bool key(std::string_view /*value*/) { return false; }
  virtual bool start_object() { return false; }
  virtual bool end_object() { return false; }
  virtual bool start_array() { return false; }
  virtual bool end_array() { return false; }
};
/// Whether `text` is one JSON object of objects, arrays, ASCII strings without escapes and whole numbers of at most 18 digits, of whose
/// events none was refused. What it is else, parse_json says: names that occur twice and limits are the reader's to look after, until it
/// has refused.
bool read_events(std::string_view text, JsonEvents& events);

}  // namespace dodona::io
