#include <fmt/format.h>

#include <array>

#include "dodona/error.h"
#include "model/layer/shape_book.h"
#include "tools/model_options.h"

namespace dodona::tools {
namespace {

using model::BookEntry;
using model::BookShape;
using model::Phase;
using model::ShapeBook;

struct ShapesOptions {
  ModelOptions model;
  std::string phase;
  model::BookOptions book;
  bool json = false;
};

constexpr std::array<std::pair<const char*, Phase>, 3> phases{
    {{"prefill", Phase::prefill}, {"decode", Phase::decode}, {"nextn", Phase::nextn}}};

const char* heading(Phase phase) {
  switch (phase) {
    case Phase::prefill: return "Prefill Phase (MHA path)";
    case Phase::decode: return "Decode Phase (MLA/Absorb path)";
    case Phase::nextn: return "Speculative Decoding (EAGLE/NextN)";
  }
  return "";
}

/// `[B, Lq] = [B, 1536]`, or one of the two where they say the same.
std::string both(const BookShape& shape) {
  const std::string text = shape.symbolic == shape.with_numbers ? shape.symbolic : shape.symbolic + " = " + shape.with_numbers;
  return (shape.label.empty() ? "" : shape.label + ": ") + text;
}

std::string joined(const std::vector<BookShape>& shapes) {
  std::string text;
  for (const BookShape& shape : shapes) text += (text.empty() ? "" : ", ") + both(shape);
  return text;
}

std::string op_name(const BookEntry& entry) {
  return entry.op + (entry.note.empty() ? "" : " (" + entry.note + ")");
}

io::Json shapes_json(const std::vector<BookShape>& shapes) {
  io::Json list = io::Json::array();
  for (const BookShape& shape : shapes) {
    io::Json sizes = io::Json::array();
    for (const std::int64_t size : shape.shape) sizes.push_back(size >= 0 ? io::Json(size) : io::Json(nullptr));
    list.push_back({{"label", shape.label}, {"symbolic", shape.symbolic}, {"numbers", shape.with_numbers}, {"shape", sizes}});
  }
  return list;
}

io::Json book_json(const ShapeBook& book, const char* phase) {
  io::Json ops = io::Json::array();
  for (const BookEntry& entry : book.entries())
    ops.push_back({{"part", std::string(title(entry.part))},
                   {"op", entry.op},
                   {"note", entry.note},
                   {"inputs", shapes_json(entry.inputs)},
                   {"outputs", shapes_json(entry.outputs)},
                   {"views", shapes_json(entry.views)},
                   {"kernels", entry.kernels},
                   {"kernel", entry.kernel},
                   {"wants_sizes", entry.wants_sizes.empty() ? io::Json(nullptr) : io::Json(entry.wants_sizes)}});
  return {{"phase", phase}, {"ops", ops}};
}

void print_symbols(const model::ModelConfig& config) {
  const std::vector<std::vector<std::string>> rows{
      {"hidden_size", std::to_string(config.hidden_size), "H"},
      {"q_lora_rank", std::to_string(config.q_lora_rank), "Lq"},
      {"kv_lora_rank", std::to_string(config.kv_lora_rank), "Lkv"},
      {"num_attention_heads", std::to_string(config.num_attention_heads), "Nh"},
      {"qk_nope_head_dim", std::to_string(config.qk_nope_head_dim), "Dn"},
      {"qk_rope_head_dim", std::to_string(config.qk_rope_head_dim), "Dr"},
      {"v_head_dim", std::to_string(config.v_head_dim), "Dv"},
      {"qk_head_dim", std::to_string(config.qk_head_dim()), "Dq = Dn + Dr"},
      {"intermediate_size", std::to_string(config.intermediate_size), "I (dense)"},
      {"moe_intermediate_size", std::to_string(config.moe_intermediate_size), "I (experts)"},
      {"num_experts_per_tok", std::to_string(config.num_experts_per_tok), "K"},
      {"n_routed_experts", std::to_string(config.n_routed_experts), "E"},
      {"n_shared_experts", std::to_string(config.n_shared_experts), "-"},
      {"num_hidden_layers", std::to_string(config.num_hidden_layers), "L"},
      {"first_k_dense_replace", std::to_string(config.first_k_dense_replace), "-"},
      {"vocab_size", std::to_string(config.vocab_size), "V"},
  };
  fmt::print("{}\n\n{}\n", config.name, table({"parameter", "value", "symbol"}, rows, {false, true, false}));
  fmt::print("B requests, S new tokens of each (prefill), n tokens of a prefix chunk, slots of the KV cache.\n");
}

/// With a known batch the kernel is the one that runs; without, all that may.
std::string kernel_text(const BookEntry& entry, bool chosen) {
  const std::string& kernels = chosen ? entry.kernel : entry.kernels;
  return entry.wants_sizes.empty() ? kernels : kernels + ": not of these sizes, but of " + entry.wants_sizes;
}

void print_book(const ShapeBook& book, bool chosen) {
  fmt::print("\n{}\n", heading(book.phase()));
  const auto& entries = book.entries();
  for (std::size_t begin = 0; begin < entries.size();) {
    std::vector<std::vector<std::string>> rows;
    std::size_t end = begin;
    for (; end < entries.size() && entries[end].part == entries[begin].part; ++end) {
      const BookEntry& entry = entries[end];
      rows.push_back({op_name(entry), joined(entry.inputs), joined(entry.outputs), kernel_text(entry, chosen)});
    }
    fmt::print("\n{}\n\n{}", title(entries[begin].part),
               table({"op", "input shape", "output shape", "kernel"}, rows, {false, false, false, false}));
    begin = end;
  }
}

void shapes(const ShapesOptions& options) {
  const model::ModelConfig config = options.model.load("r1-nvfp4");
  const auto refuse = [](const char* option, const std::string& why) { throw Error(ErrorCode::bad_option, "", option, why); };
  if (options.book.sequence > 0 && !options.phase.empty() && options.phase != "prefill")
    refuse("--seq", "is given, but the phase is " + options.phase + ", not prefill");
  if (options.book.layer >= 0) config.check_layer(options.book.layer);
  if (options.book.fused_shared && options.book.layer >= 0 && !config.is_moe_layer(options.book.layer))
    refuse("--fused-shared", "is given, but layer " + std::to_string(options.book.layer) + " is dense");
  if (options.book.fused_shared && config.n_shared_experts != 1)
    refuse("--fused-shared", "needs exactly one shared expert, " + config.name + " has " + std::to_string(config.n_shared_experts));
  std::vector<std::pair<const char*, ShapeBook>> books;
  for (const auto& [name, phase] : phases) {
    // A model without NextN layers has nothing to show for them unless it is asked to.
    if (options.phase.empty() ? phase == Phase::nextn && config.num_nextn_predict_layers == 0 : options.phase != name) continue;
    books.emplace_back(name, ShapeBook(config, phase, options.book));
  }
  if (options.json) {
    io::Json list = io::Json::array();
    for (const auto& [name, book] : books) list.push_back(book_json(book, name));
    fmt::print("{}\n", io::json_text(io::Json{{"model", config.name}, {"phases", list}}, 2));
    return;
  }
  print_symbols(config);
  for (const auto& [name, book] : books) print_book(book, options.book.batch > 0);
}

}  // namespace

void add_shapes(CLI::App& app, int&) {
  auto options = std::make_shared<ShapesOptions>();
  auto* command = app.add_subcommand("shapes", "Print what shapes every model op takes and gives, and its kernel, per phase and path");
  options->model.add(*command, "r1-nvfp4");
  command->add_option("--phase", options->phase, "prefill, decode or nextn (default: all)")
      ->check(CLI::IsMember({"prefill", "decode", "nextn"}));
  command->add_option("--layer", options->book.layer, "Choose kernels by this layer's weights (default: the first dense and MoE layers)")
      ->check(not_below_zero());
  command->add_option("--batch", options->book.batch, "Requests, to put in for B")->check(CLI::Range(1, 1 << 20));
  command->add_option("--seq", options->book.sequence, "New tokens of each request in prefill, to put in for S")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--fused-shared", options->book.fused_shared, "The shared expert is one more routed expert: K + 1 columns");
  command->add_flag("--json", options->json, "Print one JSON value instead of text");
  command->callback([options] { shapes(*options); });
}

}  // namespace dodona::tools
