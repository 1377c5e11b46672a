#include <algorithm>
#include <array>
#include <limits>

#include "core/call_context.h"

namespace dodona {
namespace calls {
namespace {

bool column_major(const Tensor& t) {
  return t.rank() >= 2 && t.transpose(-1, -2).contiguous();
}

void check_layout(const Call& call, int i, const Tensor& tensor) {
  const TensorSpec& spec = call.spec(i);
  const auto strides = [&] { return "has strides " + to_string(tensor.strides()) + " for shape " + to_string(tensor.shape()); };
  if (tensor.elements() == 0) return;
  if (tensor.data() == nullptr) call.fail(ErrorCode::bad_value, spec.name, "has no memory (null pointer)");
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.stride(d) < 0) call.fail(ErrorCode::bad_stride, spec.name, strides() + ", negative strides are not accepted");
  const bool inner_dense = tensor.rank() == 0 || tensor.size(-1) == 1 || tensor.stride(-1) == 1;
  if (spec.layout == Layout::contiguous && !tensor.contiguous())
    call.fail(ErrorCode::bad_stride, spec.name, strides() + ", expected contiguous");
  if (spec.layout == Layout::column_major && !column_major(tensor))
    call.fail(ErrorCode::bad_stride, spec.name,
              strides() + ", expected column-major: the last two dimensions stored transposed, without gaps");
  if ((spec.layout == Layout::rows || is_packed(tensor.dtype())) && spec.layout != Layout::column_major && !inner_dense)
    call.fail(ErrorCode::bad_stride, spec.name, strides() + ", expected an inner stride of 1");

  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  const int natural = std::max(1, bits(tensor.dtype()) / 8);
  const int alignment = std::max(natural, spec.alignment);
  if (address % static_cast<std::uintptr_t>(alignment) != 0)
    call.fail(ErrorCode::bad_alignment, spec.name,
              "begins " + std::to_string(address % static_cast<std::uintptr_t>(alignment)) + " bytes past a multiple of " +
                  std::to_string(alignment) + ", expected " + std::to_string(alignment) + "-byte alignment");
}

/// Sufficient test that no element is addressed twice: sorted by stride, each dimension steps over all smaller ones.
bool self_overlapping(const Tensor& t) {
  // Dimensions of size 1 address nothing: they sort behind all others and are skipped.
  std::array<std::pair<std::int64_t, std::int64_t>, max_rank> dims;
  dims.fill({std::numeric_limits<std::int64_t>::max(), 1});
  for (int d = 0; d < t.rank(); ++d)
    if (t.size(d) > 1) dims[slot(d)] = {t.stride(d), t.size(d)};
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (size == 1) break;
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

}  // namespace

void check_memory(const Call& call, const Fields& fields) {
  for (int i = 0; i < fields.tensor_count; ++i) {
    const Tensor& tensor = *fields.tensors[slot(i)];
    if (!tensor.defined() || fields.stands_in[slot(i)]) continue;
    check_layout(call, i, tensor);
    const TensorSpec& spec = call.spec(i);
    if (spec.direction == Direction::in || !spec.view_of.empty()) continue;
    if (!tensor.writable()) call.fail(ErrorCode::bad_value, spec.name, "is read-only, expected writable memory");
    if (tensor.elements() == 0) continue;
    if (self_overlapping(tensor))
      call.fail(ErrorCode::bad_alias, spec.name,
                "has strides " + to_string(tensor.strides()) + " for shape " + to_string(tensor.shape()) + ": its own elements overlap");
    for (int j = 0; j < fields.tensor_count; ++j) {
      const Tensor& other = *fields.tensors[slot(j)];
      const bool both_written = call.spec(j).direction != Direction::in;
      if (!call.spec(j).view_of.empty() || fields.stands_in[slot(j)]) continue;
      if (j == i || !other.defined() || (both_written && j < i) || !share_memory(tensor, other)) continue;
      const bool allowed = call.compiled().tensors[slot(i)].may_alias == j;
      if (allowed && same_view(tensor, other)) continue;
      call.fail(ErrorCode::bad_alias, spec.name,
                "shares memory with " + call.spec(j).name +
                    (allowed ? ", expected the very same view or separate memory" : ", expected separate memory"));
    }
  }
}

}  // namespace calls

bool share_memory(const Tensor& a, const Tensor& b) {
  const std::int64_t a_bytes = a.extent_bytes(), b_bytes = b.extent_bytes();
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data()), b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  const auto a_end = a_begin + static_cast<std::uintptr_t>(a_bytes), b_end = b_begin + static_cast<std::uintptr_t>(b_bytes);
  if (a_end <= b_begin || b_end <= a_begin) return false;
  if (a.contiguous() && b.contiguous()) return true;
  // The extents overlap, the elements may still interleave (columns of one wider tensor): mark the bytes of one, look up the other's.
  const std::uintptr_t begin = std::max(a_begin, b_begin), end = std::min(a_end, b_end);
  std::vector<bool> touched(static_cast<std::size_t>(end - begin));
  const auto each_byte = [&](const Tensor& t, std::uintptr_t base, auto visit) {
    const std::int64_t count = t.elements();
    const int width = bits(t.dtype());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto first = base + static_cast<std::uintptr_t>(t.offset(i) * width / 8);
      for (std::uintptr_t byte = first; byte < first + static_cast<std::uintptr_t>(std::max(1, width / 8)); ++byte)
        if (byte >= begin && byte < end && visit(static_cast<std::size_t>(byte - begin))) return true;
    }
    return false;
  };
  each_byte(a, a_begin, [&](std::size_t byte) {
    touched[byte] = true;
    return false;
  });
  return each_byte(b, b_begin, [&](std::size_t byte) { return touched[byte]; });
}

}  // namespace dodona
