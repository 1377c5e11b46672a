#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/rotation/rotate.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

void check(const ApplyRopeWithCosSinCacheInplace& op) {
  check_table(op.cos_sin_cache, op.head_size);
  const std::pair<const char*, const Tensor*> fused[] = {
      {"value", &op.value}, {"k_buffer", &op.k_buffer}, {"v_buffer", &op.v_buffer}, {"cache_loc", &op.cache_loc}};
  const char* given = nullptr;
  const char* missing = nullptr;
  for (const auto& [name, tensor] : fused) (tensor->defined() ? given : missing) = name;
  // Recordings write which tensors upstream's bundle held.
  if (const std::string& bundle = op.fused_set_kv_buffer_arg; !bundle.empty() && bundle != "value,k_buffer,v_buffer,cache_loc")
    throw Error(ErrorCode::bad_value, "", "fused_set_kv_buffer_arg",
                "is '" + bundle + "', expected nothing, or 'value,k_buffer,v_buffer,cache_loc' with these four tensors");
  if (!op.fused_set_kv_buffer_arg.empty()) given = "fused_set_kv_buffer_arg";
  if (given != nullptr && missing != nullptr)
    throw Error(ErrorCode::missing_argument, "", missing,
                "is missing: value, k_buffer, v_buffer and cache_loc come together, and " + std::string(given) + " is given");
}

Rotation rotation_of(const ApplyRopeWithCosSinCacheInplace& op) {
  return {.query = op.query,
          .key = op.key,
          .positions = op.positions,
          .table = op.cos_sin_cache,
          .head_size = op.head_size,
          .neox = op.is_neox,
          .rounding = RotaryRounding::once};
}

/// Where two tokens name one row, the later one wins, whatever the number of threads: a task is one head, and takes the tokens in order.
void store_rows(const ApplyRopeWithCosSinCacheInplace& op, const Exec& exec) {
  if (!op.cache_loc.defined()) return;
  const Heads sources[] = {heads_of(op.key, 1, op.head_size), heads_of(op.value, 1, op.head_size)};
  const Heads targets[] = {heads_of(op.k_buffer, 1, op.head_size), heads_of(op.v_buffer, 1, op.head_size)};
  const std::int64_t tokens = op.cache_loc.size(0), key_heads = sources[0].count;
  const std::int64_t* const rows = op.cache_loc.as<std::int64_t>();
  const auto bytes = static_cast<std::size_t>(bytes_for(op.key.dtype(), op.head_size));
  parallel_for(exec.threads, key_heads + sources[1].count, static_cast<double>(tokens * op.head_size), [&](std::int64_t task) {
    const int which = task < key_heads ? 0 : 1;
    const std::int64_t h = task - which * key_heads;
    for (std::int64_t t = 0; t < tokens; ++t) std::memcpy(targets[which].head(rows[t], h), sources[which].head(t, h), bytes);
  });
}

bool has_a_kernel_of_its_own(std::int64_t head_size) {
  return head_size == 64 || head_size == 128 || head_size == 256 || head_size == 512;
}

/// The kernel widens what it does not rotate and narrows it again, which makes one NaN of all. The one that quantizes too multiplies
/// by its scale of 1 in between, which flushes denormals.
void through_f32(DType type, std::byte* data, std::int64_t n, bool multiplied = false) {
  std::vector<float> x(static_cast<std::size_t>(n));
  quant::to_f32(type, data, x.data(), n);
  if (multiplied)
    for (float& value : x) value = quant::hopper::ftz(value);
  quant::from_f32(type, x.data(), data, n);
}

void widen_and_narrow(const ApplyRopeWithCosSinCacheInplace& op, const Exec& exec) {
  const DType type = op.query.dtype();
  const std::int64_t tokens = op.positions.elements(), rotated = op.cos_sin_cache.size(1), rest = op.head_size - rotated;
  const bool multiplied = op.head_size % 8 == 0 && !has_a_kernel_of_its_own(op.head_size);
  for (const Tensor* tensor : {&op.query, &op.key}) {
    const Heads heads = heads_of(*tensor, 1, op.head_size);
    if (rest == 0) continue;
    parallel_for(exec.threads, tokens, static_cast<double>(heads.count * rest), [&](std::int64_t t) {
      for (std::int64_t h = 0; h < heads.count; ++h) through_f32(type, heads.head(t, h) + rotated * bits(type) / 8, rest, multiplied);
    });
  }
}

void widen_and_narrow_stored(const ApplyRopeWithCosSinCacheInplace& op) {
  if (!op.cache_loc.defined()) return;
  const Heads stored = heads_of(op.v_buffer, 1, op.head_size);
  for (std::int64_t t = 0; t < op.cache_loc.size(0); ++t)
    for (std::int64_t h = 0; h < stored.count; ++h)
      through_f32(op.key.dtype(), stored.head(op.cache_loc.as<std::int64_t>()[t], h), op.head_size);
}

/// Buffer rows are judged as what they were copied from. Rows that several tokens name are left to a race by upstream's kernel: open.
void record_rows(const ApplyRopeWithCosSinCacheInplace& op, Reference* reference) {
  if (reference == nullptr || !op.cache_loc.defined()) return;
  record_exact(op.k_buffer, reference, "k_buffer");
  record_exact(op.v_buffer, reference, "v_buffer");
  const GoldenOutput k_out(op.k_buffer, reference, "k_buffer"), v_out(op.v_buffer, reference, "v_buffer");
  k_out.make_open();
  v_out.make_open();
  const std::int64_t tokens = op.cache_loc.size(0), slots = op.k_buffer.size(0);
  if (tokens == 0) return;
  const std::int64_t key_width = op.key.elements() / tokens, value_width = op.value.elements() / tokens;
  const ReferenceOutput& key = *reference->find("key");
  ReferenceOutput& k_record = reference->output("k_buffer", op.k_buffer.elements());
  ReferenceOutput& v_record = reference->output("v_buffer", op.v_buffer.elements());
  std::vector<std::uint8_t> named(static_cast<std::size_t>(slots));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = op.cache_loc.as<std::int64_t>()[t];
    const bool again = named[static_cast<std::size_t>(slot)] != 0;
    named[static_cast<std::size_t>(slot)] = 1;
    for (std::int64_t i = 0; i < key_width; ++i) {
      const auto to = static_cast<std::size_t>(slot * key_width + i), from = static_cast<std::size_t>(t * key_width + i);
      k_record.exact[to] = key.exact[from];
      k_record.slack[to] = key.slack[from];
      k_record.unspecified[to] = again ? std::uint8_t{1} : key.unspecified[from];
    }
    for (std::int64_t i = 0; i < value_width && again; ++i) v_record.unspecified[static_cast<std::size_t>(slot * value_width + i)] = 1;
  }
}

/// Kernels that widen whole heads may flush denormals that they do not rotate.
void let_denormals_be_flushed(const ApplyRopeWithCosSinCacheInplace& op, Reference* reference) {
  if (reference == nullptr) return;
  for (const auto& [name, tensor] : {std::pair<const char*, const Tensor*>{"query", &op.query}, {"key", &op.key}}) {
    ReferenceOutput& record = reference->output(name, tensor->elements());
    for (std::size_t i = 0; i < record.exact.size(); ++i)
      if (record.slack[i] == 0 && may_flush(record.exact[i])) record.slack[i] = std::fabs(record.exact[i]);
  }
}

void golden(const ApplyRopeWithCosSinCacheInplace& op, const Exec& exec, Reference* reference) {
  rotate_golden(rotation_of(op), exec, reference);
  let_denormals_be_flushed(op, reference);
  store_rows(op, exec);
  record_rows(op, reference);
}

void fast(const ApplyRopeWithCosSinCacheInplace& op, const Exec& exec) {
  rotate_fast(rotation_of(op), exec);
  store_rows(op, exec);
}

void hopper(const ApplyRopeWithCosSinCacheInplace& op, const Exec& exec) {
  rotate_hopper(rotation_of(op), FusedProduct::own, exec);
  widen_and_narrow(op, exec);
  store_rows(op, exec);
  widen_and_narrow_stored(op);
}

/// A thread of upstream's kernels has so many neighbours, and looks for their partners R/2 away all at once. Other heads than those that
/// the first kernel takes go, in later releases, to the one that quantizes them too.
std::int64_t neighbours(const ApplyRopeWithCosSinCacheInplace& op) {
  const std::int64_t bytes = bits(op.query.dtype()) / 8;
  return has_a_kernel_of_its_own(op.head_size) ? std::max<std::int64_t>(16 / bytes, op.head_size / 32) : 32 / bytes;
}

bool partners_lie_apart(const ApplyRopeWithCosSinCacheInplace& op) {
  if (op.head_size % 8 != 0) return false;
  const std::int64_t rotated = op.cos_sin_cache.size(1), together = neighbours(op);
  return (op.is_neox && rotated / 2 % together != 0) || (!has_a_kernel_of_its_own(op.head_size) && rotated % together != 0);
}

/// Threads of one head that lie in two warps may write before their partners read.
bool lies_in_two_warps(const ApplyRopeWithCosSinCacheInplace& op) {
  if (!op.is_neox || has_a_kernel_of_its_own(op.head_size) || op.head_size % 8 != 0) return false;
  return 32 % std::max<std::int64_t>(1, op.cos_sin_cache.size(1) / neighbours(op)) != 0;
}

/// Neighbours are loaded in units of 16 bytes: where R/2 is not made of those the kernel stops at a misaligned address, and leaves nothing
/// to be explained.
bool partners_can_be_loaded(const ApplyRopeWithCosSinCacheInplace& op) {
  return !op.is_neox || op.cos_sin_cache.size(1) / 2 * (bits(op.query.dtype()) / 8) % 16 == 0;
}

/// Of the neighbours about R/2 those from R/2 on take the wrong partners; the last of those that rotate may reach beyond R. In these places
/// any number passes: what the call wrote in place is not among the arguments, which are those before it; and which thread of a race is
/// first nobody says.
bool explains_partners(const ApplyRopeWithCosSinCacheInplace& actual, std::string_view output, std::int64_t linear) {
  if ((output != "query" && output != "key") || !partners_can_be_loaded(actual)) return false;
  const std::int64_t rotated = actual.cos_sin_cache.size(1), half = rotated / 2, together = neighbours(actual),
                     i = linear % actual.head_size;
  if (lies_in_two_warps(actual) && i < quant::align(rotated, together)) return true;
  if (!partners_lie_apart(actual)) return false;
  const bool about_half = actual.is_neox && i >= half && i < quant::align(half, together);
  return about_half || (i >= rotated && i < quant::align(rotated, together));
}

std::optional<Refusal> unsupported(const ApplyRopeWithCosSinCacheInplace& op, Mode mode) {
  if (mode != Mode::hopper || !(partners_lie_apart(op) || lies_in_two_warps(op))) return {};
  return Refusal{"cos_sin_cache", "has R = " + std::to_string(op.cos_sin_cache.size(1)) + " for heads of " + std::to_string(op.head_size) +
                                      ": the H200's kernel takes other partners there, or races for them (see known upstream defects)"};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_apply_rope_with_cos_sin_cache_inplace() {
  return define<ops::ApplyRopeWithCosSinCacheInplace>({
      .contract = R"(
With c, s the fp32 cosine and sine of the pair at the token's position: first*c - second*s and second*c + first*s, elements
widened to fp32, products and sum in fp32, one rounding to the type (nearest even). Either product may be fused with the sum.
Elements from R on (denormal ones may be flushed), and buffer rows that cache_loc does not name, keep their bits; buffer rows that
it names are copies of the rotated key and of the value. A row that several tokens name takes any of them (here the last) and is not judged. Budget, per
element: what rounding the two products to fp32 changes; for 16-bit types half a unit of the fp32 sum, unless all of this is
exact (so c = 1, s = 0 returns the element); what flushed denormals carry. A product that overflows fp32 leaves the element
open. Hopper mode: NaN that are not rotated, and those of stored values, leave as 7fff: the kernel widens and narrows
whole heads; denormals of heads but those of 64, 128, 256 and 512 are flushed there.)",
      .contract_version = 4,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .bytes_read =
          [](const ops::ApplyRopeWithCosSinCacheInplace& op) {
            return ops::rope_bytes_read(op.positions, op.query, op.key, op.cos_sin_cache);
          },
      .defects =
          {{"partners-of-a-neighbour", "query",
            "is_neox and R/2 not a multiple of a thread's max(16 bytes, head_size / 32) elements (heads of 512, R = 16; later releases "
            "of FlashInfer: 32 bytes of heads but those of 64, 128, 256 and 512, as 80 and 96): the kernel decides for all of them at "
            "once on which side their partners lie, and takes some from beyond R; of such heads R itself must be a multiple too, or "
            "what lies behind it is rotated, and threads of one head that lie in two warps (R = 80, 96) race in place. Explained are the "
            "neighbours from R/2 on, those from R on, and in a race all, where R/2 is made of whole units of 16 bytes (elsewhere the "
            "kernel "
            "stops at a misaligned address); any number passes there, for a race has no order",
            ops::explains_partners}},
      .customary = {{"*", CustomaryKind::close, 1e-2, 1e-2, "sgl-kernel/tests/test_rotary_embedding.py (bf16)"}},
      .cases = {"T=4 P=512 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false", "T=5 P=256 R=64 Nq=16 Nk=4 --attr head_size=64",
                "T=3 P=128 R=64 Nq=8 Nk=2 --attr head_size=128 --attr is_neox=false --dtype query=f16",
                "T=3 P=128 R=64 Nq=4 Nk=1 --attr head_size=64 --dtype query=f32",
                "T=3 P=64 R=22 Nq=3 Nk=2 --attr head_size=23 --attr is_neox=false --dtype positions=i32 --dist edge",
                "T=4 P=128 R=64 Nq=8 Nk=2 Nv=2 S=9 --attr head_size=64"},
      .bench_cases = {"T=1 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false",
                      "T=512 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false",
                      "T=4096 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64 --attr is_neox=false",
                      "T=512 P=163840 R=64 Nq=128 Nk=1 --attr head_size=64"},
  });
}
}  // namespace dodona
