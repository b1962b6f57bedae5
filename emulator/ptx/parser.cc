#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/opcodes.h"
#include "brigade/emulator/ptx/tokens.h"

namespace brigade::emulator {
namespace {

// Registers, predicates and constants of a kernel are numbered by 16 bits.
constexpr int kMostOperands = 1 << 16;
// Of shared or local memory, or of a variable.
constexpr int64_t kMostBytes = int64_t{1} << 28;
// Of CUDA from 12.1 on.
constexpr int64_t kMostParameterBytes = 32764;
constexpr size_t kMostDepth = 64;
// Between variables in shared memory: a row of banks.
constexpr int64_t kSharedGap = 128;

// What a name stands for.
struct Symbol {
  enum class Kind : uint8_t { kRegister, kPredicate, kAddress, kVariable };

  Kind kind = Kind::kRegister;
  Operand operand = 0;
  // Of kRegister.
  int bytes = 0;
  // Of kAddress: in its space.
  int64_t address = 0;
  // Of kVariable: index of Module::variables.
  int variable = -1;
};

// Names between braces.
struct Scope {
  std::map<std::string, Symbol, std::less<>> symbols;
  // %r<8> declares %r0 to %r7, which get their operands where they first occur.
  struct Range {
    int count = 0;
    // Of each; 0: predicates.
    int bytes = 0;
  };
  std::map<std::string, Range, std::less<>> ranges;
  // Indices of Kernel::code.
  std::map<std::string, size_t, std::less<>> labels;
};

// An operand as it is written.
struct Written {
  int line = 0;
  bool is_negated = false;
  bool is_address = false;
  bool is_vector = false;
  // One, or the parts of a vector, or the base of an address.
  std::vector<std::string> words;
  // After a |.
  std::string second;
  int64_t offset = 0;
};

// -1 for what is no directive of a size in bytes.
int SizeOfType(absl::string_view type) {
  if (type == ".b8" || type == ".u8" || type == ".s8") return 1;
  if (type == ".b16" || type == ".u16" || type == ".s16" || type == ".f16" || type == ".bf16") {
    return 2;
  }
  if (type == ".b32" || type == ".u32" || type == ".s32" || type == ".f32") return 4;
  if (type == ".b64" || type == ".u64" || type == ".s64" || type == ".f64") return 8;
  return -1;
}

constexpr std::pair<absl::string_view, Special> kSpecials[] = {
    {"%tid.x", Special::kTidX},
    {"%tid.y", Special::kTidY},
    {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX},
    {"%ntid.y", Special::kNtidY},
    {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX},
    {"%ctaid.y", Special::kCtaidY},
    {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX},
    {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ},
    {"%laneid", Special::kLaneid},
    {"%warpid", Special::kWarpid},
    {"%nwarpid", Special::kNwarpid},
    {"%lanemask_lt", Special::kLanemaskLt},
    {"%lanemask_le", Special::kLanemaskLe},
    {"%lanemask_eq", Special::kLanemaskEq},
    {"%lanemask_ge", Special::kLanemaskGe},
    {"%lanemask_gt", Special::kLanemaskGt},
};

// Beginnings of the names of those that a device made of software does not have.
constexpr absl::string_view kUnknownSpecials[] = {
    "%clock", "%smid",    "%nsmid", "%globaltimer",   "%gridid",  "%envreg",   "%pm",
    "%total", "%dynamic", "%aggr",  "%reserved_smem", "%cluster", "%ncluster", "%is_explicit"};

// The first error ends it: every function that returns bool says whether to go on.
class Parser {
 public:
  Parser(absl::string_view text, absl::string_view file, std::vector<Token> tokens,
         UnknownKernels unknown)
      : tokens_(std::move(tokens)), unknown_(unknown), module_(std::make_shared<Module>()) {
    module_->file = std::string(file);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      module_->lines.emplace_back(absl::StripAsciiWhitespace(line));
    }
  }

  absl::StatusOr<std::shared_ptr<const Module>> Run() {
    scopes_.emplace_back();
    while (!AtEnd()) {
      if (!ParseModuleItem()) return error_;
    }
    return std::shared_ptr<const Module>(module_);
  }

 private:
  // Tokens.
  bool AtEnd() const { return next_ >= tokens_.size(); }
  absl::string_view Peek(size_t ahead = 0) const {
    return next_ + ahead < tokens_.size() ? tokens_[next_ + ahead].text : "";
  }
  int line() const {
    if (tokens_.empty()) return 0;
    return tokens_[std::min(next_, tokens_.size() - 1)].line;
  }
  absl::string_view Next() {
    const absl::string_view text = Peek();
    ++next_;
    return text;
  }
  bool Take(absl::string_view text) {
    if (AtEnd() || Peek() != text) return false;
    ++next_;
    return true;
  }

  // Errors.
  bool Fail(absl::StatusCode code, int at, absl::string_view what) {
    absl::string_view text;
    if (at > 0 && static_cast<size_t>(at) <= module_->lines.size()) {
      text = module_->lines[static_cast<size_t>(at) - 1];
    }
    error_ = absl::Status(
        code, absl::StrCat(module_->file, ":", at, ": ", what, ": ", text.substr(0, 200)));
    return false;
  }
  bool Invalid(absl::string_view what) {
    return Fail(absl::StatusCode::kInvalidArgument, line(), what);
  }
  bool Unknown(absl::string_view what) {
    return Fail(absl::StatusCode::kUnimplemented, line(),
                absl::StrCat("the emulator does not know ", what));
  }
  bool Expect(absl::string_view text) {
    if (Take(text)) return true;
    return Invalid(absl::StrCat("'", text, "' is missing before '", Peek(), "'"));
  }

  // Numbers.
  bool ParseCount(int64_t least, int64_t most, int64_t& count) {
    const std::optional<uint64_t> number = ParseNumber(Peek());
    if (!number.has_value() || *number < static_cast<uint64_t>(least) ||
        *number > static_cast<uint64_t>(most)) {
      return Invalid(absl::StrCat("not a number from ", least, " to ", most, ": '", Peek(), "'"));
    }
    count = static_cast<int64_t>(*number);
    ++next_;
    return true;
  }

  bool SkipTo(absl::string_view text) {
    while (!AtEnd()) {
      if (Next() == text) return true;
    }
    return Invalid(absl::StrCat("'", text, "' is missing"));
  }
  bool SkipBraces() {
    if (!SkipTo("{")) return false;
    for (int depth = 1; depth > 0;) {
      if (AtEnd()) return Invalid("'}' is missing");
      const absl::string_view text = Next();
      if (text == "{") ++depth;
      if (text == "}") --depth;
    }
    return true;
  }

  bool ParseModuleItem() {
    const absl::string_view word = Peek();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      const int at = line();
      if (word == ".target") {
        absl::string_view digits = Peek(1);
        absl::ConsumePrefix(&digits, "sm_");
        module_->architecture = static_cast<int>(
            ParseNumber(digits.substr(0, digits.find_last_of("0123456789") + 1)).value_or(0));
      }
      while (!AtEnd() && line() == at) ++next_;
      return true;
    }
    if (word == ".file") return ParseFile();
    if (word == ".pragma") return SkipTo(";");
    if (word == ".section") return SkipBraces();
    if (word == ".visible" || word == ".weak" || word == ".common") {
      ++next_;
      return true;
    }
    if (word == ".extern") {
      ++next_;
      is_extern_ = true;
      return true;
    }
    if (word == ".entry") return ParseKernel();
    if (word == ".func") return ParseFunction();
    if (word == ".global" || word == ".const" || word == ".shared") {
      return ParseVariable(nullptr);
    }
    return Unknown(absl::StrCat("'", word, "' here"));
  }

  bool ParseFile() {
    ++next_;
    int64_t number = 0;
    if (!ParseCount(0, 65535, number)) return false;
    absl::string_view name = Next();
    if (!absl::ConsumePrefix(&name, "\"") || !absl::ConsumeSuffix(&name, "\"")) {
      return Invalid("the name of the file is missing");
    }
    module_->files[static_cast<int>(number)] = std::string(name);
    while (Take(",")) ++next_;
    return true;
  }

  // A declaration may stay: calling it is what the emulator does not know.
  bool ParseFunction() {
    is_extern_ = false;
    while (!AtEnd()) {
      if (Peek() == ";") {
        ++next_;
        return true;
      }
      if (Peek() == "{") return SkipBraces();
      ++next_;
    }
    return Invalid("';' is missing");
  }

  // .align 8 .b8 name[1024] = {...}; in `kernel`, or for all if that is null.
  bool ParseVariable(Kernel* kernel) {
    const bool is_extern = std::exchange(is_extern_, false);
    const absl::string_view space = Next();
    int64_t alignment = 1, bytes = 0, count = 1;
    if (Take(".align") && !ParseCount(1, 1 << 20, alignment)) return false;
    const int size = SizeOfType(Peek());
    if (size < 0) return Unknown(absl::StrCat("a variable of type '", Peek(), "'"));
    ++next_;
    alignment = std::max<int64_t>(alignment, size);
    const std::string name(Next());
    bool is_dynamic = false;
    while (Take("[")) {
      if (Take("]")) {
        is_dynamic = true;
        continue;
      }
      int64_t elements = 0;
      if (!ParseCount(0, kMostBytes / std::max<int64_t>(count, 1), elements)) return false;
      count *= elements;
      if (!Expect("]")) return false;
    }
    bytes = count * size;
    if (bytes > kMostBytes) return Invalid("the variable is too large");
    std::vector<uint8_t> initial;
    if (Take("=") && !ParseInitial(size, bytes, initial)) return false;
    if (!Expect(";")) return false;
    Symbol symbol;
    if (space == ".shared" || space == ".local") {
      if (kernel == nullptr) {
        module_shared_.push_back({name, alignment, is_dynamic || is_extern ? 0 : bytes});
        return true;
      }
      symbol = space == ".shared" ? PlaceShared(*kernel, name, alignment, bytes)
                                  : Place(alignment, bytes, kernel->local_bytes);
    } else {
      if (is_extern) return Unknown("a variable of another module");
      symbol = {.kind = Symbol::Kind::kVariable,
                .variable = static_cast<int>(module_->variables.size())};
      module_->variables.push_back({name, bytes, alignment, std::move(initial)});
    }
    scopes_.back().symbols[name] = symbol;
    return true;
  }

  // The first place behind the shared variables of a kernel, and behind a gap.
  static int64_t EndOfShared(const Kernel& kernel, int64_t alignment) {
    if (kernel.shared.empty()) return 0;
    const SharedVariable& last = kernel.shared.back();
    const int64_t step = std::max(alignment, kSharedGap);
    return (last.offset + last.bytes + kSharedGap + step - 1) / step * step;
  }
  static Symbol PlaceShared(Kernel& kernel, const std::string& name, int64_t alignment,
                            int64_t bytes) {
    const int64_t offset = EndOfShared(kernel, alignment);
    kernel.shared.push_back({name, offset, bytes});
    return {.kind = Symbol::Kind::kAddress, .address = offset};
  }

  static Symbol Place(int64_t alignment, int64_t bytes, int64_t& used) {
    used = (used + alignment - 1) / alignment * alignment;
    const Symbol symbol = {.kind = Symbol::Kind::kAddress, .address = used};
    used += bytes;
    return symbol;
  }

  bool ParseInitial(int size, int64_t bytes, std::vector<uint8_t>& initial) {
    const bool in_braces = Take("{");
    do {
      if (in_braces && Peek() == "}") break;
      const bool is_negative = Take("-");
      std::optional<uint64_t> number = ParseNumber(Peek());
      if (!number.has_value()) return Unknown(absl::StrCat("an initial value '", Peek(), "'"));
      ++next_;
      if (is_negative) number = ~*number + 1;
      if (static_cast<int64_t>(initial.size()) + size > bytes) return Invalid("too many values");
      for (int i = 0; i < size; ++i) initial.push_back(static_cast<uint8_t>(*number >> (8 * i)));
    } while (in_braces && Take(","));
    return !in_braces || Expect("}");
  }

  // Kernels.
  bool ParseKernel() {
    is_extern_ = false;
    ++next_;
    Kernel kernel;
    kernel.name = std::string(Next());
    scopes_.emplace_back();
    branches_.clear();
    constant_of_.clear();
    special_of_.clear();
    source_ = {};
    caller_ = {};
    if (Take("(") && !ParseParameters(kernel)) return false;
    while (!AtEnd() && Peek() != "{") {
      if (Take(".maxntid") || Take(".reqntid")) {
        int64_t threads = 1, axis = 1, axes = 0;
        do {
          if (++axes > 3) return Invalid("more than three axes");
          if (!ParseCount(1, 1024, axis)) return false;
          threads *= axis;
        } while (Take(","));
        kernel.most_threads = static_cast<int>(std::min<int64_t>(threads, 1024));
      } else if (Take(".minnctapersm") || Take(".maxnreg")) {
        ++next_;  // of performance
      } else {
        return Unknown(absl::StrCat("'", Peek(), "' here"));
      }
    }
    const size_t body = next_;
    if (!Expect("{")) return false;
    if (!ParseBody(kernel) && !KeepUnknown(kernel, body)) return false;
    scopes_.pop_back();
    // The end of the text leaves the kernel.
    Instruction last = {};
    last.control = Control::kExit;
    last.mnemonic = MnemonicOf("ret");
    last.line = static_cast<uint32_t>(line());
    kernel.code.push_back(last);
    PlaceDynamicShared(kernel);
    module_->kernels.push_back(std::move(kernel));
    return true;
  }

  // What the parser stopped at is unknown: leaves out the kernel's body.
  bool KeepUnknown(Kernel& kernel, size_t body) {
    if (unknown_ == UnknownKernels::kRefuse || !absl::IsUnimplemented(error_)) return false;
    kernel.unknown = std::exchange(error_, absl::OkStatus());
    kernel.code.clear();
    kernel.constants.clear();
    kernel.specials.clear();
    dynamic_.clear();
    scopes_.resize(2);
    next_ = body;
    return SkipBraces();
  }

  // Dynamic shared memory begins where the static one ends.
  void PlaceDynamicShared(Kernel& kernel) {
    int64_t alignment = 1;
    for (const SharedOfModule& shared : module_shared_) {
      if (shared.bytes == 0) alignment = std::max(alignment, shared.alignment);
    }
    kernel.dynamic_shared.offset = EndOfShared(kernel, alignment);
    for (const size_t constant : dynamic_) {
      kernel.constants[constant].value += static_cast<uint64_t>(kernel.dynamic_shared.offset);
    }
    dynamic_.clear();
  }

  bool ParseParameters(Kernel& kernel) {
    while (!Take(")")) {
      int64_t alignment = 1, count = 1;
      if (!Expect(".param")) return false;
      int size = -1;
      while (size < 0 && !AtEnd()) {
        if (Take(".align")) {
          if (!ParseCount(1, 4096, alignment)) return false;
        } else if (Peek() == ".ptr") {
          // What a pointer parameter points to.
          while (!AtEnd() && absl::StartsWith(Peek(), ".") && SizeOfType(Peek()) < 0) {
            if (Next() == ".align") ++next_;
          }
        } else {
          size = SizeOfType(Peek());
          if (size < 0) return Unknown(absl::StrCat("a parameter of type '", Peek(), "'"));
          ++next_;
        }
      }
      if (Take(".ptr")) {
        while (absl::StartsWith(Peek(), ".")) {
          if (Next() == ".align") ++next_;
        }
      }
      const std::string name(Next());
      if (Take("[")) {
        if (!ParseCount(0, kMostBytes, count) || !Expect("]")) return false;
      }
      alignment = std::max<int64_t>(alignment, size);
      const Symbol symbol = Place(alignment, count * size, kernel.parameter_bytes);
      if (kernel.parameter_bytes > kMostParameterBytes) {
        return Invalid("the parameters are too large");
      }
      kernel.parameters.push_back({name, symbol.address, count * size});
      scopes_.back().symbols[name] = symbol;
      if (Peek() != ")" && !Expect(",")) return false;
    }
    return true;
  }

  // Statements up to the brace that ends them.
  bool ParseBody(Kernel& kernel) {
    for (size_t depth = 1; depth > 0;) {
      if (AtEnd()) return Invalid("'}' is missing");
      if (Take("{")) {
        if (++depth > kMostDepth) return Unknown("braces so deep");
        scopes_.emplace_back();
      } else if (Take("}")) {
        if (!ResolveBranches(kernel, depth == 1)) return false;
        if (--depth > 0) scopes_.pop_back();
      } else if (Peek(1) == ":") {
        const std::string label(Next());
        if (!scopes_.back().labels.emplace(label, kernel.code.size()).second) {
          return Invalid(absl::StrCat("a second label '", label, "'"));
        }
        ++next_;
      } else if (Peek() == ".reg") {
        if (!ParseRegisters(kernel)) return false;
      } else if (Peek() == ".shared" || Peek() == ".local") {
        if (!ParseVariable(&kernel)) return false;
      } else if (Peek() == ".loc") {
        if (!ParseLocation()) return false;
      } else if (Peek() == ".pragma") {
        if (!SkipTo(";")) return false;
      } else if (absl::StartsWith(Peek(), ".")) {
        return Unknown(absl::StrCat("'", Peek(), "' here"));
      } else if (!Take(";") && !ParseInstruction(kernel)) {
        return false;
      }
    }
    return true;
  }

  // At the end of a scope: its labels are known. In the last one every branch must find its own.
  bool ResolveBranches(Kernel& kernel, bool is_last) {
    std::vector<Branch> left;
    for (Branch& branch : branches_) {
      const auto found = scopes_.back().labels.find(branch.label);
      if (found != scopes_.back().labels.end() && branch.depth >= scopes_.size()) {
        kernel.code[branch.instruction].target = static_cast<uint32_t>(found->second);
      } else if (is_last) {
        return Fail(absl::StatusCode::kInvalidArgument, branch.line,
                    absl::StrCat("there is no label '", branch.label, "'"));
      } else {
        // Not of a scope that has ended: the next one that does is the one around it.
        branch.depth = std::min(branch.depth, scopes_.size() - 1);
        left.push_back(std::move(branch));
      }
    }
    branches_ = std::move(left);
    return true;
  }

  bool ParseLocation() {
    const int at = line();
    ++next_;
    int64_t file = 0, source_line = 0;
    if (!ParseCount(0, 65535, file) || !ParseCount(0, 1 << 30, source_line)) return false;
    source_ = {static_cast<uint16_t>(file), static_cast<uint32_t>(source_line)};
    caller_ = {};
    // The column, the name of a function, and where that is inlined.
    while (!AtEnd() && line() == at) {
      if (Next() != "inlined_at") continue;
      if (!ParseCount(0, 65535, file) || !ParseCount(0, 1 << 30, source_line)) return false;
      caller_ = {static_cast<uint16_t>(file), static_cast<uint32_t>(source_line)};
    }
    return true;
  }

  bool ParseRegisters(Kernel& kernel) {
    ++next_;
    const absl::string_view type = Next();
    const int bytes = type == ".pred" ? 0 : SizeOfType(type);
    if (bytes < 0) {
      return Unknown(absl::StrCat("a register of type '", type, "'"));
    }
    do {
      const std::string name(Next());
      int64_t count = 0;
      if (Take("<")) {
        if (!ParseCount(0, 1 << 24, count) || !Expect(">")) return false;
        scopes_.back().ranges[name] = {static_cast<int>(count), bytes};
      } else if (!Declare(kernel, name, bytes, scopes_.back())) {
        return false;
      }
    } while (Take(","));
    return Expect(";");
  }

  // A register of `bytes`, or a predicate.
  bool Declare(Kernel& kernel, const std::string& name, int bytes, Scope& scope) {
    const bool is_predicate = bytes == 0;
    int& count = is_predicate ? kernel.predicates : kernel.registers;
    if (count >= kMostOperands) return Unknown("a kernel with so many registers");
    scope.symbols[name] = {is_predicate ? Symbol::Kind::kPredicate : Symbol::Kind::kRegister,
                           static_cast<Operand>(count++), bytes};
    return true;
  }

  // Null, without an error, if there is none of that name.
  const Symbol* Find(Kernel& kernel, const std::string& name) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      auto found = scope->symbols.find(name);
      if (found != scope->symbols.end()) return &found->second;
      const auto range = scope->ranges.find(name.substr(0, digits));
      int number = 0;
      if (range == scope->ranges.end() || !absl::SimpleAtoi(name.substr(digits), &number) ||
          number >= range->second.count) {
        continue;
      }
      if (!Declare(kernel, name, range->second.bytes, *scope)) return nullptr;
      return &scope->symbols[name];
    }
    return nullptr;
  }

  bool ParseInstruction(Kernel& kernel) {
    const int at = statement_line_ = line();
    Instruction guard = {};
    if (Take("@")) {
      guard.guard_is_negated = Take("!");
      const std::string name(Next());
      const Symbol* symbol = Find(kernel, name);
      if (symbol == nullptr || symbol->kind != Symbol::Kind::kPredicate) {
        return Fail(absl::StatusCode::kInvalidArgument, at,
                    absl::StrCat("'", name, "' is no predicate"));
      }
      guard.guard = symbol->operand;
    }
    const std::string mnemonic(Next());
    // What is unknown may have operands of any form. Of mov they say what it does.
    const bool is_move = absl::StartsWith(mnemonic, "mov.");
    Decoded decoded;
    if (!is_move && !DecodeAt(at, mnemonic, MovShape::kPlain, 0, decoded)) return false;
    std::vector<Written> written;
    while (!Take(";")) {
      if (AtEnd()) return Invalid("';' is missing");
      if (!written.empty() && !Expect(",")) return false;
      if (!ParseOperand(written.emplace_back())) return false;
    }
    if (is_move) {
      MovShape shape = MovShape::kPlain;
      size_t pieces = 0;
      if (written.size() == 2) {
        if (written[0].is_vector) shape = MovShape::kUnpack, pieces = written[0].words.size();
        if (written[1].is_vector) shape = MovShape::kPack, pieces = written[1].words.size();
      }
      if (!DecodeAt(at, mnemonic, shape, static_cast<int>(pieces), decoded)) return false;
    }
    Instruction& it = decoded.instruction;
    it.guard = guard.guard;
    it.guard_is_negated = guard.guard_is_negated;
    it.mnemonic = MnemonicOf(mnemonic);
    it.line = static_cast<uint32_t>(at);
    it.source = source_;
    it.caller = caller_;
    if (!Resolve(kernel, decoded, written, it)) {
      if (error_.ok()) {
        return Fail(absl::StatusCode::kInvalidArgument, at,
                    absl::StrCat("operands that ", mnemonic, " does not have"));
      }
      return false;
    }
    kernel.spins = kernel.spins || (it.is_synchronizing && it.control == Control::kNone);
    if (it.control == Control::kBranch) {
      branches_.push_back({kernel.code.size(), written[0].words[0], at, scopes_.size()});
    }
    kernel.code.push_back(it);
    return true;
  }

  bool DecodeAt(int at, const std::string& mnemonic, MovShape shape, int pieces, Decoded& decoded) {
    auto found = Decode(mnemonic, shape, pieces);
    if (!found.ok()) return Fail(found.status().code(), at, found.status().message());
    decoded = *std::move(found);
    return true;
  }

  bool ParseOperand(Written& written) {
    written.line = line();
    if (Take("{")) {
      written.is_vector = true;
      do {
        written.words.emplace_back(Next());
      } while (Take(","));
      return Expect("}");
    }
    written.is_address = Take("[");
    written.is_negated = Take("!");
    const bool is_minus = Take("-");
    written.words.push_back(absl::StrCat(is_minus ? "-" : "", std::string(Next())));
    if (Take("|")) written.second = std::string(Next());
    if (written.is_address) {
      if (Take("+")) {
        const bool is_negative = Take("-");
        const std::optional<uint64_t> offset = ParseNumber(Peek());
        if (!offset.has_value()) return Invalid(absl::StrCat("not an offset: '", Peek(), "'"));
        ++next_;
        written.offset = static_cast<int64_t>(is_negative ? ~*offset + 1 : *offset);
      }
      return Expect("]");
    }
    return true;
  }

  uint16_t MnemonicOf(const std::string& mnemonic) {
    auto& all = module_->mnemonics;
    const auto [found, is_new] =
        mnemonic_numbers_.try_emplace(mnemonic, static_cast<uint16_t>(all.size()));
    if (is_new) all.push_back(mnemonic);
    return found->second;
  }

  // Matches what is written with what the instruction has.
  bool Resolve(Kernel& kernel, const Decoded& decoded, const std::vector<Written>& written,
               Instruction& it) {
    const std::vector<OperandKind>& kinds = decoded.operands;
    const bool is_short = !kinds.empty() && kinds.back() == OperandKind::kOptionalSource &&
                          written.size() + 1 == kinds.size();
    if (kinds.size() != written.size() && !is_short) return false;
    size_t next = 0;
    const auto add = [&](Operand operand, bool is_written = false, bool is_predicate = false) {
      if (next >= Instruction::kMostOperands) return false;
      it.written = static_cast<uint16_t>(it.written | is_written << next);
      it.predicates = static_cast<uint16_t>(it.predicates | is_predicate << next);
      it.operands[next++] = operand;
      it.operand_count = static_cast<uint8_t>(next);
      return true;
    };
    constexpr bool kWritten = true, kPredicate = true;
    bool has_address = false;
    for (size_t i = 0; i < kinds.size(); ++i) {
      Operand operand = 0;
      if (i == written.size()) {
        const uint64_t whole = it.element_bytes;
        return Constant(kernel, {.value = whole}, operand) && add(operand);
      }
      const Written& w = written[i];
      const bool is_plain = !w.is_address && !w.is_vector;
      const bool has_second = kinds[i] == OperandKind::kDestinationAndPredicate ||
                              kinds[i] == OperandKind::kTwoPredicates;
      if (w.is_negated && kinds[i] != OperandKind::kSourcePredicate) return false;
      if (!w.second.empty() && !has_second) return false;
      for (const std::string& word : w.words) {
        if (!HasBytes(kernel, word, decoded.bytes[i])) {
          return Fail(absl::StatusCode::kInvalidArgument, w.line,
                      absl::StrCat("the register ", word, " has another size"));
        }
      }
      const auto of_kind = [&](const std::string& name, Symbol::Kind kind) {
        if (name == "_") {
          operand = 0;
          return true;
        }
        const Symbol* symbol = Find(kernel, name);
        if (symbol == nullptr || symbol->kind != kind) return false;
        operand = symbol->operand;
        return true;
      };
      switch (kinds[i]) {
        case OperandKind::kDestination:
          if (!is_plain || !of_kind(w.words[0], Symbol::Kind::kRegister) ||
              !add(operand, kWritten)) {
            return false;
          }
          break;
        case OperandKind::kSource:
        case OperandKind::kOptionalSource:
          if (!is_plain || !Source(kernel, w.words[0], operand) || !add(operand)) return false;
          break;
        case OperandKind::kSourcePredicate:
          if (const auto number = ParseNumber(absl::StripPrefix(w.words[0], "-"));
              is_plain && number.has_value()) {
            // Predicate 0 is true.
            if (*number == 0) it.negated = static_cast<uint16_t>(it.negated | 1 << next);
            if (!add(0, !kWritten, kPredicate)) return false;
            break;
          }
          [[fallthrough]];
        case OperandKind::kDestinationPredicate:
          if (!is_plain || !of_kind(w.words[0], Symbol::Kind::kPredicate)) return false;
          if (w.is_negated) it.negated = static_cast<uint16_t>(it.negated | 1 << next);
          if (!add(operand, kinds[i] == OperandKind::kDestinationPredicate, kPredicate)) {
            return false;
          }
          break;
        case OperandKind::kDestinationAndPredicate:
        case OperandKind::kTwoPredicates:
          if (!is_plain ||
              !of_kind(w.words[0], kinds[i] == OperandKind::kTwoPredicates
                                       ? Symbol::Kind::kPredicate
                                       : Symbol::Kind::kRegister) ||
              !add(operand, kWritten, kinds[i] == OperandKind::kTwoPredicates)) {
            return false;
          }
          if (!of_kind(w.second.empty() ? "_" : w.second, Symbol::Kind::kPredicate) ||
              !add(operand, kWritten, kPredicate)) {
            return false;
          }
          break;
        case OperandKind::kDestinationVector:
        case OperandKind::kSourceVector:
          if (w.is_address) return false;
          if (w.words.size() !=
              (decoded.sizes.empty() ? it.elements : static_cast<size_t>(decoded.sizes[i]))) {
            return false;
          }
          for (const std::string& word : w.words) {
            const bool found = kinds[i] == OperandKind::kSourceVector
                                   ? Source(kernel, word, operand)
                                   : of_kind(word, Symbol::Kind::kRegister);
            if (!found || !add(operand, kinds[i] == OperandKind::kDestinationVector)) return false;
          }
          break;
        case OperandKind::kAddress:
          if (!w.is_address || !Source(kernel, w.words[0], operand) || !add(operand)) return false;
          (has_address ? it.second_offset : it.offset) = w.offset;
          has_address = true;
          break;
        case OperandKind::kCopyBytes: {
          const uint64_t bytes = ParseNumber(w.words[0]).value_or(0);
          if (!is_plain || (bytes != 4 && bytes != 8 && bytes != 16)) return false;
          // An instruction that knows the number knows no other.
          if (it.element_bytes != 0 && it.element_bytes != bytes) return false;
          it.element_bytes = static_cast<uint8_t>(bytes);
          break;
        }
        case OperandKind::kLabel:
          if (!is_plain) return false;
          break;
        case OperandKind::kBarrierZero:
          if (!is_plain || ParseNumber(w.words[0]) != uint64_t{0}) {
            return Fail(absl::StatusCode::kUnimplemented, w.line,
                        "the emulator knows no barrier but 0");
          }
          break;
      }
    }
    return true;
  }

  // Whether a word is no register, or one of that size.
  bool HasBytes(Kernel& kernel, const std::string& word, int bytes) {
    if (bytes == 0 || word.empty() || word[0] != '%') return true;
    const Symbol* symbol = Find(kernel, word);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kRegister) return true;
    return bytes < 0 ? symbol->bytes >= -bytes : symbol->bytes == bytes;
  }

  // A register, a number, a special register, or the address of a variable.
  bool Source(Kernel& kernel, const std::string& word, Operand& operand) {
    absl::string_view digits = word;
    const bool is_negative = absl::ConsumePrefix(&digits, "-");
    if (const std::optional<uint64_t> number = ParseNumber(digits); number.has_value()) {
      return Constant(kernel, {.value = is_negative ? ~*number + 1 : *number}, operand);
    }
    if (is_negative) return false;
    if (word == "WARP_SZ") return Constant(kernel, {.value = kLanes}, operand);
    for (const auto& [name, special] : kSpecials) {
      if (word != name) continue;
      const auto [found, is_new] = special_of_.try_emplace(special, Operand{0});
      if (is_new) {
        if (!NewRegister(kernel, found->second)) return false;
        kernel.specials.push_back({found->second, special});
      }
      operand = found->second;
      return true;
    }
    const Symbol* symbol = Find(kernel, word);
    if (symbol == nullptr) {
      for (const absl::string_view unknown : kUnknownSpecials) {
        if (!absl::StartsWith(word, unknown)) continue;
        return Fail(absl::StatusCode::kUnimplemented, statement_line_,
                    absl::StrCat("the emulator does not know ", word));
      }
      return FindShared(kernel, word, operand);
    }
    switch (symbol->kind) {
      case Symbol::Kind::kRegister:
        operand = symbol->operand;
        return true;
      case Symbol::Kind::kAddress:
        return Constant(kernel, {.value = static_cast<uint64_t>(symbol->address)}, operand);
      case Symbol::Kind::kVariable:
        return Constant(kernel, {.variable = symbol->variable}, operand);
      case Symbol::Kind::kPredicate:
        return false;
    }
    return false;
  }

  // Of the module: it has a place in the kernels that use it.
  bool FindShared(Kernel& kernel, const std::string& word, Operand& operand) {
    for (const SharedOfModule& shared : module_shared_) {
      if (shared.name != word) continue;
      if (shared.bytes > 0) {
        const Symbol symbol = PlaceShared(kernel, word, shared.alignment, shared.bytes);
        scopes_[1].symbols[word] = symbol;
        return Constant(kernel, {.value = static_cast<uint64_t>(symbol.address)}, operand);
      }
      if (!NewRegister(kernel, operand)) return false;
      dynamic_.push_back(kernel.constants.size());
      kernel.constants.push_back({.operand = operand});
      return true;
    }
    return false;
  }

  bool NewRegister(Kernel& kernel, Operand& operand) {
    if (kernel.registers >= kMostOperands) return Unknown("a kernel with so many registers");
    operand = static_cast<Operand>(kernel.registers++);
    return true;
  }

  bool Constant(Kernel& kernel, Kernel::Constant constant, Operand& operand) {
    const auto [found, is_new] =
        constant_of_.try_emplace({constant.value, constant.variable}, Operand{0});
    if (is_new) {
      if (!NewRegister(kernel, found->second)) return false;
      constant.operand = found->second;
      kernel.constants.push_back(constant);
    }
    operand = found->second;
    return true;
  }

  struct SharedOfModule {
    std::string name;
    int64_t alignment = 1;
    // 0: as many as a launch says.
    int64_t bytes = 0;
  };
  struct Branch {
    size_t instruction = 0;
    std::string label;
    int line = 0;
    // How many scopes are around it.
    size_t depth = 0;
  };

  const std::vector<Token> tokens_;
  const UnknownKernels unknown_;
  size_t next_ = 0;
  std::shared_ptr<Module> module_;
  absl::Status error_;
  bool is_extern_ = false;
  std::vector<SharedOfModule> module_shared_;
  std::map<std::string, uint16_t> mnemonic_numbers_;

  // Of the kernel.
  std::vector<Scope> scopes_;
  std::vector<Branch> branches_;
  std::map<std::pair<uint64_t, int>, Operand> constant_of_;
  std::map<Special, Operand> special_of_;
  // Constants that are places in dynamic shared memory.
  std::vector<size_t> dynamic_;
  SourcePlace source_, caller_;
  // Of the instruction that is read.
  int statement_line_ = 0;
};

}  // namespace

const Kernel* Module::Find(absl::string_view name) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const Kernel& kernel) { return kernel.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

absl::StatusOr<std::shared_ptr<const Module>> Parse(absl::string_view text, absl::string_view file,
                                                    UnknownKernels unknown) {
  auto tokens = Tokenize(text, file);
  if (!tokens.ok()) return tokens.status();
  return Parser(text, file, *std::move(tokens), unknown).Run();
}

}  // namespace brigade::emulator
