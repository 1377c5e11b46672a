#include "ptx/assembler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "dodona/error.h"
#include "ptx/contraction.h"
#include "ptx/lanes.h"
#include "ptx/special_registers.h"

namespace dodona::ptx {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr std::size_t largest_array = std::size_t{1} << 30;

/// Handlers of statements that are not there: reached, they are errors.
void not_there(Machine& m, const Instruction& i) {
  m.fail("this instruction is not there", i);
}

void invert(Machine& m, const Instruction& i) {
  std::uint32_t& to = m.predicate(i.slots[0]);
  to = (to & ~m.mask) | (~m.predicate(i.slots[1]) & m.mask);
}

const FamilyName families[] = {
    {"bra", assemble_control},
    {"brx", assemble_control},
    {"call", assemble_control},
    {"ret", assemble_control},
    {"exit", assemble_control},
    {"trap", assemble_control},
    {"brkpt", assemble_control},
    {"bar", assemble_control},
    {"barrier", assemble_control},
    {"membar", assemble_control},
    {"fence", assemble_control},
    {"nanosleep", assemble_control},
    {"pmevent", assemble_control},
    {"setmaxnreg", assemble_control},
    {"griddepcontrol", assemble_control},
    {"prefetch", assemble_control},
    {"prefetchu", assemble_control},
    {"discard", assemble_control},
    {"applypriority", assemble_control},
    {"createpolicy", assemble_control},
    {"ld", assemble_memory},
    {"ldu", assemble_memory},
    {"st", assemble_memory},
    {"atom", assemble_atomics},
    {"red", assemble_atomics},
    {"cvt", assemble_conversion},
    {"mov", assemble_movement},
    {"cvta", assemble_movement},
    {"setp", assemble_movement},
    {"set", assemble_movement},
    {"isspacep", assemble_movement},
    {"mapa", assemble_movement},
    {"add", assemble_movement},
    {"addc", assemble_movement},
    {"sub", assemble_movement},
    {"subc", assemble_movement},
    {"mad", assemble_movement},
    {"madc", assemble_movement},
    {"lop3", assemble_movement},
    {"prmt", assemble_movement},
    {"shfl", assemble_warp},
    {"vote", assemble_warp},
    {"match", assemble_warp},
    {"activemask", assemble_warp},
    {"redux", assemble_warp},
    {"elect", assemble_warp},
    {"ldmatrix", assemble_matrix},
    {"stmatrix", assemble_matrix},
    {"mma", assemble_matrix},
    {"movmatrix", assemble_matrix},
    {"wgmma", assemble_warpgroup},
    {"cp", assemble_copies},
    {"tensormap", assemble_copies},
    {"mbarrier", assemble_mbarrier},
    {"getctarank", assemble_movement},
    {"div", assemble_movement},
};

const Operation* find_operation(std::string_view opcode) {
  if (const Operation* found = find_integer(opcode)) return found;
  if (const Operation* found = find_float(opcode)) return found;
  return find_half(opcode);
}

}  // namespace

Opcode::Opcode(std::string_view text) : whole(text) {
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

bool Opcode::has(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

void Assembler::fail(int line, const std::string& what) const {
  throw Error(ErrorCode::bad_file, "", syntax_.name, "line " + std::to_string(line) + ": " + what);
}

// ---- places

Slot Assembler::rows(std::size_t count) {
  const auto slot = static_cast<Slot>(code_.rows);
  code_.rows += count;
  return slot;
}
Slot Assembler::scratch(bool wide) {
  return rows(wide ? 2 : 1);
}
Slot Assembler::carry() {
  if (carry_slot_ == no_slot) carry_slot_ = rows(1);
  return carry_slot_;
}
Slot Assembler::constant(std::uint64_t value, bool wide) {
  const auto [at, added] = constant_slots_.emplace(std::pair{value, wide}, 0);
  if (added) {
    at->second = rows(wide ? 2 : 1);
    code_.constants.push_back({at->second, value, wide});
  }
  return at->second;
}

const Assembler::Register* Assembler::find_register(std::string_view name) {
  for (int scope = statement_->scope; scope >= 0; scope = function_->scopes[static_cast<std::size_t>(scope)].parent) {
    auto& known = registers_[static_cast<std::size_t>(scope)];
    if (const auto found = known.find(std::string(name)); found != known.end()) return &found->second;
    for (const Variable& v : function_->scopes[static_cast<std::size_t>(scope)].variables) {
      if (v.space != Space::registers || name.substr(0, v.name.size()) != v.name) continue;
      const std::string_view rest = name.substr(v.name.size());
      if (v.count == 0 ? !rest.empty() : rest.empty()) continue;
      if (v.count > 0) {
        int index = -1;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
        if (error != std::errc() || end != rest.data() + rest.size() || index < 0 || index >= v.count) continue;
      }
      const int bytes = v.type == "pred" ? 0 : static_cast<int>(bytes_of(v.type));
      // A register of 128 bits is two of 64, one behind the other.
      return &known.emplace(std::string(name), Register{rows(bytes == 16 ? 4 : bytes == 8 ? 2 : 1), bytes}).first->second;
    }
  }
  return nullptr;
}

bool Assembler::symbol(std::string_view name, std::uint64_t& value) const {
  for (int scope = statement_ == nullptr ? -1 : statement_->scope; scope >= 0;
       scope = function_->scopes[static_cast<std::size_t>(scope)].parent) {
    const auto& known = locals_[static_cast<std::size_t>(scope)];
    if (const auto found = known.find(name); found != known.end()) {
      value = found->second;
      return true;
    }
  }
  if (const auto found = formals_.find(name); found != formals_.end()) {
    value = found->second;
    return true;
  }
  if (const auto found = globals_.find(name); found != globals_.end()) {
    value = found->second;
    return true;
  }
  return false;
}

int Assembler::register_bytes(const Operand& o) {
  if (o.kind != OperandKind::name) return -1;
  const Register* const found = find_register(o.text);
  if (found != nullptr) return found->bytes;
  const int special = special_bytes(o.text);
  return special == 0 ? -1 : special == 1 ? 0 : special;
}

Slot Assembler::source(const Operand& o, int bytes) {
  const bool wide = bytes == 8;
  switch (o.kind) {
    case OperandKind::integer:
      if (bytes == 0) return constant(o.value != 0 ? all_lanes : 0, false);
      return constant(bytes == 8 ? o.value : bytes == 4 ? o.value & 0xFFFFFFFFu : o.value & 0xFFFFu, wide);
    case OperandKind::f32:
      if (wide)
        return constant(std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(o.value)))), true);
      return constant(o.value, false);
    case OperandKind::f64:
      if (!wide) return constant(std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(o.value))), false);
      return constant(o.value, true);
    case OperandKind::name: break;
    default: throw NotThere{"'" + text_of(o) + "' cannot stand here"};
  }
  if (const Register* const found = find_register(o.text)) {
    if ((found->bytes == 0) != (bytes == 0) || (found->bytes == 8) != wide || (found->bytes == 16) != (bytes == 16))
      throw NotThere{"the register " + o.text + " has another size than the instruction"};
    if (o.inverted) {
      const Slot slot = found->slot, inverted = scratch(false);
      emit(invert, {inverted, slot}).guard = no_slot;
      return inverted;
    }
    return found->slot;
  }
  if (o.text == "WARP_SZ") return constant(warp_lanes, wide);
  if (const int special = special_bytes(o.text); special != 0) {
    if ((special == 1) != (bytes == 0) || (special == 8 && !wide)) throw NotThere{o.text + " has another size than the instruction"};
    const std::string key = o.text + (wide ? " wide" : "");
    const auto [at, added] = special_slots_.emplace(key, 0);
    if (added) {
      at->second = rows(wide ? 2 : 1);
      code_.specials.push_back({at->second, o.text});
    }
    return at->second;
  }
  std::uint64_t value = 0;
  if (symbol(o.text, value)) return constant((value + o.value) & (wide ? ~std::uint64_t{0} : 0xFFFFFFFFu), wide);
  throw NotThere{"'" + o.text + "' is not declared"};
}

Slot Assembler::destination(const Operand& o, int bytes) {
  if (o.kind == OperandKind::nothing) return scratch(bytes == 8);
  if (o.kind == OperandKind::name) {
    if (const Register* const found = find_register(o.text)) {
      if ((found->bytes == 0) != (bytes == 0) || (found->bytes == 8) != (bytes == 8) || (found->bytes == 16) != (bytes == 16))
        throw NotThere{"the register " + o.text + " has another size than the instruction"};
      return found->slot;
    }
    throw NotThere{"'" + o.text + "' is not declared"};
  }
  throw NotThere{"'" + text_of(o) + "' cannot be written"};
}

Slot Assembler::address(const Operand& o, std::uint64_t& offset) {
  if (o.kind != OperandKind::address || o.parts.empty()) throw NotThere{"expected an address in brackets, got '" + text_of(o) + "'"};
  const Operand& base = o.parts[0];
  offset = base.value;
  if (base.kind == OperandKind::integer) {
    offset = 0;
    return constant(base.value, true);
  }
  std::uint64_t value = 0;
  if (base.kind == OperandKind::name && find_register(base.text) == nullptr && symbol(base.text, value)) {
    offset = 0;
    return constant(value + base.value, true);
  }
  Operand plain = base;
  plain.value = 0;
  if (register_bytes(plain) == 8) return source(plain, 8);
  // 32 bits: of shared memory, widened for the handlers.
  const Slot narrow = source(plain, 4), wide = scratch(true);
  emit(
      [](Machine& m, const Instruction& i) { for_lanes(m.mask, [&](int lane) { m.wide(i.slots[0])[lane] = m.narrow(i.slots[1])[lane]; }); },
      {wide, narrow})
      .first = false;
  return wide;
}

Instruction& Assembler::emit(Handler run) {
  Instruction i;
  i.run = run;
  i.line = statement_->line;
  i.statement = text_;
  if (!statement_->guard.empty()) {
    const Register* const guard = find_register(statement_->guard);
    if (guard == nullptr || guard->bytes != 0) throw NotThere{"the predicate '" + statement_->guard + "' is not declared"};
    i.guard = guard->slot;
    i.guard_inverted = statement_->guard_inverted;
  }
  code_.instructions.push_back(i);
  return code_.instructions.back();
}
Instruction& Assembler::emit(Handler run, std::initializer_list<Slot> slots) {
  Instruction& i = emit(run);
  std::copy(slots.begin(), slots.end(), i.slots.begin());
  return i;
}
void Assembler::list(Instruction& i, const std::vector<Slot>& slots) {
  i.list = static_cast<std::uint32_t>(code_.lists.size());
  i.list_count = static_cast<std::uint32_t>(slots.size());
  code_.lists.insert(code_.lists.end(), slots.begin(), slots.end());
}

const std::vector<std::string>* Assembler::targets(std::string_view name) const {
  for (int scope = statement_->scope; scope >= 0; scope = function_->scopes[static_cast<std::size_t>(scope)].parent) {
    const Scope& s = function_->scopes[static_cast<std::size_t>(scope)];
    if (const auto found = s.targets.find(name); found != s.targets.end()) return &found->second;
  }
  return nullptr;
}

void Assembler::patch(std::size_t instruction, std::string_view label) {
  for (int scope = statement_->scope; scope >= 0; scope = function_->scopes[static_cast<std::size_t>(scope)].parent) {
    const Scope& s = function_->scopes[static_cast<std::size_t>(scope)];
    if (const auto found = s.labels.find(label); found != s.labels.end()) {
      patches_.push_back({instruction, found->second});
      return;
    }
  }
  fail(statement_->line, "there is no label " + std::string(label));
}

bool Assembler::is_constant(const Operand& o) const {
  return o.kind == OperandKind::f32 || o.kind == OperandKind::integer || (o.kind == OperandKind::name && constants_.count(o.text) > 0);
}

/// Registers that one move from a constant defines: the compiler knows them.
void Assembler::count_definitions(const Function& f) {
  definitions_.clear();
  constants_.clear();
  for (const Statement& s : f.statements) {
    if (s.operands.empty() || s.opcode.rfind("st.", 0) == 0) continue;
    const auto count = [&](const Operand& o) {
      if (o.kind == OperandKind::name) ++definitions_[o.text];
    };
    count(s.operands[0]);
    for (const Operand& part : s.operands[0].parts) count(part);
  }
  for (const Statement& s : f.statements) {
    if (s.opcode.rfind("mov.", 0) != 0 || s.operands.size() != 2 || !s.guard.empty() || s.operands[0].kind != OperandKind::name) continue;
    const OperandKind kind = s.operands[1].kind;
    if ((kind == OperandKind::integer || kind == OperandKind::f32) && definitions_[s.operands[0].text] == 1)
      constants_.insert(s.operands[0].text);
  }
}

// ---- variables

std::vector<std::byte> Assembler::initial(const Variable& v) const {
  const std::size_t size = bytes_of(v.type);
  if (v.elements > largest_array / size) fail(v.line, "the variable " + v.name + " is too large");
  std::vector<std::byte> bytes(v.elements * size);
  if (v.values.size() > v.elements) fail(v.line, "the variable " + v.name + " has more values than room");
  for (std::size_t i = 0; i < v.values.size(); ++i) {
    const Operand& o = v.values[i];
    std::uint64_t value = o.value;
    if (o.kind == OperandKind::name) {
      std::uint64_t base = 0;
      if (!symbol(o.text, base)) fail(v.line, "'" + o.text + "' is not declared");
      value += base;
    } else if (o.kind == OperandKind::f64 && size == 4) {
      value = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(o.value)));
    }
    std::memcpy(bytes.data() + i * size, &value, size);
  }
  return bytes;
}

void Assembler::lay_out_variables() {
  for (const Variable& v : syntax_.variables) {
    if (v.space == Space::shared) {
      if (v.external && v.elements == 0) {
        dynamic_.push_back(v.name);
        dynamic_align_ = std::max(dynamic_align_, v.align);
        continue;
      }
      globals_[v.name] = lay_out_shared(v);
    } else if (v.space == Space::global || v.space == Space::constant) {
      if (v.external && v.elements == 0) continue;
      const std::size_t offset = round_up(program_.variables.size(), v.align);
      globals_[v.name] = module_window + offset;
      const std::vector<std::byte> bytes = initial(v);
      program_.variables.resize(offset + bytes.size());
      std::copy(bytes.begin(), bytes.end(), program_.variables.begin() + static_cast<std::ptrdiff_t>(offset));
    } else {
      fail(v.line, "a variable of this space cannot stand here");
    }
  }
  for (const Function& f : syntax_.functions)
    for (const Scope& scope : f.scopes)
      for (const Variable& v : scope.variables) {
        if (v.space != Space::shared) continue;
        if (v.external && v.elements == 0) {
          dynamic_.push_back(v.name);
        } else {
          shared_of_functions_[&v] = lay_out_shared(v);
        }
      }
  static_shared_ = round_up(static_shared_, dynamic_align_);
  for (const std::string& name : dynamic_) globals_[name] = static_shared_;
}

std::uint64_t Assembler::lay_out_shared(const Variable& v) {
  const std::size_t size = v.elements * bytes_of(v.type);
  if (size > largest_array) fail(v.line, "the variable " + v.name + " is too large");
  static_shared_ = round_up(static_shared_, v.align);
  static_shared_ += size;
  return static_shared_ - size;
}

std::uint64_t Assembler::lay_out_local(const Variable& v) {
  const std::size_t size = std::max<std::size_t>(v.elements, 1) * bytes_of(v.type);
  if (size > largest_array) fail(v.line, "the variable " + v.name + " is too large");
  local_bytes_ = round_up(local_bytes_, std::max<std::size_t>(v.align, 8));
  const std::uint64_t address = local_window + local_bytes_;
  local_bytes_ += size;
  return address;
}

// ---- functions

void Assembler::order_functions(const Function& f, std::vector<const Function*>& order, std::set<std::string>& open) {
  if (std::find(order.begin(), order.end(), &f) != order.end()) return;
  if (!open.insert(f.name).second) fail(f.line, "the function " + f.name + " calls itself: that is not there");
  for (const Statement& s : f.statements) {
    if (s.opcode.rfind("call", 0) != 0) continue;
    for (const Operand& o : s.operands) {
      if (o.kind != OperandKind::name) continue;
      const auto callee =
          std::find_if(syntax_.functions.begin(), syntax_.functions.end(), [&](const Function& g) { return g.name == o.text; });
      if (callee != syntax_.functions.end() && callee->defined) order_functions(*callee, order, open);
    }
  }
  open.erase(f.name);
  order.push_back(&f);
}

void Assembler::assemble() {
  lay_out_variables();
  std::vector<const Function*> order;
  for (const Function& f : syntax_.functions) {
    std::set<std::string> open;
    // Callees first: lanes that have returned are ahead of those that are still inside, and wait for them.
    if (f.defined && !f.entry) order_functions(f, order, open);
  }
  for (const Function* f : order) assemble_function(*f, nullptr);
  for (const Function& f : syntax_.functions) {
    if (!f.entry) continue;
    if (!f.defined) fail(f.line, "the kernel " + f.name + " has no body");
    CompiledKernel kernel;
    assemble_function(f, &kernel);
    program_.kernels.push_back(std::move(kernel));
  }
  for (CompiledKernel& kernel : program_.kernels) {
    kernel.local_bytes = round_up(local_bytes_, 16);
    kernel.static_shared = static_shared_;
  }
}

void Assembler::keep_text(const Statement& s) {
  StatementText text;
  text.text = text_of(s);
  if (s.source.file != 0) {
    const auto file = syntax_.files.find(s.source.file);
    std::string name = file == syntax_.files.end() ? "file " + std::to_string(s.source.file) : file->second;
    name = name.substr(name.rfind('/') + 1);
    text.source = name + ":" + std::to_string(s.source.line);
  }
  program_.texts.push_back(std::move(text));
  text_ = static_cast<std::int32_t>(program_.texts.size() - 1);
}

void Assembler::assemble_function(const Function& f, CompiledKernel* kernel) {
  function_ = &f;
  registers_.assign(f.scopes.size(), {});
  locals_.assign(f.scopes.size(), {});
  formals_.clear();
  patches_.clear();
  in_order_ = false;
  count_definitions(f);
  const auto entry = static_cast<std::uint32_t>(next());
  std::map<std::string, std::uint64_t> opcodes;
  std::vector<std::string> missing;

  if (f.entry) {
    Kernel& shown_kernel = kernel->shown;
    shown_kernel.name = f.name;
    std::size_t offset = 0;
    for (const Variable& v : f.parameters) {
      offset = round_up(offset, v.align);
      const std::size_t bytes = std::max<std::size_t>(v.elements, 1) * bytes_of(v.type);
      formals_[v.name] = parameter_window + offset;
      shown_kernel.parameters.push_back({v.name, v.type, bytes, v.align, offset, v.pointer || (bytes == 8 && !v.array && v.type != "f64")});
      offset += bytes;
    }
    kernel->parameter_bytes = offset;
    kernel->entry = entry;
    shown_kernel.block = f.block;
    shown_kernel.max_threads = f.max_threads;
    kernel->clusters = f.cluster.count() != 1;
    if (kernel->clusters) missing.push_back("line " + std::to_string(f.line) + ": clusters of more than one block are not there");
  } else {
    Home home;
    home.entry = entry;
    for (const Variable& v : f.parameters) {
      formals_[v.name] = lay_out_local(v);
      home.parameters.push_back(formals_[v.name]);
      home.parameter_bytes.push_back(std::max<std::size_t>(v.elements, 1) * bytes_of(v.type));
    }
    for (const Variable& v : f.results) {
      formals_[v.name] = lay_out_local(v);
      home.results.push_back(formals_[v.name]);
      home.result_bytes.push_back(std::max<std::size_t>(v.elements, 1) * bytes_of(v.type));
    }
    home.return_slot = return_slot_ = rows(1);
    homes_[f.name] = home;
  }
  for (std::size_t scope = 0; scope < f.scopes.size(); ++scope)
    for (const Variable& v : f.scopes[scope].variables) {
      if (v.space == Space::local || v.space == Space::parameter) locals_[scope][v.name] = lay_out_local(v);
      if (const auto shared = shared_of_functions_.find(&v); shared != shared_of_functions_.end()) locals_[scope][v.name] = shared->second;
    }

  std::vector<std::uint32_t> where(f.statements.size() + 1);
  for (std::size_t index = 0; index < f.statements.size(); ++index) {
    const Statement& s = f.statements[index];
    where[index] = static_cast<std::uint32_t>(next());
    statement_ = &s;
    keep_text(s);
    ++opcodes[s.opcode];
    const std::size_t begin = next(), patched = patches_.size();
    try {
      assemble_statement(s);
    } catch (const NotThere& reason) {
      code_.instructions.resize(begin);
      patches_.resize(patched);
      missing.push_back("line " + std::to_string(s.line) + ": " + program_.texts.back().text +
                        (reason.what.empty() ? "" : ": " + reason.what));
      program_.texts.back().text += reason.what.empty() ? "" : " (" + reason.what + ")";
      emit(not_there);
    }
    for (std::size_t i = begin; i < next(); ++i) code_.instructions[i].first = i + 1 == next();
  }
  where[f.statements.size()] = static_cast<std::uint32_t>(next());
  // Who falls off the end leaves.
  Statement end;
  end.opcode = "ret";
  end.line = f.statements.empty() ? f.line : f.statements.back().line;
  statement_ = &end;
  keep_text(end);
  assemble_statement(end);
  for (const Patch& p : patches_) {
    if (p.list != SIZE_MAX) {
      code_.lists[p.list] = where[p.statement];
    } else {
      code_.instructions[p.instruction].target = where[p.statement];
    }
  }
  statement_ = nullptr;
  if (kernel != nullptr) {
    kernel->in_order = in_order_;
    for (const auto& [name, home] : homes_) kernel->in_order = kernel->in_order || home.in_order;
    kernel->shown.instructions = std::move(opcodes);
    kernel->shown.missing = std::move(missing);
    kernel->shown.dynamic_shared = !dynamic_.empty();
  } else {
    homes_[f.name].in_order = in_order_;
  }
}

void Assembler::assemble_statement(const Statement& s) {
  const Opcode op(s.opcode);
  for (const FamilyName& f : families)
    if (f.opcode == op.name()) {
      if (f.family(*this, s, op)) return;
      break;
    }
  const Operation* const operation = find_operation(s.opcode);
  if (operation == nullptr) throw NotThere{};
  if (s.operands.size() != static_cast<std::size_t>(operation->sources) + 1) throw NotThere{"the number of operands is another"};
  std::array<Slot, 6> slots{};
  for (std::size_t k = 1; k < s.operands.size(); ++k) slots[k] = source(s.operands[k], operation->bytes[k]);
  slots[0] = destination(s.operands[0], operation->bytes[0]);
  Instruction& i = emit(operation->run);
  i.slots = slots;
  i.width = operation->bytes[0];
  i.sources = static_cast<std::uint8_t>(operation->sources);
  i.family = op.name() == "mov" ? InstructionFamily::move : InstructionFamily::plain;
}

void Assembler::call(const Statement& s) {
  std::string callee;
  const Operand *results = nullptr, *arguments = nullptr;
  for (const Operand& o : s.operands) {
    if (o.kind == OperandKind::vector) {
      (callee.empty() ? results : arguments) = &o;
    } else if (o.kind == OperandKind::name && callee.empty()) {
      callee = o.text;
    }
  }
  if (callee == "__assertfail" || callee == "__assert_fail") {
    emit([](Machine& m, const Instruction& i) {
      m.finding("assertion", "", "", std::countr_zero(m.mask), i);
      m.leave();
    });
    return;
  }
  if (callee == "vprintf") return;
  const auto found = homes_.find(callee);
  if (found == homes_.end()) throw NotThere{"the function " + callee + " is not there"};
  const Home& home = found->second;
  struct Copy {
    static void run(Machine& m, const Instruction& i) {
      for_lanes(m.mask, [&](int lane) {
        std::byte* const base = m.warp->local.data() + static_cast<std::size_t>(lane) * m.launch().kernel->local_bytes;
        std::memcpy(base + (i.immediate & 0xFFFFFFFFu), base + (i.flags & 0xFFFFFFFFu), i.target);
      });
    }
  };
  const auto copy = [&](std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    Instruction& i = emit(Copy::run);
    i.immediate = to;
    i.flags = from;
    i.target = static_cast<std::uint32_t>(bytes);
  };
  const auto place = [&](const Operand& o) {
    std::uint64_t address = 0;
    if (o.kind != OperandKind::name || !symbol(o.text, address)) throw NotThere{"'" + text_of(o) + "' is no parameter"};
    return address;
  };
  const std::size_t given = arguments == nullptr ? 0 : arguments->parts.size(), wanted = results == nullptr ? 0 : results->parts.size();
  if (given != home.parameters.size() || wanted != home.results.size()) throw NotThere{"the number of parameters is another"};
  for (std::size_t k = 0; k < given; ++k) copy(home.parameters[k], place(arguments->parts[k]), home.parameter_bytes[k]);
  Instruction& i = emit([](Machine& m, const Instruction& j) {
    for_lanes(m.mask, [&](int lane) { m.narrow(j.slots[0])[lane] = j.immediate & 0xFFFFFFFFu; });
    m.branch(j.target);
  });
  i.slots[0] = home.return_slot;
  i.target = home.entry;
  i.immediate = next();
  for (std::size_t k = 0; k < wanted; ++k) copy(place(results->parts[k]), home.results[k], home.result_bytes[k]);
}

namespace {

/// The open sums of a kernel, and of the functions that it may call.
std::vector<OpenReading> open_of(const Syntax& syntax, const std::string& kernel) {
  std::vector<OpenReading> open;
  for (const Function& f : syntax.functions) {
    if (f.entry && f.name != kernel) continue;
    for (const Absorption& a : open_sums(f)) open.push_back(told(f, a));
  }
  return open;
}

std::vector<std::size_t> places_of(const Syntax& syntax, bool all) {
  std::vector<std::size_t> places;
  for (const Function& f : syntax.functions)
    for (const Absorption& a : open_sums(f))
      if (all || a.customary) places.push_back(f.statements[a.sum].begin);
  return places;
}

}  // namespace

Program compile_fused(Syntax syntax, const std::vector<std::size_t>& places) {
  std::map<std::string, std::vector<OpenReading>> open;
  for (const Function& f : syntax.functions)
    if (f.entry) open[f.name] = open_of(syntax, f.name);
  for (Function& f : syntax.functions) {
    fuse_sums(f, places);
    contract_quotients(f);
  }
  Program program;
  program.name = syntax.name;
  program.version = syntax.version;
  program.target = syntax.target;
  Assembler(syntax, program, program.code).assemble();
  if (program.kernels.empty()) throw Error(ErrorCode::bad_file, "", syntax.name, "has no kernel (.entry)");
  for (CompiledKernel& kernel : program.kernels) {
    kernel.shown.static_shared = kernel.static_shared;
    kernel.shown.open = std::move(open[kernel.shown.name]);
    for (OpenReading& o : kernel.shown.open) o.fused = std::find(places.begin(), places.end(), o.place) != places.end();
    program.shown.push_back(kernel.shown);
  }
  return program;
}

Program compile(Syntax syntax, std::string_view text) {
  Program program = compile_fused(syntax, places_of(syntax, false));
  const bool some = std::any_of(program.shown.begin(), program.shown.end(), [](const Kernel& k) { return !k.open.empty(); });
  if (some) {
    program.syntax = std::make_shared<const Syntax>(std::move(syntax));
    program.source = text;
  }
  return program;
}

std::shared_ptr<const Program> reading_of(const std::shared_ptr<const Program>& program, const Launch& launch) {
  if (program->syntax == nullptr || (launch.contract == Contract::customary && !launch.fused)) return program;
  std::vector<std::size_t> places;
  if (launch.fused) {
    places = *launch.fused;
  } else if (launch.contract == Contract::on) {
    places = places_of(*program->syntax, true);
  }
  return std::make_shared<const Program>(compile_fused(*program->syntax, places));
}

}  // namespace dodona::ptx
