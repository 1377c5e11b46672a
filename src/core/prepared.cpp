#include "dodona/prepared.h"

#include "dodona/error.h"

namespace dodona {

struct Prepared::Content {
  std::string op;
  bool by_part;
  std::vector<Argument> arguments;
  std::vector<Tensor> parts;  ///< bytes; undefined where a part was left out
};

Prepared Prepared::of(std::string_view op, bool by_part, std::vector<Argument> arguments, std::vector<Tensor> parts) {
  Prepared prepared;
  prepared.content_ = std::make_shared<const Content>(Content{std::string(op), by_part, std::move(arguments), std::move(parts)});
  return prepared;
}

std::string_view Prepared::op() const {
  return defined() ? std::string_view(content_->op) : std::string_view();
}

std::span<const Prepared::Argument> Prepared::arguments() const {
  if (!defined()) return {};
  return content_->arguments;
}

std::int64_t Prepared::bytes() const {
  std::int64_t sum = 0;
  if (defined())
    for (const Tensor& part : content_->parts) sum += part.defined() ? part.elements() : 0;
  return sum;
}

std::int64_t Prepared::parts() const {
  return defined() ? static_cast<std::int64_t>(content_->parts.size()) : 0;
}

const std::byte* Prepared::part(std::int64_t index) const {
  return content_->parts.at(static_cast<std::size_t>(index)).as<std::byte>();
}

Prepared Prepared::gather(std::int64_t count, std::span<const Place> places) {
  constexpr std::int64_t most_parts = std::int64_t{1} << 20;
  if (places.empty())
    throw Error(ErrorCode::missing_argument, "", "places", "are none, expected at least one: it says the weights' shapes");
  if (count < 0 || count > most_parts)
    throw Error(ErrorCode::bad_value, "", "count", "is " + std::to_string(count) + ", expected 0 to " + std::to_string(most_parts));
  const Prepared* const first = places.front().weights;
  std::vector<Tensor> parts(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto fail = [&](ErrorCode code, const std::string& message) {
      throw Error(code, first != nullptr ? std::string(first->op()) : "", "places[" + std::to_string(i) + "]", message);
    };
    const auto [index, weights] = places[i];
    if (weights == nullptr || !weights->defined()) fail(ErrorCode::missing_argument, "has no prepared weights");
    if (index < 0 || index >= count)
      fail(ErrorCode::bad_value, "has index " + std::to_string(index) + ", expected 0 to " + std::to_string(count - 1));
    if (!weights->content_->by_part) fail(ErrorCode::unsupported, "has weights of " + std::string(weights->op()) + ", which have no parts");
    if (weights->op() != first->op())
      fail(ErrorCode::bad_value, "has weights of " + std::string(weights->op()) + ", expected weights of the same op");
    if (weights->parts() != 1) fail(ErrorCode::bad_shape, "has weights of " + std::to_string(weights->parts()) + " parts, expected one");
    for (std::size_t a = 0; a < first->arguments().size(); ++a)
      if (!(weights->arguments()[a].shape == first->arguments()[a].shape))
        fail(ErrorCode::bad_shape, "stands for " + first->arguments()[a].name + " " + to_string(weights->arguments()[a].shape) +
                                       ", expected " + to_string(first->arguments()[a].shape) + " as places[0]");
    Tensor& part = parts[static_cast<std::size_t>(index)];
    if (part.defined()) fail(ErrorCode::bad_value, "has index " + std::to_string(index) + ", which is taken");
    part = weights->content_->parts.front();
  }
  std::vector<Argument> arguments(first->arguments().begin(), first->arguments().end());
  for (Argument& argument : arguments) argument.shape[0] = count;
  return of(first->op(), true, std::move(arguments), std::move(parts));
}

}  // namespace dodona
