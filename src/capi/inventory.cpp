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

// The first call of any of these builds what it tells, and needs memory for it.

const char* dodona_version(void) {
  const char* version = "";
  dodona::capi::guarded([&] {
    static const std::string text = dodona::version();
    version = text.c_str();
  });
  return version;
}

std::size_t dodona_op_count(void) {
  std::size_t count = 0;
  dodona::capi::guarded([&] { count = dodona::registry().all().size(); });
  return count;
}

const char* dodona_op_name(std::size_t index) {
  const char* name = nullptr;
  dodona::capi::guarded([&] {
    const auto ops = dodona::registry().all();
    if (index < ops.size()) name = ops[index]->name().data();  // names are literals
  });
  return name;
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
