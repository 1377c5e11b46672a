// Whose rows fail, by what the inputs say of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/storage.h"
#include "oracle/judge/pattern.h"
#include "oracle/judge/pattern/samples.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using pattern::number;
using pattern::text;

/// The group of rows between two offsets that holds all failures.
std::optional<std::string> one_group(const std::string& argument, const Tensor& offsets, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  const std::int64_t count = offsets.elements();
  if (count < 3 || static_cast<std::int64_t>(quant::get(offsets, count - 1)) != row_total) return std::nullopt;
  for (std::int64_t g = 0; g + 1 < count; ++g) {
    const auto begin = static_cast<std::int64_t>(quant::get(offsets, g)), end = static_cast<std::int64_t>(quant::get(offsets, g + 1));
    if (*rows.begin() < begin || *rows.rbegin() >= end) continue;
    if (end - begin == row_total) return std::nullopt;
    return "only group " + text(g) + " of " + text(count - 1) + " by " + argument + " (rows " + text(begin) + ".." + text(end - 1) + ")";
  }
  return std::nullopt;
}

/// The expert whose tokens are the rows that fail.
std::optional<std::string> one_expert(const std::string& argument, const Tensor& ids, const std::set<std::int64_t>& rows,
                                      std::int64_t row_total) {
  if (ids.rank() != 2 || ids.size(0) != row_total || static_cast<std::int64_t>(rows.size()) == row_total) return std::nullopt;
  const std::int64_t width = ids.size(1);
  std::map<std::int64_t, std::set<std::int64_t>> tokens;
  for (std::int64_t i = 0; i < ids.elements(); ++i) tokens[static_cast<std::int64_t>(quant::get(ids, i))].insert(i / width);
  for (const auto& [expert, its] : tokens)
    if (its == rows) return "exactly the rows of expert " + text(expert) + " by " + argument;
  return std::nullopt;
}

/// The rows that a list of numbers does not name, all of them and no other.
std::optional<std::string> not_named(const std::string& argument, const Tensor& numbers, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  std::set<std::int64_t> named;
  for (std::int64_t i = 0; i < numbers.elements(); ++i) named.insert(static_cast<std::int64_t>(quant::get(numbers, i)));
  std::int64_t others = 0;
  for (std::int64_t r = 0; r < row_total; ++r) {
    if (named.count(r) > 0 && rows.count(r) > 0) return std::nullopt;
    if (named.count(r) == 0) ++others;
  }
  if (named.empty() || others != static_cast<std::int64_t>(rows.size())) return std::nullopt;
  return "exactly the rows that " + argument + " does not name, which are to be left alone";
}

/// What is special of a row of numbers: nothing but zeros, a NaN, an infinity.
enum class Special { zeros, nan, infinite };
constexpr std::array<const char*, 3> special_words{"is all zeros", "holds NaN", "holds infinities"};

bool is_special(Special kind, const Tensor& tensor, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const double x = quant::get(tensor, i);
    if (kind == Special::zeros && x != 0) return false;
    if (kind == Special::nan && std::isnan(x)) return true;
    if (kind == Special::infinite && std::isinf(x)) return true;
  }
  return kind == Special::zeros;
}

/// How many ways there are to choose so many of so many: a chance of one in two hundred is none.
bool is_no_chance(std::size_t some, std::size_t all) {
  const auto n = static_cast<double>(all), k = static_cast<double>(some);
  return some > 0 && some < all && std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) > std::log(200.0);
}

/// Whether the numbers of what fails all lie on one side of the others': text of the border, or nothing.
std::optional<std::string> on_one_side(const std::vector<double>& wrong, const std::vector<double>& right) {
  if (wrong.empty() || right.empty() || !is_no_chance(wrong.size(), wrong.size() + right.size())) return std::nullopt;
  const auto [low, high] = std::minmax_element(wrong.begin(), wrong.end());
  const auto [least, most_of] = std::minmax_element(right.begin(), right.end());
  if (*high < *least) return number(*high) + " or less";
  if (*low > *most_of) return number(*low) + " or more";
  return std::nullopt;
}

/// The rows that fail are exactly those whose number in an argument is large, small, or a multiple of a tile.
std::optional<std::string> by_number(const std::string& argument, const Tensor& numbers, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  if (numbers.elements() != row_total || row_total < 2 || static_cast<std::int64_t>(rows.size()) == row_total) return std::nullopt;
  std::vector<double> wrong, right;
  for (std::int64_t r = 0; r < row_total; ++r) (rows.count(r) > 0 ? wrong : right).push_back(quant::get(numbers, r));
  if (const auto side = on_one_side(wrong, right)) return "exactly the rows where " + argument + " is " + *side;
  for (const int tile : {128, 64, 32, 16, 8}) {
    const auto whole = [&](double x) { return std::fmod(x, tile) == 0; };
    const bool rare = std::pow(static_cast<double>(tile), static_cast<double>(wrong.size())) > 1000;
    if (rare && std::all_of(wrong.begin(), wrong.end(), whole) && std::none_of(right.begin(), right.end(), whole))
      return "exactly the rows where " + argument + " is a multiple of " + text(tile);
  }
  return std::nullopt;
}

/// Likewise of groups of rows between offsets: their lengths; or, where rows are requests, of what each has between two offsets.
std::optional<std::string> by_length(const std::string& argument, const Tensor& offsets, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  const std::int64_t groups = offsets.elements() - 1;
  if (groups < 2) return std::nullopt;
  const Tensor lengths(DType::f32, {groups});
  std::set<std::int64_t> wrong;
  const bool of_rows = groups != row_total;
  if (of_rows && static_cast<std::int64_t>(quant::get(offsets, groups)) != row_total) return std::nullopt;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto begin = static_cast<std::int64_t>(quant::get(offsets, g)), end = static_cast<std::int64_t>(quant::get(offsets, g + 1));
    quant::set(lengths, g, static_cast<double>(end - begin));
    const auto first = of_rows ? rows.lower_bound(begin) : rows.find(g);
    if (first != rows.end() && (!of_rows || *first < end)) wrong.insert(g);
  }
  const auto found = by_number("a group's length by " + argument, lengths, wrong, groups);
  if (!found) return std::nullopt;
  return of_rows ? "exactly the groups" + found->substr(found->find(" where")) : found;
}

/// What may be said of the numbers that a request has in a list.
struct OfList {
  const char* is;
  const char* is_not;
  bool (*holds)(const std::vector<std::int64_t>&);
};
constexpr std::array lists_are{
    OfList{"follow one another", "do not follow one another",
           [](const std::vector<std::int64_t>& list) {
             for (std::size_t i = 1; i < list.size(); ++i)
               if (list[i] != list[i - 1] + 1) return false;
             return true;
           }},
    OfList{"name one twice", "name each once",
           [](const std::vector<std::int64_t>& list) { return std::set<std::int64_t>(list.begin(), list.end()).size() < list.size(); }},
    OfList{
        "hold one that stands for none", "hold none that stands for none",
        [](const std::vector<std::int64_t>& list) { return std::any_of(list.begin(), list.end(), [](std::int64_t x) { return x < 0; }); }},
    OfList{"rise", "fall somewhere", [](const std::vector<std::int64_t>& list) { return std::is_sorted(list.begin(), list.end()); }},
};

/// Requests that fail are exactly those whose numbers in a list are, or are not, something.
std::optional<std::string> by_list(const std::string& argument, const std::vector<std::vector<std::int64_t>>& lists,
                                   const std::set<std::int64_t>& wrong) {
  if (!is_no_chance(wrong.size(), lists.size())) return std::nullopt;
  for (const OfList& said : lists_are)
    for (const bool holds : {true, false}) {
      bool exactly = true;
      for (std::size_t b = 0; b < lists.size() && exactly; ++b)
        exactly = (said.holds(lists[b]) == holds) == (wrong.count(static_cast<std::int64_t>(b)) > 0);
      if (exactly) return "exactly the requests, or tokens, whose numbers in " + argument + " " + (holds ? said.is : said.is_not);
    }
  return std::nullopt;
}
/// The numbers of each request, of a table of a row each or of a list between offsets; nothing where it is neither.
std::vector<std::vector<std::int64_t>> lists_of(const OpSchema& schema, const Arguments& inputs, const Tensor& list) {
  std::vector<std::vector<std::int64_t>> lists;
  const auto at = [&](std::int64_t i) { return static_cast<std::int64_t>(quant::get(list, i)); };
  if (list.rank() == 2) {
    for (std::int64_t i = 0; i < list.elements(); ++i) {
      if (i % list.size(1) == 0) lists.emplace_back();
      lists.back().push_back(at(i));
    }
    return lists;
  }
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const offsets = inputs.find(spec.name);
    if (spec.role != Role::indptr || offsets == nullptr || !offsets->defined() || list.rank() != 1 || offsets->elements() < 3 ||
        static_cast<std::int64_t>(quant::get(*offsets, offsets->elements() - 1)) != list.elements())
      continue;
    for (std::int64_t b = 0; b + 1 < offsets->elements(); ++b) {
      lists.emplace_back();
      const auto end = std::min(static_cast<std::int64_t>(quant::get(*offsets, b + 1)), list.elements());
      for (auto i = static_cast<std::int64_t>(quant::get(*offsets, b)); i < end; ++i) lists.back().push_back(at(i));
    }
    return lists;
  }
  return lists;
}
/// Which of so many requests have a row that fails: rows are requests, or lie between offsets of as many.
std::optional<std::set<std::int64_t>> requests_of_rows(const OpSchema& schema, const Arguments& inputs, const std::set<std::int64_t>& rows,
                                                       std::int64_t row_total, std::int64_t requests) {
  if (requests == row_total) return rows;
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const offsets = inputs.find(spec.name);
    if (spec.role != Role::indptr || offsets == nullptr || !offsets->defined() || offsets->elements() != requests + 1 ||
        static_cast<std::int64_t>(quant::get(*offsets, requests)) != row_total)
      continue;
    std::set<std::int64_t> wrong;
    for (std::int64_t b = 0; b < requests; ++b) {
      const auto first = rows.lower_bound(static_cast<std::int64_t>(quant::get(*offsets, b)));
      if (first != rows.end() && *first < static_cast<std::int64_t>(quant::get(*offsets, b + 1))) wrong.insert(b);
    }
    return wrong;
  }
  return std::nullopt;
}

/// Tokens of a page of what the table's numbers are of: 0 where no input says it.
std::int64_t tokens_of_page(const OpSchema& schema, const Arguments& inputs, const std::string& pages) {
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const cache = inputs.find(spec.name);
    if (cache == nullptr || !cache->defined() || cache->rank() < 3 || spec.shape.find(pages + " ") == std::string::npos) continue;
    return cache->rank() == 3 ? cache->size(1) : std::max(cache->size(1), cache->size(2));
  }
  return 0;
}

/// Of requests with pages of their own: those that have one which lies far behind.
std::optional<std::string> by_page(const OpSchema& schema, const Arguments& inputs, const TensorSpec& spec, const Tensor& table,
                                   const std::set<std::int64_t>& rows, std::int64_t row_total) {
  const std::int64_t tokens = tokens_of_page(schema, inputs, spec.bound);
  if (tokens == 0 || table.rank() != 2 || table.size(0) != row_total) return std::nullopt;
  for (const TensorSpec& other : schema.tensors) {
    const Tensor* const lengths = inputs.find(other.name);
    if (other.role != Role::lengths || lengths == nullptr || !lengths->defined() || lengths->rank() != 1 || lengths->size(0) != row_total)
      continue;
    const Tensor last(DType::f32, {row_total});
    for (std::int64_t r = 0; r < row_total; ++r) {
      double largest = -1;
      const auto length = static_cast<std::int64_t>(quant::get(*lengths, r));
      for (std::int64_t p = 0; p < table.size(1) && p * tokens < length; ++p)
        largest = std::fmax(largest, quant::get(table, r * table.size(1) + p));
      quant::set(last, r, largest);
    }
    return by_number("the largest page by " + spec.name, last, rows, row_total);
  }
  return std::nullopt;
}

/// Of tokens in pages by one list: those whose page lies far behind.
std::optional<std::string> by_page_of_tokens(const std::string& argument, const Tensor& pages, const std::set<std::int64_t>& rows,
                                             std::int64_t row_total) {
  for (const std::int64_t tokens : {16, 32, 64, 128, 256}) {
    const std::int64_t used = (row_total + tokens - 1) / tokens;
    if (used < 2 || pages.elements() != used) continue;
    std::set<std::int64_t> wrong;
    for (const std::int64_t row : rows) wrong.insert(row / tokens);
    std::int64_t all = 0;
    for (const std::int64_t page : wrong) all += std::min(tokens, row_total - page * tokens);
    if (all != static_cast<std::int64_t>(rows.size())) continue;
    if (auto found = by_number("the page by " + argument, pages, wrong, used)) return found;
  }
  return std::nullopt;
}

/// The largest magnitude of so many numbers.
double magnitude(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  double most_of = 0;
  for (std::int64_t i = first; i < first + count; ++i) most_of = std::fmax(most_of, std::fabs(quant::get(tensor, i)));
  return most_of;
}

/// All failures lie in the rows, or in the groups of so many elements, of which an input of as many rows (or elements) is special, and
/// each of these fails somewhere.
std::optional<std::string> special_input(const std::string& argument, const Tensor& input, const std::vector<std::int64_t>& failing,
                                         const Dims& shape) {
  if (!is_float(input.dtype()) || input.rank() < 1 || input.elements() > 1 << 24) return std::nullopt;
  const std::int64_t width = shape.at(-1), rows = element_count(shape) / std::max<std::int64_t>(width, 1);
  const std::int64_t input_width = input.size(-1), input_rows = input.elements() / std::max<std::int64_t>(input_width, 1);
  if (input_rows != rows || rows < 1) return std::nullopt;
  for (const std::int64_t groups : {std::int64_t{1}, input_width / 128, input_width / 64, input_width / 32, input_width / 16}) {
    if (groups < 1 || input_width % groups != 0 || width % groups != 0 || (groups == 1 && rows < 2)) continue;
    std::set<std::int64_t> wrong;
    for (const std::int64_t i : failing) wrong.insert(i / (width / groups));
    const std::int64_t size = input_width / groups;
    for (std::size_t k = 0; k < special_words.size(); ++k) {
      const auto kind = static_cast<Special>(k);
      if (!is_special(kind, input, *wrong.begin() * size, size)) continue;
      std::int64_t special = 0;
      bool each = true;
      for (std::int64_t at = 0; at < rows * groups && each; ++at) {
        const bool here = is_special(kind, input, at * size, size);
        special += here ? 1 : 0;
        each = here == (wrong.count(at) > 0);
      }
      if (each && special < rows * groups)
        return "exactly the " + std::string(groups == 1 ? "rows" : "groups of " + text(size)) + " where " + argument + " " +
               special_words[k];
    }
    std::vector<double> fail, pass;
    for (std::int64_t at = 0; at < rows * groups; ++at) (wrong.count(at) > 0 ? fail : pass).push_back(magnitude(input, at * size, size));
    if (const auto side = on_one_side(fail, pass))
      return "exactly the " + std::string(groups == 1 ? "rows" : "groups of " + text(size)) + " where the largest magnitude of " +
             argument + " is " + *side;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> owners_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                   const Dims& shape) {
  std::vector<std::string> owners;
  if (failing.empty() || shape.rank() < 1 || shape.at(-1) == 0) return owners;
  const std::int64_t row_total = shape[0], below = element_count(shape) / row_total;
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / below);
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* tensor = inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined()) continue;
    std::optional<std::string> owner;
    if (spec.role == Role::values || spec.role == Role::logits || spec.role == Role::scale)
      owner = special_input(spec.name, as_codes(*tensor, spec.storage), failing, shape);
    const bool a_number_each = spec.role == Role::positions || spec.role == Role::lengths || spec.role == Role::indices;
    if (a_number_each && !is_float(tensor->dtype()) && tensor->rank() == 1) owner = by_number(spec.name, *tensor, rows, row_total);
    if (a_number_each && !owner && !is_float(tensor->dtype()) && tensor->rank() == 1)
      owner = by_page_of_tokens(spec.name, *tensor, rows, row_total);
    // Numbers of the output's rows, not of slots within them.
    const bool of_rows = !spec.bound.empty() && spec.bound.find('*') == std::string::npos;
    if (spec.role == Role::indices && of_rows && !owner && !is_float(tensor->dtype()) && tensor->rank() == 1 && shape[0] > 1)
      owner = not_named(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::page_table && shape[0] > 1) owner = by_page(schema, inputs, spec, *tensor, rows, row_total);
    if (spec.role == Role::indptr && shape[0] > 1) owner = one_group(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::indptr && shape[0] > 1 && !owner) owner = by_length(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::expert_ids && shape[0] > 1) owner = one_expert(spec.name, *tensor, rows, row_total);
    const bool a_list =
        spec.role == Role::indices || spec.role == Role::positions || spec.role == Role::page_table || spec.role == Role::expert_ids;
    if (a_list && !owner && !is_float(tensor->dtype()) && tensor->elements() <= 1 << 20) {
      const auto lists = lists_of(schema, inputs, *tensor);
      const auto wrong = requests_of_rows(schema, inputs, rows, row_total, static_cast<std::int64_t>(lists.size()));
      if (lists.size() >= 2 && wrong) owner = by_list(spec.name, lists, *wrong);
    }
    if (owner) owners.push_back(*owner);
  }
  return owners;
}

}  // namespace dodona::oracle
