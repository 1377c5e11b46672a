// Calls by name through the C interface: a right call of some op, spoilt by what the input says.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dodona/c.h"
#include "io/json.h"
#include "oracle/cases/generate.h"
#include "tests/fuzz/target.h"

namespace dodona::fuzz {
namespace {

/// Choices out of the input; zeros when it is used up.
class Choices {
 public:
  explicit Choices(Bytes input) : left_(input) {}
  template <class T>
  T take() {
    T value{};
    const std::size_t bytes = std::min(sizeof value, left_.size());
    std::memcpy(&value, left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return value;
  }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : take<std::uint8_t>() % n; }
  bool empty() const { return left_.empty(); }

 private:
  Bytes left_;
};

/// The memory of a call's tensors.
using Memory = std::vector<std::vector<std::byte>>;

constexpr std::size_t most_bytes = 1 << 18;

/// Bytes from the first element to the end of the last one; more than most_bytes for what would be too much, and for negative strides,
/// whose first element would lie inside.
std::size_t extent_of(const dodona_tensor& t) {
  if (t.rank < 0 || t.rank > DODONA_MAX_RANK) return 0;
  std::size_t last = 1;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] <= 0) return 0;
    if ((t.flags & DODONA_STRIDED) != 0 && t.strides[d] < 0) return most_bytes + 1;
  }
  std::size_t dense = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    const auto size = static_cast<std::size_t>(t.shape[d]);
    const std::size_t stride = (t.flags & DODONA_STRIDED) != 0 ? static_cast<std::size_t>(t.strides[d]) : dense;
    if (size > most_bytes || stride > most_bytes || dense > most_bytes) return most_bytes + 1;
    last += (size - 1) * stride;
    dense *= size;
  }
  return std::min(last * sizeof(double), most_bytes + 1);
}

struct Line {
  const Op* op;
  Arguments arguments;
};

/// Small calls that are right: every op's own case lines of few elements.
const std::vector<Line>& small_lines() {
  static const std::vector<Line> lines = [] {
    std::vector<Line> found;
    for (const auto& op : registry().all())
      for (const std::string& rest : op->cases()) {
        const CaseLine line = parse_case_line(std::string(op->name()) + " " + rest);
        std::int64_t elements = 0;
        for (const oracle::InputPlan& input : oracle::plan_inputs(line)) elements += element_count(input.shape);
        if (elements <= 1 << 14) found.push_back({op.get(), oracle::generate(line)});
      }
    return found;
  }();
  return lines;
}

/// A right call, as C has it.
struct Call {
  std::vector<dodona_tensor> tensors;
  std::vector<dodona_attr> attrs;
  std::vector<std::string> words;  // of attributes
  Memory memory;
};

Call right_call(const Op& op, const Arguments& arguments) {
  Call call;
  for (const auto& [name, tensor] : arguments.tensors) {
    dodona_tensor t{};
    t.name = op.schema().find_tensor(name)->name.c_str();
    t.dtype = static_cast<int>(tensor.dtype());
    t.rank = tensor.rank();
    for (int d = 0; d < t.rank; ++d) t.shape[d] = tensor.size(d), t.strides[d] = tensor.strides()[d];
    t.flags = tensor.contiguous() ? 0 : DODONA_STRIDED;
    const auto* begin = static_cast<const std::byte*>(tensor.data());
    call.memory.emplace_back(begin, begin + tensor.extent_bytes());
    t.data = call.memory.back().data();
    call.tensors.push_back(t);
  }
  call.words.reserve(arguments.attrs.size() + 8);
  for (const auto& [name, value] : arguments.attrs) {
    call.words.push_back(to_string(value));
    call.attrs.push_back({op.schema().find_attr(name)->name.c_str(), call.words.back().c_str(), 0});
  }
  return call;
}

constexpr ptrdiff_t sizes[] = {0, 1, 2, 3, 7, 16, 17, 32, 64, 128, -1, ptrdiff_t{1} << 31, ptrdiff_t{1} << 62, PTRDIFF_MAX, PTRDIFF_MIN};
constexpr double numbers[] = {0, 1, -1, 2, 0.5, 1e-5, 3, 8, 64, 1e300, -1e300, 1e19, 4294967296.0};

ptrdiff_t size_out_of(Choices& choices) {
  const std::size_t choice = choices.below(std::size(sizes) + 1);
  return choice < std::size(sizes) ? sizes[choice] : choices.take<std::int16_t>();
}

/// Another view of the same argument, with memory for all that it claims. What claims too much gets none.
void spoil_tensor(dodona_tensor& t, Choices& choices, Memory& memory) {
  const std::size_t dim = choices.below(DODONA_MAX_RANK);
  switch (choices.below(9)) {
    case 0: t.dtype = static_cast<int>(choices.below(DODONA_BOOL + 3)) - 1; break;
    case 1: t.rank = static_cast<int>(choices.below(DODONA_MAX_RANK + 3)) - 1; break;
    case 2: t.shape[dim] = size_out_of(choices); break;
    case 3: t.flags = choices.take<std::uint8_t>() & (DODONA_STRIDED | DODONA_READ_ONLY); break;
    case 4:
      t.flags |= DODONA_STRIDED;
      t.strides[dim] = size_out_of(choices);
      break;
    case 5: t.data = nullptr; return;
    case 6: t.name = choices.below(2) == 0 ? nullptr : "no such argument"; return;
    case 7: {  // other values
      const std::size_t bytes = extent_of(t) <= most_bytes && !memory.empty() ? memory.back().size() : 0;
      for (std::vector<std::byte>& block : memory)
        if (block.data() == t.data && bytes > 0)
          for (int i = 0; i < 8 && !block.empty(); ++i) block[choices.take<std::uint16_t>() % block.size()] = choices.take<std::byte>();
      return;
    }
    default: {  // memory of another argument, which may be too small to be asked for more than it has
      const std::vector<std::byte>& other = memory[choices.below(memory.size())];
      if (extent_of(t) <= other.size()) t.data = const_cast<std::byte*>(other.data());
      return;
    }
  }
  const std::size_t extent = extent_of(t);
  memory.emplace_back(extent <= most_bytes ? extent : 0);
  t.data = extent <= most_bytes ? memory.back().data() : nullptr;
}

void spoil_attr(const Op& op, Call& call, Choices& choices) {
  const auto& specs = op.schema().attrs;
  if (specs.empty()) return;
  const AttrSpec& spec = specs[choices.below(specs.size())];
  dodona_attr attr{spec.name.c_str(), nullptr, 0};
  switch (choices.below(4)) {
    case 0: attr.number = numbers[choices.below(std::size(numbers))]; break;
    case 1: attr.number = choices.take<std::int16_t>(); break;
    case 2: attr.text = spec.choices.empty() ? "f32" : spec.choices[choices.below(spec.choices.size())].c_str(); break;
    default: attr.text = "nan"; break;
  }
  const auto found = std::find_if(call.attrs.begin(), call.attrs.end(), [&](const dodona_attr& a) { return a.name == attr.name; });
  if (found != call.attrs.end() && choices.below(8) != 0) {
    *found = attr;
  } else {
    call.attrs.push_back(attr);
  }
}

void check_status(int status) {
  require(status >= DODONA_OK && status < DODONA_INTERNAL, dodona_last_error());
  if (status != DODONA_OK) require(*dodona_last_error() != '\0', "a failure says nothing");
}

}  // namespace

void call(Bytes input) {
  Choices choices(input);
  const Line& line = small_lines()[choices.take<std::uint8_t>() % small_lines().size()];
  const Op& op = *line.op;
  Call call = right_call(op, line.arguments);
  dodona_exec exec{};
  exec.mode = static_cast<int>(choices.below(3));
  exec.threads = 1 + static_cast<int>(choices.below(2));
  const bool judged = choices.below(4) == 0;
  const std::string name(op.name());

  for (int i = 0; i < 4 && !choices.empty(); ++i) {
    const std::size_t what = choices.below(call.tensors.size() + 2);
    if (what < call.tensors.size()) {
      spoil_tensor(call.tensors[what], choices, call.memory);
    } else if (what == call.tensors.size()) {
      spoil_attr(op, call, choices);
    } else if (!call.tensors.empty()) {
      call.tensors.erase(call.tensors.begin() + static_cast<std::ptrdiff_t>(choices.below(call.tensors.size())));
    }
  }

  if (judged) {
    dodona_case* made = nullptr;
    const int status =
        dodona_case_from_call(name.c_str(), call.tensors.data(), call.tensors.size(), call.attrs.data(), call.attrs.size(), &made);
    check_status(status);
    if (status == DODONA_OK) {
      dodona_tensors* outputs = nullptr;
      check_status(dodona_case_run(made, &exec, &outputs));
      std::vector<dodona_tensor> actual(dodona_tensors_count(outputs));
      for (std::size_t i = 0; i < actual.size(); ++i) check_status(dodona_tensors_get(outputs, i, &actual[i]));
      dodona_verdict* verdict = nullptr;
      dodona_exec golden{};
      golden.mode = DODONA_GOLDEN;
      golden.threads = 1;
      check_status(dodona_case_check(made, actual.data(), actual.size(), &golden, &verdict));
      require(*dodona_verdict_text(verdict) != '\0' || verdict == nullptr, "a verdict without words");
      dodona_verdict_free(verdict);
      dodona_tensors_free(outputs);
    }
    dodona_case_free(made);
    return;
  }
  dodona_tensors* results = nullptr;
  check_status(dodona_run(name.c_str(), call.tensors.data(), call.tensors.size(), call.attrs.data(), call.attrs.size(), &exec, &results));
  dodona_tensors_free(results);
}

}  // namespace dodona::fuzz
