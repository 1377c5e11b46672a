// What ranks of one job, which are processes of one build, hand each other: values as bytes and back.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dodona::tools {

template <class T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// A struct goes by its function fields(parcel, value), which calls parcel(value.a, value.b, ...): one function for both ways.
class Packer {
 public:
  template <class... T>
  void operator()(T&... values) {
    (put(values), ...);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <PlainValue T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void size(std::size_t count) { put(static_cast<std::uint64_t>(count)); }
  void put(std::string& text) {
    size(text.size());
    bytes_ += text;
  }
  template <class T>
  void put(std::vector<T>& list) {
    size(list.size());
    for (T& value : list) put(value);
  }
  template <class T, std::size_t n>
  void put(std::array<T, n>& list) {
    for (T& value : list) put(value);
  }
  template <class T>
  void put(std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(T& value) requires std::is_class_v<T> {
    fields(*this, value);
  }

  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  const char* take(std::size_t count) {
    if (count > bytes_.size() - at_) throw std::logic_error("a parcel of another rank is cut");
    return bytes_.data() + std::exchange(at_, at_ + count);
  }
  template <PlainValue T>
  void get(T& value) {
    std::memcpy(&value, take(sizeof value), sizeof value);
  }
  std::size_t size() {
    std::uint64_t count = 0;
    get(count);
    return static_cast<std::size_t>(count);
  }
  void get(std::string& text) {
    const std::size_t count = size();
    text.assign(take(count), count);
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    for (std::size_t left = size(); left > 0; --left) get(list.emplace_back());
  }
  template <class T, std::size_t n>
  void get(std::array<T, n>& list) {
    for (T& value : list) get(value);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <class T>
  void get(T& value) requires std::is_class_v<T> {
    fields(*this, value);
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
};

template <class T>
std::string packed(T value) {
  Packer parcel;
  parcel(value);
  return parcel.bytes();
}
template <class T>
T unpacked(const std::string& bytes) {
  T value{};
  Unpacker parcel(bytes);
  parcel(value);
  return value;
}

}  // namespace dodona::tools
