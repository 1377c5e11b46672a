// Faults inside of what many kernels share: golden mode makes them wherever it meets such a function, so that an op needs no code of its
// own.
#include <algorithm>
#include <array>
#include <string>

#include "core/flaw.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool meets(Site s, Inner inner) {
  return (s.call.golden.inner & static_cast<unsigned>(inner)) != 0;
}
bool has_sigmoid(Site s) {
  return meets(s, Inner::sigmoid);
}
bool has_softmax(Site s) {
  return meets(s, Inner::softmax);
}
bool has_attention(Site s) {
  return meets(s, Inner::attention);
}
bool has_sinks(Site s) {
  return meets(s, Inner::sinks);
}
bool has_window(Site s) {
  return meets(s, Inner::window);
}

void sigmoid_from_tanh(Site, Flaw& flaw) {
  flaw.sigmoid_from_tanh = true;
}
void exponentials_unshifted(Site, Flaw& flaw) {
  flaw.exponentials_unshifted = true;
}

// ---- numbers of attention

/// Keys after which kernels bring their sums to a new maximum; all: behind the largest score of all.
constexpr std::array<std::int64_t, 4> tiles{64, 128, 32, 16};
constexpr std::int64_t all_keys = std::int64_t{1} << 40;

/// `bf16,64`, or `bf16,64,weights`: weights are rounded for their products, as the contract has it.
NarrowAttention narrow_of(Site s, NarrowAttention::What what) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::size_t comma = text.find(','), second = text.find(',', comma + 1);
  const std::string tile = text.substr(comma + 1, second == std::string::npos ? second : second - comma - 1);
  return {what, *parse_dtype(text.substr(0, comma)), tile == "all" ? all_keys : std::stoll(tile), second != std::string::npos};
}
std::string words_of(std::int64_t tile) {
  return tile == 1 ? "every key" : "every " + std::to_string(tile) + " keys";
}

Values narrow_sums(Site) {
  Values values;
  for (const char* const type : {"f16", "bf16"}) {
    for (const std::int64_t tile : tiles)
      for (const char* const weights : {",weights", ""}) values.emplace_back(type + ("," + std::to_string(tile)) + weights);
    values.emplace_back(type + std::string(",1"));
  }
  return values;
}
void keep_sums_narrow(Site s, Flaw& flaw) {
  flaw.attention = narrow_of(s, NarrowAttention::What::sums);
}
std::string sums_in_words(Site s) {
  const NarrowAttention narrow = narrow_of(s, NarrowAttention::What::sums);
  return "the sums of weighted values are kept in " + std::string(name(narrow.type)) + ": rounded after " + words_of(narrow.tile);
}

Values narrow_weight_sums(Site) {
  Values values;
  for (const char* const type : {"f16", "bf16"})
    for (const std::int64_t tile : {std::int64_t{64}, std::int64_t{128}, std::int64_t{1}})
      values.emplace_back(type + ("," + std::to_string(tile)));
  return values;
}
void keep_weight_sum_narrow(Site s, Flaw& flaw) {
  flaw.attention = narrow_of(s, NarrowAttention::What::weight_sum);
}
std::string weight_sum_in_words(Site s) {
  const NarrowAttention narrow = narrow_of(s, NarrowAttention::What::weight_sum);
  return "the sum of exponentials is kept in " + std::string(name(narrow.type)) + ": rounded after " + words_of(narrow.tile);
}

int mantissa_bits(DType type) {
  switch (type) {
    case DType::f32: return 24;
    case DType::f16: return 11;
    case DType::bf16: return 8;
    case DType::f8_e4m3: return 4;
    default: return 0;
  }
}
/// Types with fewer bits than the narrowest of keys and values, whose type weights have for their products.
Values narrower_weights(Site s) {
  int least = 24;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        spec.direction == Direction::in && spec.role == Role::values && tensor != nullptr && tensor->defined())
      if (const int bits_of = mantissa_bits(tensor->dtype()); bits_of > 0) least = std::min(least, bits_of);
  Values values;
  for (const DType type : {DType::f16, DType::bf16, DType::f8_e4m3})
    for (const char* const tile : {",64", ",all"})
      if (mantissa_bits(type) < least) values.emplace_back(std::string(name(type)) + tile);
  return values;
}
void round_weights(Site s, Flaw& flaw) {
  flaw.attention = narrow_of(s, NarrowAttention::What::weights);
}
std::string weights_in_words(Site s) {
  const NarrowAttention narrow = narrow_of(s, NarrowAttention::What::weights);
  return "the weights of keys are rounded to " + std::string(name(narrow.type)) + " before they multiply values, " +
         (narrow.tile == all_keys ? "the largest of all being 1" : "the largest so far being 1");
}

void leave_undivided(Site, Flaw& flaw) {
  flaw.attention = NarrowAttention{.what = NarrowAttention::What::undivided, .tile = all_keys};
}

// ---- terms of the sum of the weights

using Sink = AttentionTerms::Sink;

void hide_last_key(Site, Flaw& flaw) {
  flaw.terms.last_key_hidden = true;
}

Values mistaken_sinks(Site) {
  return {std::string("twice"), std::string("scaled")};
}
void mistake_sinks(Site s, Flaw& flaw) {
  flaw.terms.sink = std::get<std::string>(*s.taken) == "twice" ? Sink::twice : Sink::scaled;
}
std::string sinks_in_words(Site s) {
  return std::get<std::string>(*s.taken) == "twice"
             ? "the sum of the weights has the term of the sink twice: two splits, or a split and the merge, add it"
             : "the sink is multiplied with the scale of the scores, though it is a score already";
}

bool has_cap(Site s) {
  const AttrValue* const cap = s.call.inputs.find_attr("logit_cap");
  if (cap == nullptr) return false;
  if (const auto* const whole = std::get_if<std::int64_t>(cap)) return *whole != 0;
  return std::holds_alternative<double>(*cap) && std::get<double>(*cap) != 0;
}
/// `3`: terms; `tile 64`: what fills tiles; `cap 64`: likewise, with a cap's score.
constexpr std::array<std::int64_t, 5> filled_tiles{64, 128, 32, 16, 256};
Values empty_terms(Site s) {
  Values values;
  for (const std::int64_t tile : filled_tiles) values.emplace_back("tile " + std::to_string(tile));
  for (const std::int64_t tile : filled_tiles)
    if (has_cap(s)) values.emplace_back("cap " + std::to_string(tile));
  for (int terms = 1; terms <= 8; ++terms) values.emplace_back(std::to_string(terms));
  for (const int splits : {2, 4, 8, 16, 32})
    for (const char* const unit : {" 1", " 32"}) values.emplace_back("splits " + std::to_string(splits) + unit);
  return values;
}
void add_empty_terms(Site s, Flaw& flaw) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::size_t space = text.find(' ');
  if (text.starts_with("splits ")) {
    flaw.terms.splits = std::stoll(rest_of(text)), flaw.terms.split_unit = std::stoll(rest_of(rest_of(text)));
    return;
  }
  (space != std::string::npos ? flaw.terms.tile : flaw.terms.empty) = std::stoll(text.substr(space + 1));
  flaw.terms.empty_capped = text.starts_with("cap ");
}
std::string empty_in_words(Site s) {
  const auto& text = std::get<std::string>(*s.taken);
  if (text.starts_with("cap "))
    return "the cap is applied behind the mask: what fills the last tile of " + text.substr(4) +
           " keys is no key, and counts with a score of -cap";
  if (text.starts_with("tile "))
    return "keys behind the end count with a score of 0: the last tile of " + text.substr(5) + " is not masked, and holds zeros";
  if (text.starts_with("splits "))
    return "the sum of the weights has a term of a score of 0 for each of a request's " + first_of(rest_of(text)) +
           " splits that has no key: empty splits are merged all the same";
  return "the sum of the weights has " + text + (text == "1" ? " term" : " terms") + " of a score of 0 too: of splits without keys";
}

// ---- keys that are hidden

/// What kernels take for minus infinity, and 0: the mask is a factor, or is forgotten where scores are made. With a cap, that behind it.
Values hidden_scores(Site s) {
  if (has_cap(s)) return {std::string("cap")};
  return {-1e4, -3e4, -5e4, -65504.0, -1e5, -1e6, -1e9, 0.0};
}
void count_hidden(Site s, Flaw& flaw) {
  flaw.terms.hidden_count = true;
  if (const auto* const score = std::get_if<double>(&*s.taken)) flaw.terms.hidden_score = *score;
}
std::string hidden_in_words(Site s) {
  if (std::holds_alternative<std::string>(*s.taken))
    return "the cap is applied behind the mask: keys that are hidden from a query count with a score of -cap";
  if (std::get<double>(*s.taken) == 0) return "keys that are hidden from a query, masked, count with a score of 0: the mask is a factor";
  return "keys that are hidden from a query, masked, count with a finite score, such as " + to_string(*s.taken) +
         ": where others lie below it they win";
}

// ---- windows

Values tiles_of_windows(Site) {
  Values values;
  for (const std::int64_t tile : tiles)
    for (const std::int64_t sign : {1, -1}) values.emplace_back(sign * tile);
  return values;
}
void begin_windows_with_tiles(Site s, Flaw& flaw) {
  flaw.window_tile = std::get<std::int64_t>(*s.taken);
}
std::string windows_in_words(Site s) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  return tile > 0 ? "a window begins with a whole tile of " + std::to_string(tile) + " keys: the tile that its first key is in is left out"
                  : "a window begins with the tile of " + std::to_string(-tile) + " keys that its first key is in: keys before it are seen";
}

constexpr std::array table{
    Fault{.id = "sigmoid-from-tanh",
          .summary = "sigmoids are made of the approximate tanh, (tanh(x/2) + 1)/2, which knows eleven bits",
          .strikes = call,
          .severity = fine,
          .applies = has_sigmoid,
          .variant = true,
          .flaw = sigmoid_from_tanh},
    Fault{.id = "exponentials-unshifted",
          .summary = "scores are not shifted by their row's maximum before exp, which overflows, or by one that begins at 0: what lies far "
                     "below 0 vanishes",
          .strikes = call,
          .severity = fine,
          .applies = has_softmax,
          .reads_beyond = true,
          .flaw = exponentials_unshifted},
    Fault{.id = "attention-undivided",
          .summary = "sums of weighted values are not divided by the sum of their weights",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .flaw = leave_undivided},
    Fault{.id = "attention-sums-narrow",
          .summary = "attention keeps the sums of weighted values in 16 bits, tile by tile of keys",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = narrow_sums,
          .words = sums_in_words,
          .flaw = keep_sums_narrow},
    Fault{.id = "attention-weight-sum-narrow",
          .summary = "attention keeps the sum of exponentials in 16 bits, tile by tile of keys",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = narrow_weight_sums,
          .words = weight_sum_in_words,
          .flaw = keep_weight_sum_narrow},
    Fault{.id = "attention-weights-narrow",
          .summary = "attention rounds the weights of keys to a narrower type than that of the values",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = narrower_weights,
          .words = weights_in_words,
          .flaw = round_weights},
    Fault{.id = "last-key-hidden",
          .summary = "each query misses the last of the keys that it should see, its own or the newest",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .flaw = hide_last_key},
    Fault{.id = "sinks-mistaken",
          .summary = "the term of the sink is in the sum of the weights twice, or scaled as scores are",
          .strikes = call,
          .severity = fine,
          .applies = has_sinks,
          .variants = mistaken_sinks,
          .words = sinks_in_words,
          .flaw = mistake_sinks},
    Fault{.id = "window-of-whole-tiles",
          .summary = "a window of keys begins with a whole tile: the one that its first key is in is left out, or seen whole",
          .strikes = call,
          .severity = fine,
          .applies = has_window,
          .variants = tiles_of_windows,
          .words = windows_in_words,
          .flaw = begin_windows_with_tiles},
    Fault{.id = "empty-terms",
          .summary = "the sum of the weights has terms of a score of 0 that belong to no key: what fills a tile, splits without keys",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = empty_terms,
          .words = empty_in_words,
          .flaw = add_empty_terms},
};

constexpr std::array hidden_table{
    Fault{.id = "hidden-keys-count",
          .summary = "keys that a query does not see count with a finite score",
          .strikes = call,
          .severity = fine,
          .applies = has_attention,
          .variants = hidden_scores,
          .words = hidden_in_words,
          .flaw = count_hidden},
};

}  // namespace

std::span<const Fault> inner_faults() {
  return table;
}

std::span<const Fault> hidden_faults() {
  return hidden_table;
}

}  // namespace dodona::oracle
