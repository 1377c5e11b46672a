#include "model/config/config.h"

#include "tests/fuzz/target.h"
#include "tests/temp_folder.h"

namespace dodona::fuzz {

/// `config.json`, and behind a NUL `hf_quant_config.json`.
void config(Bytes input) {
  static const helpers::TempFolder folder;
  const std::string_view text = text_of(input);
  const std::size_t end = std::min(text.find('\0'), text.size());
  folder.write("config.json", std::string(text.substr(0, end)));
  if (end < text.size()) {
    folder.write("hf_quant_config.json", std::string(text.substr(end + 1)));
  } else {
    std::filesystem::remove(folder.file("hf_quant_config.json"));
  }
  unless_refused([&] {
    const model::ModelConfig read = model::load_config(folder.path());
    const std::string written = model::config_json(read), quant = model::hf_quant_config_json(read);
    static const helpers::TempFolder again;
    again.write("config.json", written);
    if (quant.empty()) {
      std::filesystem::remove(again.file("hf_quant_config.json"));
    } else {
      again.write("hf_quant_config.json", quant);
    }
    const model::ModelConfig reread = model::load_config(again.path());
    require(model::config_json(reread) == written && model::hf_quant_config_json(reread) == quant, "a configuration comes back as another");
  });
}

}  // namespace dodona::fuzz
