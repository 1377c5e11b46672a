// Weights in the form that an op's fast mode reads fastest, made once for many calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/tensor.h"

namespace dodona {

/// What Op::pack made of an op's weights. A call takes it in place of the arguments that it was made of, which are needed no more; fast
/// mode then gives the bits that it gives with those, on every tier. Other modes refuse it. A value: copies share the memory, nothing
/// changes it.
class Prepared {
 public:
  /// An argument that it stands for.
  struct Argument {
    std::string name;
    DType dtype;
    Dims shape, strides;
  };

  /// None: a call with it is one with raw weights.
  Prepared() = default;

  bool defined() const { return content_ != nullptr; }
  /// The op that takes it; empty for none, as all that follows.
  std::string_view op() const;
  std::span<const Argument> arguments() const;
  /// Bytes of all parts that are there.
  std::int64_t bytes() const;

  /// Weights of several experts are packed in a part for each, of equal size; others in one part.
  std::int64_t parts() const;
  /// Memory of a part, 64-byte aligned; nullptr when it was left out.
  const std::byte* part(std::int64_t index) const;

  /// One part among `count`.
  struct Place {
    std::int64_t index;
    const Prepared* weights;  ///< of one part
  };
  /// Weights of `count` experts, of which those of `places` are there: experts are packed one by one, as they are needed, each with E = 1.
  /// Copies nothing. A call that needs one that is not there is refused. Throws Error naming the place.
  static Prepared gather(std::int64_t count, std::span<const Place> places);

  /// For Op::pack: `by_part` says that the first dimension of every argument counts parts.
  static Prepared of(std::string_view op, bool by_part, std::vector<Argument> arguments, std::vector<Tensor> parts);

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

}  // namespace dodona
