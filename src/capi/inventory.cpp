// This library and its ops, as C sees them.
#include <map>
#include <string>

#include "capi/guard.h"
#include "dodona/op.h"
#include "dodona/version.h"
#include "oracle/report/schema_json.h"

int dodona_abi_version(void) {
  return DODONA_ABI_VERSION;
}

const char* dodona_version(void) {
  static const std::string text = dodona::version();
  return text.c_str();
}

std::size_t dodona_op_count(void) {
  return dodona::registry().all().size();
}

const char* dodona_op_name(std::size_t index) {
  const auto ops = dodona::registry().all();
  return index < ops.size() ? ops[index]->name().data() : nullptr;  // names are literals
}

const char* dodona_op_schema(const char* op) {
  const char* text = nullptr;
  dodona::capi::guarded([&] {
    static const auto schemas = [] {
      std::map<std::string, std::string, std::less<>> texts;
      for (const auto& entry : dodona::registry().all())
        texts[std::string(entry->name())] = dodona::io::json_text(dodona::oracle::schema_json(*entry));
      return texts;
    }();
    text = schemas.at(std::string(dodona::registry().at(&dodona::capi::required(op, "op")).name())).c_str();
  });
  return text;
}
