#include "oracle/cases/generated_tensor.h"

#include <algorithm>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// More than any recorded weight has: a few bytes of text may not claim all memory.
constexpr std::int64_t most_elements = std::int64_t{1} << 28;

std::uint32_t hash(std::uint32_t i, std::uint32_t seed) {
  std::uint32_t x = i * 2654435761u + seed;
  x = (x ^ x >> 15) * 2246822519u;
  x = (x ^ x >> 13) * 3266489917u;
  return x ^ x >> 16;
}

std::int64_t size_field(const io::Json& rule, const char* key, const std::string& where) {
  const std::int64_t size = io::get_int(rule, key, where);
  if (size < 0 || size > most_elements)
    throw Error(ErrorCode::bad_file, "", where, std::string(key) + " is " + std::to_string(size) + ", expected 0 to 2^28");
  return size;
}

Dims dims_field(const io::Json& rule, const char* key, const std::string& where) {
  const auto values = io::get_ints(rule, key, where);
  if (values.size() > static_cast<std::size_t>(max_rank))
    throw Error(ErrorCode::bad_file, "", where,
                std::string(key) + " has " + std::to_string(values.size()) + " entries, expected 6 at most");
  return Dims(std::span<const std::int64_t>(values));
}

/// The elements in the order of the rule. There are 256 values: each is rounded once.
void fill(const Tensor& tensor, std::uint32_t seed, std::int64_t offset, std::int64_t divisor) {
  std::uint64_t codes[256];
  for (int value = 0; value < 256; ++value) {
    std::uint64_t element = 0;
    quant::store(tensor.dtype(), &element, 0, static_cast<double>(value - offset) / static_cast<double>(divisor));
    codes[value] = quant::load_bits(tensor.dtype(), &element, 0);
  }
  const std::int64_t count = tensor.elements();
  if (bits(tensor.dtype()) == 16) {
    for (std::int64_t i = 0; i < count; ++i)
      tensor.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(codes[hash(static_cast<std::uint32_t>(i), seed) >> 24]);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      quant::store_bits(tensor.dtype(), tensor.data(), i, codes[hash(static_cast<std::uint32_t>(i), seed) >> 24]);
  }
}

}  // namespace

Tensor generated_tensor(const io::Json& rule, const std::string& path, const std::string& argument) {
  const std::string where = path + " attrs.generated." + argument;
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::bad_file, "", where, why); };
  if (const std::string name = io::get_string(rule, "rule", where); name != "hash32") refuse("has rule '" + name + "', expected 'hash32'");
  const std::string type_name = io::get_string(rule, "dtype", where);
  const auto type = parse_dtype(type_name);
  if (!type) refuse("has dtype '" + type_name + "', which is none");
  const std::int64_t rows = size_field(rule, "rows", where), columns = size_field(rule, "cols", where);
  if (columns > 0 && rows > most_elements / columns)
    refuse("has " + std::to_string(rows) + " rows of " + std::to_string(columns) + ": too many");
  const auto within = [](std::int64_t x) { return x >= -(std::int64_t{1} << 52) && x <= std::int64_t{1} << 52; };
  const std::int64_t offset = io::get_int(rule, "offset", where), divisor = io::get_int(rule, "divisor", where);
  if (divisor == 0 || !within(offset) || !within(divisor))
    refuse("has offset " + std::to_string(offset) + " and divisor " + std::to_string(divisor));
  const Dims shape = dims_field(rule, "logical_shape", where), strides = dims_field(rule, "strides", where);
  if (shape.rank() != strides.rank()) refuse("has strides " + to_string(strides) + " for the shape " + to_string(shape));
  const Tensor all(*type, {rows, columns});
  fill(all, static_cast<std::uint32_t>(io::get_int(rule, "seed", where)), offset, divisor);
  std::int64_t last = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (strides[d] < 0 || strides[d] > most_elements || shape[d] < 0 || shape[d] > most_elements)
      refuse("has strides " + to_string(strides) + " for the shape " + to_string(shape));
    last += shape[d] > 0 ? (shape[d] - 1) * strides[d] : 0;
  }
  if (element_count(shape) > 0 && last >= all.elements())
    refuse("views element " + std::to_string(last) + " of " + std::to_string(all.elements()));
  return {all.owner(), all.data(), *type, shape, strides, true};
}

void check_sample(const Tensor& generated, const Tensor& sample, const std::string& path, const std::string& argument) {
  // The sample is stored in the order of the rule, as the memory behind the view is.
  const std::int64_t memory = generated.extent_bytes() * 8 / bits(generated.dtype());
  bool equal = sample.dtype() == generated.dtype() && sample.contiguous() && sample.elements() <= memory;
  for (std::int64_t i = 0; equal && i < sample.elements(); ++i)
    equal = quant::load_bits(sample.dtype(), sample.data(), i) == quant::load_bits(generated.dtype(), generated.data(), i);
  if (!equal) throw Error(ErrorCode::bad_file, "", path, "holds a sample of " + argument + " that is not what its rule generates");
}

}  // namespace dodona::oracle
