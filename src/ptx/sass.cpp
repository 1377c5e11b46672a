#include "ptx/sass.h"

#include <algorithm>
#include <array>

#include "dodona/error.h"

namespace dodona::ptx {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

struct Unit {
  std::string_view opcode, kind, type;
};
constexpr Unit units[] = {{"FFMA", "fma", "f32"},    {"FMUL", "mul", "f32"},    {"FADD", "add", "f32"},    {"FFMA32I", "fma", "f32"},
                          {"FMUL32I", "mul", "f32"}, {"FADD32I", "add", "f32"}, {"DFMA", "fma", "f64"},    {"DMUL", "mul", "f64"},
                          {"DADD", "add", "f64"},    {"HFMA2", "fma", "f16x2"}, {"HMUL2", "mul", "f16x2"}, {"HADD2", "add", "f16x2"}};

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// "fma.f32" or nothing. `@!P0 FFMA.FTZ R5, R4, R5, R7`.
std::string counted(std::string_view instruction) {
  if (instruction.starts_with('@')) instruction = trimmed(instruction.substr(std::min(instruction.find(' '), instruction.size())));
  const std::size_t space = std::min(instruction.find(' '), instruction.size());
  const std::vector<std::string_view> opcode = split(instruction.substr(0, space), '.');
  for (const Unit& u : units) {
    if (u.opcode != opcode[0]) continue;
    std::string_view kind = u.kind, type = u.type;
    if (std::any_of(opcode.begin(), opcode.end(), [](std::string_view part) { return part.starts_with("BF16"); })) type = "bf16x2";
    if (kind == "fma") {
      const std::vector<std::string_view> operands = split(instruction.substr(space), ',');
      const std::string_view addend = operands.back();
      if (addend == "RZ" || addend == "-RZ") {
        kind = "mul";
      } else if (operands.size() > 2 && (operands[2] == "1" || operands[1] == "1")) {
        kind = "add";
      }
    }
    return std::string(kind) + "." + std::string(type);
  }
  return {};
}

}  // namespace

std::map<std::string, MachineCode, std::less<>> read_sass(std::string_view text, const std::string& name) {
  std::map<std::string, MachineCode, std::less<>> functions;
  MachineCode* at = nullptr;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    constexpr std::string_view function = "Function :", section = ".section\t.text.", other_section = ".section .text.";
    if (line.starts_with(function)) {
      at = &functions[std::string(trimmed(line.substr(function.size())))];
    } else if (line.starts_with(section) || line.starts_with(other_section)) {
      const std::string_view rest = line.substr(section.size());
      at = &functions[std::string(rest.substr(0, rest.find_first_of(",\" ")))];
    } else if (line.starts_with(".section\t") || line.starts_with(".section ")) {
      at = nullptr;
    }
    // "/*0040*/  FFMA R5, R4, R5, R7 ;  /* 0x... */"
    if (at == nullptr || !line.starts_with("/*") || line.starts_with("/* ")) continue;
    const std::size_t address = line.find("*/"), semicolon = line.find(';');
    if (address == std::string_view::npos || semicolon == std::string_view::npos || semicolon < address) continue;
    const std::string_view instruction = trimmed(line.substr(address + 2, semicolon - address - 2));
    if (instruction.empty() || instruction == "NOP") continue;
    at->instructions.emplace_back(instruction);
    if (const std::string kind = counted(instruction); !kind.empty()) ++at->counts[kind];
  }
  if (functions.empty()) throw Error(ErrorCode::bad_file, "", name, "is no disassembler's text: it has no function");
  return functions;
}

}  // namespace dodona::ptx
