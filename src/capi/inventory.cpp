// This library and its ops, as C sees them.
#include <map>
#include <mutex>
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
  dodona::capi::guarded([&] { count = dodona::registry().entries().size(); });
  return count;
}

const char* dodona_op_name(std::size_t index) {
  const char* name = nullptr;
  dodona::capi::guarded([&] {
    const auto ops = dodona::registry().entries();
    if (index < ops.size()) name = ops[index].name.data();  // names are literals
  });
  return name;
}

const char* dodona_op_schema(const char* op) {
  const char* text = nullptr;
  dodona::capi::guarded([&] {
    static std::mutex mutex;
    static std::map<const dodona::Op*, std::string> schemas;  // those that were asked for
    const dodona::Op& entry = dodona::registry().at(&dodona::capi::required(op, "op"));
    const std::lock_guard lock(mutex);
    std::string& schema = schemas[&entry];
    if (schema.empty()) schema = dodona::io::json_text(dodona::oracle::schema_json(entry));
    text = schema.c_str();
  });
  return text;
}
