#include "capi/translate.h"

#include <algorithm>

#include "capi/guard.h"
#include "core/case_line.h"
#include "dodona/error.h"

namespace dodona::capi {
namespace {

static_assert(DODONA_F64 == static_cast<int>(DType::f64) && DODONA_F4_E2M1 == static_cast<int>(DType::f4_e2m1) &&
                  DODONA_BOOL == static_cast<int>(DType::boolean),
              "element types are numbered alike");
static_assert(DODONA_MAX_RANK == max_rank);
static_assert(DODONA_HOPPER == static_cast<int>(Mode::hopper) && DODONA_AMPERE == static_cast<int>(Mode::ampere));

/// NumPy's array interface, version 3.
struct ArrayInterface {
  int two, rank;
  char kind;
  int item_size, flags;
  const std::ptrdiff_t *shape, *strides;
  void* data;
};
constexpr int array_writable = 0x400;

/// The most elements that a call may name: sums over a whole tensor stay far from overflow.
constexpr std::size_t most_arguments = 1024;

void check_list(const void* list, std::size_t count, const char* what) {
  if (count > most_arguments) bad_call(std::string(what) + " are " + std::to_string(count) + ", which cannot be");
  if (count > 0) required(static_cast<const char*>(list), what);
}

/// An address for tensors without elements: rows of none are counted off it too, and null plus something is no address.
void* or_any(void* data, const Dims& shape) {
  alignas(64) static std::byte nothing[64];
  return data == nullptr && element_count(shape) == 0 ? nothing : data;
}

Tensor over_memory(const dodona_tensor& t, DType dtype) {
  if (t.rank < 0 || t.rank > max_rank)
    throw Error(ErrorCode::bad_shape, "", "", "has rank " + std::to_string(t.rank) + ", expected 0 to " + std::to_string(max_rank));
  Dims shape, strides;
  for (int i = 0; i < t.rank; ++i) shape.push_back(t.shape[i]);
  if ((t.flags & DODONA_STRIDED) != 0) {
    for (int i = 0; i < t.rank; ++i) strides.push_back(t.strides[i]);
  } else {
    strides = contiguous_strides(shape);
  }
  return {{}, or_any(t.data, shape), dtype, shape, strides, (t.flags & DODONA_READ_ONLY) == 0};
}

Tensor over_array(const dodona_tensor& t, DType dtype) {
  const auto& array = required(static_cast<const ArrayInterface*>(t.data), "an array interface");
  if (array.two != 2) bad_call("an array interface begins with " + std::to_string(array.two) + ", expected 2");
  const int width = bits(dtype) / 8;
  if (width != array.item_size)
    throw Error(ErrorCode::bad_dtype, "", "",
                "has elements of " + std::to_string(array.item_size) + " bytes, which " + std::string(name(dtype)) + " has not");
  if (array.rank > max_rank)
    throw Error(ErrorCode::bad_shape, "", "", "has rank " + std::to_string(array.rank) + ", expected at most " + std::to_string(max_rank));
  Dims shape, strides;
  for (int i = 0; i < array.rank; ++i) {
    shape.push_back(array.shape[i]);
    if (array.shape[i] > 1 && array.strides[i] % width != 0)
      throw Error(ErrorCode::bad_stride, "", "",
                  "has a stride of " + std::to_string(array.strides[i]) + " bytes, no multiple of its elements' " + std::to_string(width));
    strides.push_back(array.strides[i] / width);
  }
  return {{}, or_any(array.data, shape), dtype, shape, strides, (array.flags & array_writable) != 0};
}

/// The value as the schema's attribute wants it. Words stay words; binding refuses what does not fit.
AttrValue to_value(const AttrSpec* spec, const dodona_attr& attr) {
  if (attr.text != nullptr) return parse_attr_value(attr.text, spec);
  if (spec != nullptr && std::holds_alternative<bool>(spec->default_value) && (attr.number == 0 || attr.number == 1))
    return attr.number != 0;
  return attr.number;
}

}  // namespace

std::pair<std::string, Tensor> to_tensor(std::string_view op, const dodona_tensor& tensor) {
  const std::string argument = &required(tensor.name, "the name of a tensor");
  try {
    if (tensor.dtype < 0 || tensor.dtype >= dtype_count)
      throw Error(ErrorCode::bad_dtype, "", "", "has dtype " + std::to_string(tensor.dtype) + ", which is none");
    const auto dtype = static_cast<DType>(tensor.dtype);
    Tensor view = (tensor.flags & DODONA_ARRAY_INTERFACE) != 0 ? over_array(tensor, dtype) : over_memory(tensor, dtype);
    if (view.data() == nullptr && view.elements() > 0) throw Error(ErrorCode::bad_value, "", "", "has no memory (null pointer)");
    return {argument, std::move(view)};
  } catch (const Error& error) {
    throw Error(error.code(), std::string(op), argument, error.message());
  }
}

std::vector<std::pair<std::string, Tensor>> to_tensors(std::string_view op, const dodona_tensor* tensors, std::size_t count) {
  check_list(tensors, count, "tensors");
  std::vector<std::pair<std::string, Tensor>> result;
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back(to_tensor(op, tensors[i]));
    const std::string& name = result.back().first;
    if (std::any_of(result.begin(), result.end() - 1, [&](const auto& other) { return other.first == name; }))
      throw Error(ErrorCode::unknown_argument, std::string(op), name, "is given twice");
  }
  return result;
}

Arguments to_arguments(const Op& op, const dodona_tensor* tensors, std::size_t tensor_count, const dodona_attr* attrs,
                       std::size_t attr_count) {
  Arguments arguments;
  arguments.tensors = to_tensors(op.name(), tensors, tensor_count);
  check_list(attrs, attr_count, "attributes");
  for (std::size_t i = 0; i < attr_count; ++i) {
    const std::string name = &required(attrs[i].name, "the name of an attribute");
    if (arguments.find_attr(name) != nullptr) throw Error(ErrorCode::unknown_argument, std::string(op.name()), name, "is given twice");
    arguments.set_attr(name, to_value(op.schema().find_attr(name), attrs[i]));
  }
  return arguments;
}

Exec to_exec(const dodona_exec* given, Mode mode) {
  // Scratch memory stays with the thread from call to call, and goes with it.
  thread_local const ScratchPool scratch;
  Exec exec{.mode = mode, .scratch = scratch};
  if (given == nullptr) return exec;
  if (given->mode < DODONA_FAST || given->mode > DODONA_AMPERE) bad_call("mode " + std::to_string(given->mode) + " is none");
  constexpr int most_threads = 4096;
  if (given->threads < 0 || given->threads > most_threads)
    bad_call("threads are " + std::to_string(given->threads) + ", expected 0 to " + std::to_string(most_threads));
  exec.mode = static_cast<Mode>(given->mode);
  if (given->threads > 0) exec.threads = given->threads;
  if (given->isa == nullptr) return exec;
  const auto isa = parse_isa(given->isa);
  const auto& available = available_isas();
  if (!isa || std::find(available.begin(), available.end(), *isa) == available.end())
    throw Error(ErrorCode::bad_option, "", "isa", "'" + std::string(given->isa) + "' cannot run here");
  exec.isa = *isa;
  return exec;
}

dodona_tensor describe(const std::string& name, const Tensor& tensor) {
  dodona_tensor view{};
  view.name = name.c_str();
  view.data = tensor.data();
  view.dtype = static_cast<int>(tensor.dtype());
  view.rank = tensor.rank();
  for (int i = 0; i < tensor.rank(); ++i) {
    view.shape[i] = tensor.shape()[i];
    view.strides[i] = tensor.strides()[i];
  }
  view.flags = (tensor.contiguous() ? 0 : DODONA_STRIDED) | (tensor.writable() ? 0 : DODONA_READ_ONLY);
  return view;
}

}  // namespace dodona::capi

std::size_t dodona_tensors_count(const dodona_tensors* tensors) {
  return tensors == nullptr ? 0 : tensors->list.size();
}

int dodona_tensors_get(const dodona_tensors* tensors, std::size_t index, dodona_tensor* view) {
  return dodona::capi::guarded([&] {
    const auto& list = dodona::capi::required(tensors, "tensors").list;
    auto& target = dodona::capi::required(view, "view");
    if (index >= list.size())
      dodona::capi::bad_call("tensor " + std::to_string(index) + " is asked for, of " + std::to_string(list.size()));
    target = dodona::capi::describe(list[index].first, list[index].second);
  });
}

void dodona_tensors_free(dodona_tensors* tensors) {
  delete tensors;
}
