#include "io/safetensors.h"

#include <algorithm>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/json.h"
#include "io/safetensors_header.h"
#include "io/tensor_bytes.h"
#include "io/text.h"

namespace dodona::io {
namespace {

constexpr std::size_t length_bytes = 8;

[[noreturn]] void fail(const std::string& source, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", source + ": " + message);
}
constexpr auto where = safetensors_place;

std::uint64_t file_bits(const SafetensorsEntry& entry) {
  return find_safetensors_type(entry.dtype_name)->bits;
}

// ---- reading ----

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Parts split(std::span<const std::byte> bytes, const std::string& source) {
  if (is_lfs_pointer(bytes)) fail(source, lfs_pointer_advice);
  if (bytes.empty()) fail(source, "the file is empty");
  if (bytes.size() < length_bytes)
    fail(source, "the file has " + std::to_string(bytes.size()) + " bytes, too few for the 8 bytes of the header length");
  const auto length = load_le<std::uint64_t>(bytes, 0);
  if (length > max_safetensors_header)
    fail(source, "a header of " + std::to_string(length) + " bytes is over the limit of " + std::to_string(max_safetensors_header));
  if (length > bytes.size() - length_bytes)
    fail(source, "a header of " + std::to_string(length) + " bytes does not fit into the file of " + std::to_string(bytes.size()));
  return {as_text(bytes.subspan(length_bytes, length)), bytes.subspan(length_bytes + length)};
}

void check_size(const SafetensorsEntry& entry, const std::string& source) {
  const auto problem = [&](const std::string& message) { fail(where(source, entry.name), message); };
  const auto tensor = [&] { return std::string(entry.dtype_name) + " " + shape_text(entry.shape); };
  const std::optional<std::uint64_t> count = checked_product(entry.shape);
  if (!count) problem("shape " + shape_text(entry.shape) + " overflows the count of elements");
  std::uint64_t total_bits = 0;
  if (__builtin_mul_overflow(*count, file_bits(entry), &total_bits)) problem(tensor() + " overflows the count of bits");
  if (total_bits % 8 != 0) problem(tensor() + " takes " + std::to_string(total_bits) + " bits, no whole number of bytes");
  if (total_bits / 8 != entry.end - entry.begin)
    problem(tensor() + " takes " + std::to_string(total_bits / 8) + " bytes, data_offsets span " + std::to_string(entry.end - entry.begin));
}

/// The tensors must fill the data section, each byte belonging to one of them.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_size, const std::string& source) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });

  std::uint64_t position = 0;
  for (const SafetensorsEntry* entry : order) {
    const auto span = [&] { return "data_offsets [" + std::to_string(entry->begin) + ", " + std::to_string(entry->end) + "]"; };
    if (entry->begin > entry->end) fail(where(source, entry->name), span() + " run backwards");
    if (entry->begin < position)
      fail(where(source, entry->name), span() + " overlap another tensor, which ends at " + std::to_string(position));
    if (entry->begin > position) fail(where(source, entry->name), span() + " leave a hole after byte " + std::to_string(position));
    check_size(*entry, source);
    position = entry->end;
  }
  if (position > data_size)
    fail(source, "the tensors take " + std::to_string(position) + " bytes of data, the file has only " + std::to_string(data_size));
  if (position < data_size) fail(source, std::to_string(data_size - position) + " bytes follow the last tensor");
}

// ---- writing ----

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::bad_value, "", "", "cannot write safetensors: " + message);
}

struct Item {
  const std::string* name;
  std::size_t index;  // among the tensors to write
  std::size_t rank;   // of the type in the format's order
  std::vector<std::int64_t> shape;
  std::uint64_t bytes;
};

std::size_t type_rank(DType dtype) {
  if (dtype == DType::i4) dtype = DType::u8;
  const auto found =
      std::find_if(safetensors_types.begin(), safetensors_types.end(), [dtype](const SafetensorsType& t) { return t.dtype == dtype; });
  return static_cast<std::size_t>(found - safetensors_types.begin());
}

Item make_item(const std::string& name, std::size_t index, DType dtype, const Dims& dims) {
  if (name == metadata_key) refuse("a tensor cannot be called __metadata__");
  if (first_invalid_utf8(name) != std::string_view::npos) refuse("the name " + quote(name) + " is not valid UTF-8");
  Item item{&name, index, type_rank(dtype), {dims.begin(), dims.end()}, 0};
  if (dtype == DType::i4) {
    if (item.shape.empty() || item.shape.back() % 2 != 0) refuse("tensor " + quote(name) + " has an odd number of i4 in a row");
    item.shape.back() /= 2;
  }
  const std::int64_t elements = element_count(dims);
  if (dtype == DType::f4_e2m1 && elements % 2 != 0) refuse("tensor " + quote(name) + " has an odd number of f4_e2m1");
  item.bytes = static_cast<std::uint64_t>(bytes_for(dtype, elements));
  return item;
}

std::vector<Item> sorted(std::vector<Item> items) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return *a.name < *b.name; });
  const auto twin = std::adjacent_find(items.begin(), items.end(), [](const Item& a, const Item& b) { return *a.name == *b.name; });
  if (twin != items.end()) refuse("two tensors are called " + quote(*twin->name));
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.rank > b.rank; });
  return items;
}

std::vector<Item> sorted_items(const NamedTensors& tensors) {
  std::vector<Item> items;
  items.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) refuse("tensor " + quote(name) + " is undefined");
    items.push_back(make_item(name, items.size(), tensor.dtype(), tensor.shape()));
  }
  return sorted(std::move(items));
}

std::vector<Item> sorted_items(const std::vector<PlannedTensor>& tensors) {
  std::vector<Item> items;
  items.reserve(tensors.size());
  for (const PlannedTensor& tensor : tensors) items.push_back(make_item(tensor.name, items.size(), tensor.dtype, tensor.shape));
  return sorted(std::move(items));
}

std::string make_header(const std::vector<Item>& items, const Metadata& metadata) {
  // Put together as text: a tree of a hundred thousand names would be searched for each new one.
  std::string header = "{";
  const auto begin_member = [&](std::string_view key) {
    if (header.size() > 1) header += ",";
    header += json_text(Json(key)) + ":";
  };
  if (!metadata.empty()) {
    Json json = Json::object();
    for (const auto& [key, value] : metadata) json.get_ref<Json::object_t&>().emplace_back(key, value);
    begin_member(metadata_key);
    header += json_text(json);
  }
  std::uint64_t offset = 0;
  for (const Item& item : items) {
    const Json entry{{"dtype", safetensors_types[item.rank].name}, {"shape", item.shape}, {"data_offsets", {offset, offset + item.bytes}}};
    begin_member(*item.name);
    header += json_text(entry);
    offset += item.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > max_safetensors_header)
    refuse("a header of " + std::to_string(header.size()) + " bytes is over the limit of " + std::to_string(max_safetensors_header));
  return header;
}

void write_to(const std::string& header, const std::vector<Item>& items, const std::function<Tensor(std::size_t)>& data, const Sink& sink) {
  std::vector<std::byte> length;
  append_le(length, std::uint64_t{header.size()});
  sink(length);
  sink(as_bytes(header));
  for (const Item& item : items) {
    // One at a time: a copy of a strided tensor lives no longer than it takes to write it.
    const Tensor dense = contiguous(data(item.index), "tensor " + quote(*item.name));
    sink(bytes_of(dense));
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path, Access access) {
  auto file = std::make_shared<const MappedFile>(MappedFile::open(path, access));
  SafetensorsFile opened = from_bytes(file->bytes(), file, path);
  opened.contents_->file = std::move(file);
  return opened;
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string source) {
  const Parts parts = split(bytes, source);
  auto contents = std::make_shared<Contents>();
  SafetensorsHeader header = read_safetensors_header(parts.header, source);
  contents->entries = std::move(header.entries);
  contents->by_name = std::move(header.by_name);
  contents->metadata = std::move(header.metadata);
  check_layout(contents->entries, parts.data.size(), source);
  contents->source = std::move(source);
  contents->owner = std::move(owner);
  contents->data = parts.data;
  SafetensorsFile file;
  file.contents_ = std::move(contents);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const std::vector<SafetensorsEntry>& all = entries();
  const std::vector<std::size_t>& order = contents_->by_name;
  const auto found =
      std::lower_bound(order.begin(), order.end(), name, [&](std::size_t i, std::string_view wanted) { return all[i].name < wanted; });
  return found != order.end() && all[*found].name == name ? &all[*found] : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  if (entry.begin > entry.end || entry.end > contents_->data.size())
    throw Error(ErrorCode::bad_value, "", "", where(source(), entry.name) + ": not an entry of this file");
  return contents_->data.subspan(entry.begin, entry.end - entry.begin);
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry != nullptr) return tensor(*entry);
  std::string message = source() + ": no tensor " + quote(name) + " among its " + std::to_string(entries().size());
  constexpr std::size_t shown = 8;
  for (std::size_t i = 0; i < std::min(shown, entries().size()); ++i) message += (i == 0 ? ": " : ", ") + quote(entries()[i].name);
  if (entries().size() > shown) message += ", ...";
  throw Error(ErrorCode::missing_argument, "", "", message);
}

Tensor SafetensorsFile::tensor(const SafetensorsEntry& entry) const {
  const std::string place = where(source(), entry.name);
  if (!entry.dtype)
    throw Error(ErrorCode::unsupported, "", "", place + ": tensors of dtype " + std::string(entry.dtype_name) + " cannot be read");
  return tensor_over(bytes(entry), contents_->owner, *entry.dtype, to_dims(entry.shape, place), false, place);
}

void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const std::vector<Item> items = sorted_items(tensors);
  const std::string header = make_header(items, metadata);
  AtomicFile file(path);
  write_to(
      header, items, [&](std::size_t i) { return tensors[i].second; }, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

void write_safetensors(AtomicFile& file, const std::vector<PlannedTensor>& tensors, const std::function<Tensor(std::size_t)>& data,
                       const Metadata& metadata) {
  const std::vector<Item> items = sorted_items(tensors);
  const std::string header = make_header(items, metadata);
  const auto checked = [&](std::size_t i) {
    Tensor tensor = data(i);
    if (!tensor.defined() || tensor.dtype() != tensors[i].dtype || !(tensor.shape() == tensors[i].shape))
      refuse("tensor " + quote(tensors[i].name) + " is not of the dtype and shape that were planned");
    return tensor;
  };
  write_to(header, items, checked, [&](std::span<const std::byte> bytes) { file.write(bytes); });
}

std::vector<std::byte> safetensors_bytes(const NamedTensors& tensors, const Metadata& metadata) {
  const std::vector<Item> items = sorted_items(tensors);
  const std::string header = make_header(items, metadata);
  std::vector<std::byte> result;
  write_to(
      header, items, [&](std::size_t i) { return tensors[i].second; }, [&](std::span<const std::byte> bytes) { append(result, bytes); });
  return result;
}

}  // namespace dodona::io
