#include "model/ranks/rank_state.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/bytes.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* split_field = "split";
constexpr const char* round_field = "round";

Tensor tensor_of(const std::string& text) {
  Tensor tensor(DType::u8, {static_cast<std::int64_t>(text.size())});
  std::memcpy(tensor.data(), text.data(), text.size());
  return tensor;
}

/// Lengths and texts, as one text.
std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += std::to_string(text.size()) + ":" + text;
  return all;
}
std::vector<std::string> unpacked(const std::string& all) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t colon = all.find(':', at), size = std::stoul(all.substr(at, colon - at));
    texts.push_back(all.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return texts;
}

std::string cause_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

/// Nobody goes on where somebody could not.
void agree(const Ranks& ranks, const std::function<void()>& body) {
  const std::vector<std::string> causes = said_by_all(ranks, cause_of(body));
  for (std::size_t r = 0; r < causes.size(); ++r)
    if (!causes[r].empty())
      throw Error(ErrorCode::bad_file, "", "--state", "cannot be kept by rank " + std::to_string(r) + ": " + causes[r]);
}

}  // namespace

std::vector<std::string> said_by_all(const Ranks& ranks, const std::string& mine) {
  std::vector<std::string> all{mine};
  // Ranks count through the parts of tensors first, then through experts, then through stages.
  for (RankGroup* const group : {ranks.tensor, ranks.experts, ranks.pipeline}) {
    if (group == nullptr) continue;
    std::vector<std::string> more;
    for (const Tensor& part : group->gather(tensor_of(packed(all))))
      for (std::string& text : unpacked({part.as<const char>(), static_cast<std::size_t>(part.elements())}))
        more.push_back(std::move(text));
    all = std::move(more);
  }
  return all;
}

RankState::RankState(const GenerateCall& call, const std::string& weights, const Grid& grid, std::int64_t rank)
    : path_(call.state), split_(grid.text()), rank_(rank), count_(grid.ranks()) {
  if (call.resume && path_.empty()) throw Error(ErrorCode::bad_option, "", "--resume", "needs --state FILE");
  if (path_.empty()) return;
  stem_ = path_ + ".rank" + std::to_string(rank_) + "of" + std::to_string(count_) + ".";
  key_ = key_of(call, weights);
  key_[split_field] = split_;
  if (!call.resume) return;
  if (fs::exists(path_) && !names_parts(path_))
    throw Error(ErrorCode::bad_value, "", "--resume", path_ + " holds the state of one process, expected that of " + split_);
  std::string theirs;
  try {
    const io::Json named = io::read_json(path_);
    theirs = named.at(split_field).get<std::string>();
    round_ = named.at(round_field).get<std::int64_t>();
  } catch (const io::Json::exception&) {
    throw Error(ErrorCode::bad_file, "", "", path_ + ": names no parts of several ranks' state");
  }
  if (theirs != split_)
    throw Error(ErrorCode::bad_value, "", "--resume",
                path_ + " holds the state of " + theirs + ", expected " + split_ + ", as it is asked for");
  io::Json key = key_;
  key[round_field] = round_;
  read_ = read_state(part(round_), key);
}

std::string RankState::part(std::int64_t round) const {
  return stem_ + std::to_string(round);
}

void RankState::take_up(Generation& generation) const {
  if (read_) generation.resume(*read_);
}

void RankState::remove_others(std::int64_t round) const {
  std::error_code ignored;
  const fs::path file = fs::absolute(path_);
  const std::string begin = fs::path(stem_).filename().string();
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ignored))
    if (const std::string name = entry.path().filename().string(); name.starts_with(begin) && name != begin + std::to_string(round))
      fs::remove(entry.path(), ignored);
}

void RankState::keep(const Generation& generation, const Ranks& ranks) {
  if (path_.empty()) return;
  ++round_;
  agree(ranks, [&] {
    io::Json key = key_;
    key[round_field] = round_;
    write_state(part(round_), generation.state(), key);
  });
  agree(ranks, [&] {
    if (rank_ != 0) return;
    const std::string text = io::json_text({{split_field, split_}, {round_field, round_}}, 2) + "\n";
    io::write_file(path_, io::as_bytes(text));
  });
  remove_others(round_);
}

}  // namespace dodona::model
