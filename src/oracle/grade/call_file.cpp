#include "oracle/grade/call_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/random.h"
#include "dodona/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "oracle/cases/case_file.h"
#include "oracle/judge/actual.h"

namespace dodona::oracle {
namespace {

/// Bytes that nothing else holds; a truth is one still.
void fill_with_junk(const Tensor& room, const std::string& name, std::uint64_t seed) {
  const Stream stream(seed, "junk/" + name);
  const std::span<std::byte> bytes(static_cast<std::byte*>(room.data()), static_cast<std::size_t>(room.extent_bytes()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint32_t drawn = word(stream, i / 4) >> (8 * (i % 4));
    bytes[i] = static_cast<std::byte>(room.dtype() == DType::boolean ? drawn & 1 : drawn & 0xff);
  }
}

Tensor room_for(const ExpectedOutput& output, const Arguments& inputs, std::uint64_t junk) {
  const Tensor room(output.dtype, output.shape);
  const Tensor* before = inputs.find(output.name);
  if (before != nullptr && before->defined()) {
    copy(*before, room);
  } else {
    fill_with_junk(room, output.name, junk);
  }
  return room;
}

/// What a kernel is told of the call: not what has no effect, nor how its numbers are to be rounded where that is as ever.
Arguments told(const Op& op, const Arguments& inputs) {
  Arguments result = inputs;
  std::erase_if(result.attrs, [&](const auto& attr) {
    const AttrSpec* spec = op.schema().find_attr(attr.first);
    return spec != nullptr && (spec->ignored || (spec->recipe && to_string(attr.second) == to_string(spec->default_value)));
  });
  return result;
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::bad_file, "", path, what + ": " + std::strerror(errno));
}

}  // namespace

CallFile::CallFile(std::string path, const Op& op, const Arguments& inputs, std::uint64_t junk) : path_(std::move(path)), op_(&op) {
  NamedTensors tensors;
  io::Json outputs = io::Json::array();
  for (const ExpectedOutput& output : expected_outputs(op, inputs)) {
    const TensorSpec& spec = *op.schema().find_tensor(output.name);
    const bool in_place = spec.direction == Direction::inout;
    tensors.emplace_back("out." + output.name, room_for(output, in_place ? inputs : Arguments{}, junk));
    outputs.push_back({{"name", output.name}, {"argument", in_place || spec.given}, {"returned", !in_place && !spec.given}});
  }
  for (const auto& [name, tensor] : inputs.tensors)
    if (const TensorSpec* spec = op.schema().find_tensor(name); tensor.defined() && spec != nullptr && spec->direction != Direction::out)
      tensors.emplace_back("in." + name, tensor);
  before_ = io::safetensors_bytes(
      tensors, {{"op", std::string(op.name())}, {"attrs", attrs_text(op, told(op, inputs))}, {"outputs", io::json_text(outputs)}});
  std::uint64_t header = 0;  // its length, little-endian, before it
  for (std::size_t i = 8; i-- > 0;) header = header << 8 | static_cast<std::uint64_t>(before_[i]);
  header_bytes_ = 8 + static_cast<std::size_t>(header);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(path_, "cannot be made");
  // Whoever is told the name may use it: the kernel may run as another user.
  ::fchmod(fd_, 0666);
  for (std::size_t done = 0; done < before_.size();) {
    const ssize_t n = ::write(fd_, before_.data() + done, before_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      ::close(fd_);
      ::unlink(path_.c_str());
      errno = reason;
      fail(path_, "cannot be written");
    }
    done += static_cast<std::size_t>(n);
  }
}

CallFile::~CallFile() {
  ::close(fd_);
  ::unlink(path_.c_str());
}

CallFile::Contents CallFile::read() const {
  Contents contents;
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || static_cast<std::size_t>(status.st_size) != before_.size()) {
    contents.broken = "the file of the call has another size than before";
    return contents;
  }
  const auto now = std::make_shared<std::vector<std::byte>>(before_.size());
  for (std::size_t done = 0; done < now->size();) {
    const ssize_t n = ::pread(fd_, now->data() + done, now->size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      contents.broken = "the file of the call cannot be read";
      return contents;
    }
    done += static_cast<std::size_t>(n);
  }
  if (std::memcmp(before_.data(), now->data(), header_bytes_) != 0) {
    contents.changed = "the header of the call's file";
    return contents;
  }
  const auto original = io::SafetensorsFile::from_bytes(before_);
  const auto file = io::SafetensorsFile::from_bytes(*now, now, path_);
  for (const io::SafetensorsEntry& entry : file.entries()) {
    const auto was = original.bytes(*original.find(entry.name)), is = file.bytes(entry);
    const bool same = std::equal(was.begin(), was.end(), is.begin());
    if (entry.name.starts_with("in.")) {
      if (!same && contents.changed.empty()) contents.changed = "the input " + entry.name.substr(3);
      continue;
    }
    const std::string name = entry.name.substr(4);
    if (same && !is.empty() && op_->schema().find_tensor(name)->direction == Direction::out) contents.untouched.push_back(name);
    try {
      Tensor tensor = file.tensor(entry);
      contents.outputs.emplace_back(name, std::move(tensor));
    } catch (const Error& error) {
      contents.broken = name + " " + error.message();
    }
  }
  return contents;
}

}  // namespace dodona::oracle
