#include "brigade/emulator/ptx/opcodes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/emulator/ptx/access.h"
#include "brigade/emulator/ptx/convert_ops.h"
#include "brigade/emulator/ptx/half_ops.h"
#include "brigade/emulator/ptx/lane_ops.h"
#include "brigade/emulator/ptx/matrix_ops.h"
#include "brigade/emulator/ptx/tile_access.h"
#include "brigade/emulator/ptx/types.h"
#include "brigade/emulator/ptx/warp_ops.h"

namespace brigade::emulator {
namespace {

// The parts of a mnemonic between its dots, which are taken out one by one.
class Parts {
 public:
  explicit Parts(absl::string_view mnemonic) : parts_(absl::StrSplit(mnemonic, '.')) {
    base_ = parts_.front();
    parts_.erase(parts_.begin());
  }

  absl::string_view base() const { return base_; }
  bool Take(absl::string_view part) {
    const auto found = std::find(parts_.begin(), parts_.end(), part);
    if (found == parts_.end()) return false;
    parts_.erase(found);
    return true;
  }
  // Takes all of them that are there; whether one was.
  bool TakeAny(std::initializer_list<absl::string_view> parts) {
    bool has_one = false;
    for (const absl::string_view part : parts) has_one |= Take(part);
    return has_one;
  }
  // The first type that is left.
  std::optional<Type> TakeType() {
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      for (const TypeInfo& info : kTypes) {
        if (*part != info.name) continue;
        parts_.erase(part);
        return info.type;
      }
    }
    return std::nullopt;
  }
  // Names in order of the enumerators.
  template <typename E, size_t kCount>
  std::optional<E> TakeOneOf(const std::array<absl::string_view, kCount>& names) {
    for (size_t i = 0; i < kCount; ++i) {
      if (Take(names[i])) return static_cast<E>(i);
    }
    return std::nullopt;
  }
  const std::vector<std::string>& left() const { return parts_; }

 private:
  std::string base_;
  std::vector<std::string> parts_;
};

using enum OperandKind;

// What a decoder knows of an instruction: null run and no control, it is unknown.
struct Decoder {
  Parts& parts;
  MovShape shape;
  int pieces;
  Decoded out = {};
  // Of the instruction's type.
  int width = 0;

  Instruction& it() { return out.instruction; }

  void Is(Handler run, std::vector<OperandKind> operands) {
    it().run = run;
    out.operands = std::move(operands);
    out.bytes.assign(out.operands.size(), width);
  }

  template <typename Op, int kSources>
  void Float(Type type) {
    it().rounding = TakeRounding();
    if (type == Type::kF32) {
      it().flushes_to_zero = parts.Take("ftz");
      it().saturates = parts.Take("sat");
    }
    Is(VisitFloat(type, [](auto t) -> Handler { return MapFloat<Op, decltype(t), kSources>; }),
       std::vector<OperandKind>(1 + kSources, kSource));
    out.operands[0] = kDestination;
  }
  template <typename Op, int kSources>
  void Half(Type type) {
    TakeRounding();
    Handler run = nullptr;
    if (type == Type::kF16) run = MapHalf<Op, HalfFormat, 1, kSources>;
    if (type == Type::kBF16) run = MapHalf<Op, BFloat16Format, 1, kSources>;
    if (type == Type::kF16x2) run = MapHalf<Op, HalfFormat, 2, kSources>;
    if (type == Type::kBF16x2) run = MapHalf<Op, BFloat16Format, 2, kSources>;
    Is(run, std::vector<OperandKind>(1 + kSources, kSource));
    out.operands[0] = kDestination;
  }
  static bool IsHalf(Type type) {
    return type == Type::kF16 || type == Type::kBF16 || type == Type::kF16x2 ||
           type == Type::kBF16x2;
  }
  template <typename Op>
  void IntegerUnary(Type type) {
    Is(VisitInteger(type, [](auto t) -> Handler { return Map<Op, decltype(t), decltype(t)>; }),
       {kDestination, kSource});
  }
  template <typename Op>
  void Unary(Type type) {
    if (type == Type::kF32 || type == Type::kF64) return Float<Op, 1>(type);
    IntegerUnary<Op>(type);
  }
  template <typename Op>
  void IntegerBinary(Type type) {
    Is(VisitInteger(
           type, [](auto t) -> Handler { return Map<Op, decltype(t), decltype(t), decltype(t)>; }),
       {kDestination, kSource, kSource});
  }
  template <typename Op>
  void Binary(Type type) {
    if (type == Type::kF32 || type == Type::kF64) return Float<Op, 2>(type);
    IntegerBinary<Op>(type);
  }
  template <typename Op>
  void IntegerTernary(Type type) {
    Is(VisitInteger(type,
                    [](auto t) -> Handler {
                      using T = decltype(t);
                      return Map<Op, T, T, T, T>;
                    }),
       {kDestination, kSource, kSource, kSource});
  }
  template <typename Op>
  void Division(Type type) {
    Is(VisitInteger(type, [](auto t) -> Handler { return MapDivision<Op, decltype(t)>; }),
       {kDestination, kSource, kSource});
  }
  template <typename Op>
  void Logic(Type type) {
    if (type == Type::kPred) {
      Is(MapPredicates<Op>, {kDestinationPredicate, kSourcePredicate, kSourcePredicate});
    } else {
      IntegerBinary<Op>(type);
    }
  }
  template <typename Op>
  void Shift(Type type) {
    Is(VisitInteger(type,
                    [](auto t) -> Handler {
                      using T = decltype(t);
                      return Map<Op, T, T, uint32_t>;
                    }),
       {kDestination, kSource, kSource});
    out.bytes[2] = 4;
  }
  template <typename Op>
  void Count(Type type) {
    if (type == Type::kB32) Is(Map<Op, uint32_t, uint32_t>, {kDestination, kSource});
    if (type == Type::kB64) Is(Map<Op, uint32_t, uint64_t>, {kDestination, kSource});
    if (it().run != nullptr) out.bytes[0] = 4;
  }

  std::optional<Space> TakeSpace() {
    return parts.TakeOneOf<Space>(
        std::array<absl::string_view, 5>{"generic", "param", "global", "shared", "local"});
  }

  Rounding TakeRounding() {
    return parts.TakeOneOf<Rounding>(std::array<absl::string_view, 4>{"rn", "rz", "rm", "rp"})
        .value_or(Rounding::kNearest);
  }

  void SetPredicateOf(Type type) {
    const auto comparison = parts.TakeOneOf<Comparison>(
        std::array<absl::string_view, 14>{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu",
                                          "leu", "gtu", "geu", "num", "nan"});
    // Of unsigned integers: lower, lower or same, higher, higher or same.
    const auto unsigned_comparison =
        parts.TakeOneOf<int>(std::array<absl::string_view, 4>{"lo", "ls", "hi", "hs"});
    if (!comparison.has_value() && !unsigned_comparison.has_value()) return;
    it().comparison = comparison.value_or(static_cast<Comparison>(
        static_cast<int>(Comparison::kLt) + unsigned_comparison.value_or(0)));
    // "and" before a type is a combination; lo to hs are kLt to kGe.
    const auto combination =
        parts.TakeOneOf<int>(std::array<absl::string_view, 3>{"and", "or", "xor"});
    if (combination.has_value()) it().combination = static_cast<Combination>(*combination + 1);
    it().flushes_to_zero = parts.Take("ftz");
    std::vector<OperandKind> operands = {kTwoPredicates, kSource, kSource};
    if (combination.has_value()) operands.push_back(kSourcePredicate);
    Is(VisitNumber(type, [](auto t) -> Handler { return SetPredicate<decltype(t)>; }), operands);
  }

  void Access(bool loads, Type type) {
    if (type == Type::kPred) return;
    it().space = TakeSpace().value_or(Space::kGeneric);
    if (parts.Take("const")) it().space = Space::kGlobal;
    // Of the block's own.
    if (parts.Take("shared::cta")) it().space = Space::kShared;
    if (parts.Take("param::entry")) it().space = Space::kParam;
    parts.Take("weak");
    TakeOrder();
    // Of caches.
    parts.TakeAny({"nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt"});
    it().elements = 1;
    if (parts.Take("v2")) it().elements = 2;
    if (parts.Take("v4")) it().elements = 4;
    it().element_bytes = static_cast<uint8_t>(SizeOf(type));
    (loads ? it().is_load : it().is_store) = true;
    if (loads) {
      Is(IsSigned(type) ? LoadSigned : LoadUnsigned, {kDestinationVector, kAddress});
    } else {
      Is(Store, {kAddress, kSourceVector});
    }
    // A register may be wider than what is moved. Addresses have 32 or 64 bits.
    for (int& bytes : out.bytes) bytes = -width;
    out.bytes[loads ? 1 : 0] = -4;
  }

  // Whether other blocks see it; every access here is seen at once.
  bool TakeScope() {
    const bool is_narrow = parts.Take("cta");
    parts.TakeAny({"cluster", "gpu", "sys"});
    return !is_narrow;
  }
  void TakeOrder(bool is_atomic = false) {
    const bool is_both = parts.Take("acq_rel");
    const bool acquires = parts.Take("acquire") || is_both;
    const bool releases = parts.Take("release") || is_both;
    it().is_synchronizing =
        parts.TakeAny({"volatile", "relaxed"}) || acquires || releases || is_atomic;
    const bool is_wide = TakeScope();
    it().is_flag = is_wide && it().is_synchronizing;
    it().acquires = is_wide && acquires;
    it().releases = is_wide && releases;
  }

  void AtomicOf(bool returns, Type type) {
    TakeOrder(/*is_atomic=*/true);
    it().space = TakeSpace().value_or(Space::kGeneric);
    if (parts.Take("shared::cta")) it().space = Space::kShared;
    const auto op = parts.TakeOneOf<AtomicOp>(std::array<absl::string_view, 10>{
        "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
    if (!op.has_value()) return;
    it().elements = 1;
    it().element_bytes = static_cast<uint8_t>(SizeOf(type));
    it().is_store = it().is_atomic = true;
    std::vector<OperandKind> operands = {kAddress, kSource};
    if (*op == AtomicOp::kCas) operands.push_back(kSource);
    if (returns) operands.insert(operands.begin(), kDestination);
    Is(AtomicHandler(*op, type, returns), operands);
    out.bytes[returns ? 1 : 0] = -4;
  }

  // bar.red: the barrier, and a vote of the block.
  void BlockVoteOf() {
    it().control = Control::kBlockBarrier;
    it().is_block_vote = true;
    const std::vector<OperandKind> operands = {kDestinationPredicate, kBarrierZero,
                                               kSourcePredicate};
    Handler run = nullptr;
    if (parts.Take("or")) run = BlockVote<VoteMode::kAny>;
    if (parts.Take("and")) run = BlockVote<VoteMode::kAll>;
    Is(run, operands);
    if (run == nullptr) it().control = Control::kNone;
  }

  void Move(Type type) {
    if (type == Type::kPred) return Is(MovePredicate, {kDestinationPredicate, kSourcePredicate});
    if (shape == MovShape::kPlain) {
      return Is(VisitInteger(
                    // A move of bits, whatever they mean.
                    SizeOf(type) == 8   ? Type::kB64
                    : SizeOf(type) == 4 ? Type::kB32
                                        : Type::kB16,
                    [](auto t) -> Handler { return Map<CopyOp, decltype(t), decltype(t)>; }),
                {kDestination, kSource});
    }
    if (pieces < 2 || pieces > 4 || SizeOf(type) % pieces != 0) return;
    it().elements = static_cast<uint8_t>(pieces);
    it().element_bytes = static_cast<uint8_t>(SizeOf(type) / pieces);
    const bool packs = shape == MovShape::kPack;
    if (packs) Is(Pack, {kDestination, kSourceVector});
    if (!packs) Is(Unpack, {kDestinationVector, kSource});
    out.bytes[packs ? 1 : 0] = it().element_bytes;
  }

  template <typename To>
  Handler ConvertFloatTo(Type from) {
    if (from == Type::kF16) return ConvertFloat<To, HalfFormat>;
    if (from == Type::kBF16) return ConvertFloat<To, BFloat16Format>;
    if (from == Type::kF32) return ConvertFloat<To, HostFormat<float>>;
    return nullptr;
  }

  void Convert(Type to, Type from) {
    if (to == Type::kF16x2 || to == Type::kBF16x2) return ConvertPairOf(to, from);
    const auto is_float = [](Type type) { return type >= Type::kF16; };
    const auto to_integer =
        parts.TakeOneOf<Rounding>(std::array<absl::string_view, 4>{"rni", "rzi", "rmi", "rpi"});
    it().rounding = to_integer.has_value() ? *to_integer : TakeRounding();
    if (!is_float(to) && !is_float(from)) it().saturates = parts.Take("sat");
    if (from == Type::kF32 && to != Type::kF32) it().flushes_to_zero = parts.Take("ftz");
    Handler run = nullptr;
    if (!is_float(to) && !is_float(from)) {
      run = VisitInteger(to, [&](auto t) -> Handler {
        return VisitInteger(
            from, [](auto f) -> Handler { return ConvertInteger<decltype(t), decltype(f)>; });
      });
    } else if (!is_float(to) && to_integer.has_value()) {
      run = VisitInteger(to, [&](auto t) -> Handler {
        return VisitFloat(
            from, [](auto f) -> Handler { return ConvertToInteger<decltype(t), decltype(f)>; });
      });
    } else if (is_float(to) && !is_float(from)) {
      run = VisitFloat(to, [&](auto t) -> Handler {
        return VisitInteger(
            from, [](auto f) -> Handler { return ConvertFromInteger<decltype(t), decltype(f)>; });
      });
    } else if (to == from && to_integer.has_value()) {
      run = VisitFloat(to, [](auto t) -> Handler { return RoundToInteger<decltype(t)>; });
    } else if (to == Type::kF16) {
      run = ConvertFloatTo<HalfFormat>(from);
    } else if (to == Type::kBF16) {
      run = ConvertFloatTo<BFloat16Format>(from);
    } else if (to == Type::kF32) {
      run = from == Type::kF64 ? ConvertFloat<HostFormat<float>, HostFormat<double>>
                               : ConvertFloatTo<HostFormat<float>>(from);
    } else if (to == Type::kF64) {
      run = ConvertFloatTo<HostFormat<double>>(from);
    }
    Is(run, {kDestination, kSource});
    out.bytes = {-SizeOf(to), -SizeOf(from)};
  }

  void ConvertPairOf(Type to, Type from) {
    it().rounding = TakeRounding();
    if (from != Type::kF32) return;
    Is(to == Type::kF16x2 ? ConvertPair<HalfFormat> : ConvertPair<BFloat16Format>,
       {kDestination, kSource, kSource});
  }

  void ConvertAddress() {
    const bool to_space = parts.Take("to");
    const auto space = TakeSpace();
    if (parts.Take("const")) it().space = Space::kGlobal;
    if (space.has_value()) it().space = *space;
    Is(to_space ? FromGeneric : ToGeneric, {kDestination, kSource});
  }

  void WaitsForLanes(Handler run, std::vector<OperandKind> operands, int lane_mask) {
    it().control = Control::kWarpBarrier;
    it().lane_mask = static_cast<uint8_t>(lane_mask);
    width = 4;
    Is(run, std::move(operands));
  }

  void ShuffleOf(Type type) {
    if (type != Type::kB32) return;
    const std::vector<OperandKind> operands = {kDestinationAndPredicate, kSource, kSource, kSource,
                                               kSource};
    if (parts.Take("up")) WaitsForLanes(Shuffle<ShuffleMode::kUp>, operands, 5);
    if (parts.Take("down")) WaitsForLanes(Shuffle<ShuffleMode::kDown>, operands, 5);
    if (parts.Take("bfly")) WaitsForLanes(Shuffle<ShuffleMode::kBfly>, operands, 5);
    if (parts.Take("idx")) WaitsForLanes(Shuffle<ShuffleMode::kIdx>, operands, 5);
  }

  void VoteOf() {
    const std::vector<OperandKind> operands = {kDestinationPredicate, kSourcePredicate, kSource};
    if (parts.Take("all")) WaitsForLanes(Vote<VoteMode::kAll>, operands, 2);
    if (parts.Take("any")) WaitsForLanes(Vote<VoteMode::kAny>, operands, 2);
    if (parts.Take("uni")) WaitsForLanes(Vote<VoteMode::kUni>, operands, 2);
    if (parts.Take("ballot")) {
      WaitsForLanes(Ballot, {kDestination, kSourcePredicate, kSource}, 2);
    }
  }

  void ReduceOf(Type type) {
    Handler run = nullptr;
    if (type == Type::kB32) {
      if (parts.Take("and")) run = Reduce<AndOp, uint32_t>;
      if (parts.Take("or")) run = Reduce<OrOp, uint32_t>;
      if (parts.Take("xor")) run = Reduce<XorOp, uint32_t>;
    } else if (type == Type::kU32 || type == Type::kS32) {
      const bool is_signed = type == Type::kS32;
      if (parts.Take("add")) run = Reduce<AddOp, uint32_t>;
      if (parts.Take("min")) run = is_signed ? Reduce<MinOp, int32_t> : Reduce<MinOp, uint32_t>;
      if (parts.Take("max")) run = is_signed ? Reduce<MaxOp, int32_t> : Reduce<MaxOp, uint32_t>;
    }
    if (run != nullptr) WaitsForLanes(run, {kDestination, kSource, kSource}, 2);
  }

  void MatchOf(Type type) {
    if (type != Type::kB32 && type != Type::kB64) return;
    if (parts.Take("any")) WaitsForLanes(MatchAny, {kDestination, kSource, kSource}, 2);
    if (parts.Take("all")) WaitsForLanes(MatchAll, {kDestinationAndPredicate, kSource, kSource}, 3);
    if (it().run != nullptr) out.bytes[1] = SizeOf(type);
  }

  // Instructions of the whole warp, which must be at one place.
  void IsAligned() {
    it().control = Control::kWarpBarrier;
    it().is_aligned = true;
  }

  template <typename Parts>
  void ProductOf(int depth) {
    constexpr int kParts = Parts::kParts;
    const auto shape = [&](Handler run) {
      Is(run, {kDestinationVector, kSourceVector, kSourceVector, kSourceVector});
      out.sizes = {4, depth / (2 * kParts), depth / (4 * kParts), 4};
    };
    width = 4;
    if (depth == 8 * kParts) shape(MultiplyMatrices<Parts, 8 * kParts>);
    if (depth == 4 * kParts) shape(MultiplyMatrices<Parts, 4 * kParts>);
    if (it().run != nullptr) IsAligned();
  }

  void MultiplyMatricesOf() {
    int depth = 0;
    if (parts.Take("m16n8k16")) depth = 16;
    if (parts.Take("m16n8k8")) depth = 8;
    if (parts.Take("m16n8k4")) depth = 4;
    const auto twice = [&](absl::string_view part) { return parts.Take(part) && parts.Take(part); };
    if (!parts.Take("sync") || !parts.Take("aligned") || !parts.Take("row") || !parts.Take("col") ||
        !twice("f32")) {
      return;
    }
    if (twice("f16")) return ProductOf<HalfParts>(depth);
    if (twice("bf16")) return ProductOf<BFloat16Parts>(depth);
    if (twice("tf32")) return ProductOf<Tf32Parts>(depth);
  }

  void LoadMatricesOf() {
    int matrices = 0;
    if (parts.Take("x1")) matrices = 1;
    if (parts.Take("x2")) matrices = 2;
    if (parts.Take("x4")) matrices = 4;
    const bool is_transposed = parts.Take("trans");
    const bool is_shared = parts.TakeAny({"shared", "shared::cta"});
    if (!parts.Take("sync") || !parts.Take("aligned") || !parts.Take("m8n8") ||
        !parts.Take("b16") || !is_shared) {
      return;
    }
    it().space = Space::kShared;
    it().is_load = true;
    width = 4;
    Is(LoadMatricesHandler(matrices, is_transposed), {kDestinationVector, kAddress});
    out.bytes[1] = -4;
    out.sizes = {matrices, 1};
    if (it().run != nullptr) IsAligned();
  }

  void CopyAsyncOf() {
    if (!parts.Take("async")) return;
    if (parts.Take("commit_group")) return Is(CommitCopies, {});
    if (parts.Take("wait_group")) return Is(AwaitCopyGroups, {kSource});
    if (parts.Take("wait_all")) return Is(AwaitAllCopies, {});
    const bool is_small = parts.Take("ca");
    if (!is_small && !parts.Take("cg")) return;
    if (!parts.TakeAny({"shared", "shared::cta"}) || !parts.Take("global")) return;
    // Of caches.
    parts.TakeAny({"L2::64B", "L2::128B", "L2::256B"});
    if (!is_small) it().element_bytes = 16;
    it().elements = 1;
    it().is_load = true;
    Is(CopyAsync, {kAddress, kAddress, kCopyBytes, kOptionalSource});
    out.bytes = {-4, -8, 0, 4};
  }

  // Names of instructions that take a type.
  void DecodeTyped(absl::string_view base, Type type) {
    width = SizeOf(type);
    if (IsHalf(type)) {
      if (base == "add") return Half<HalfAddOp, 2>(type);
      if (base == "sub") return Half<HalfSubOp, 2>(type);
      if (base == "mul") return Half<HalfMulOp, 2>(type);
      if (base == "fma") return Half<HalfFmaOp, 3>(type);
      if (base == "min") return Half<MinOp, 2>(type);
      if (base == "max") return Half<MaxOp, 2>(type);
      if (base == "neg") return Half<NegOp, 1>(type);
    }
    if (base == "add") return Binary<AddOp>(type);
    if (base == "sub") return Binary<SubOp>(type);
    if (base == "mul" || base == "mad") {
      const bool adds = base == "mad";
      if (type == Type::kF32 || type == Type::kF64) {
        return adds ? Float<FmaOp, 3>(type) : Float<MulOp, 2>(type);
      }
      if (parts.Take("lo")) return adds ? IntegerTernary<MadOp>(type) : IntegerBinary<MulOp>(type);
      if (parts.Take("hi")) {
        return adds ? IntegerTernary<MadHighOp>(type) : IntegerBinary<MulHighOp>(type);
      }
      if (parts.Take("wide")) return MultiplyWide(type, adds);
      return;
    }
    if (base == "fma") return Float<FmaOp, 3>(type);
    if (base == "div") {
      if (type == Type::kF32 || type == Type::kF64) return Float<DivOp, 2>(type);
      return Division<DivOp>(type);
    }
    if (base == "rem") return Division<RemOp>(type);
    if (base == "min") return Binary<MinOp>(type);
    if (base == "max") return Binary<MaxOp>(type);
    if (base == "abs") return Unary<AbsOp>(type);
    if (base == "neg") return Unary<NegOp>(type);
    if (base == "sqrt") return Float<SqrtOp, 1>(type);
    if (base == "rcp") {
      if (type == Type::kF64 && parts.Take("approx") && parts.Take("ftz")) {
        return Is(ApproximateRcp, {kDestination, kSource});
      }
      // Bounded by PTX, here the nearest number.
      if (type == Type::kF32) parts.Take("approx");
      return Float<RcpOp, 1>(type);
    }
    if ((base == "ex2" || base == "lg2") && type == Type::kF32 && parts.Take("approx")) {
      return base == "ex2" ? Float<Ex2Op, 1>(type) : Float<Lg2Op, 1>(type);
    }
    if (base == "and") return Logic<AndOp>(type);
    if (base == "or") return Logic<OrOp>(type);
    if (base == "xor") return Logic<XorOp>(type);
    if (base == "not") {
      if (type == Type::kPred) return Is(NotPredicate, {kDestinationPredicate, kSourcePredicate});
      return IntegerUnary<NotOp>(type);
    }
    if (base == "shl") return Shift<ShlOp>(type);
    if (base == "shr") return Shift<ShrOp>(type);
    if (base == "popc") return Count<PopcOp>(type);
    if (base == "clz") return Count<ClzOp>(type);
    if (base == "prmt" && type == Type::kB32) {
      return Is(Map<PermuteOp, uint32_t, uint32_t, uint32_t, uint32_t>,
                {kDestination, kSource, kSource, kSource});
    }
    if (base == "lop3" && type == Type::kB32) {
      return Is(Map<Lop3Op, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>,
                {kDestination, kSource, kSource, kSource, kSource});
    }
    if (base == "brev" && (type == Type::kB32 || type == Type::kB64)) {
      return IntegerUnary<ReverseOp>(type);
    }
    if (base == "bmsk" && type == Type::kB32) {
      const std::vector<OperandKind> operands = {kDestination, kSource, kSource};
      if (parts.Take("clamp")) Is(Map<BitMaskOp, uint32_t, uint32_t, uint32_t>, operands);
      if (parts.Take("wrap")) Is(Map<BitMaskWrapOp, uint32_t, uint32_t, uint32_t>, operands);
      return;
    }
    if (base == "bfi" && SizeOf(type) >= 4) {
      Is(type == Type::kB64 ? Map<InsertBitsOp, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>
                            : Map<InsertBitsOp, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>,
         {kDestination, kSource, kSource, kSource, kSource});
      out.bytes[3] = out.bytes[4] = 4;
      return;
    }
    if (base == "bfe" && SizeOf(type) >= 4) {
      Is(VisitInteger(type,
                      [](auto t) -> Handler {
                        using T = decltype(t);
                        return Map<ExtractBitsOp, T, T, uint32_t, uint32_t>;
                      }),
         {kDestination, kSource, kSource, kSource});
      out.bytes[2] = out.bytes[3] = 4;
      return;
    }
    if (base == "atom" || base == "red") return AtomicOf(base == "atom", type);
    if (base == "nanosleep" && type == Type::kU32) return Is(DoNothing, {kSource});
    if (base == "bar" && parts.Take("red")) return BlockVoteOf();
    if (base == "setp") return SetPredicateOf(type);
    if (base == "selp") return Is(Select, {kDestination, kSource, kSource, kSourcePredicate});
    if (base == "mov") return Move(type);
    if (base == "ld") return Access(/*loads=*/true, type);
    if (base == "st") return Access(/*loads=*/false, type);
    if (base == "cvta") return ConvertAddress();
    if (base == "cvt") {
      const std::optional<Type> from = parts.TakeType();
      if (from.has_value()) Convert(type, *from);
      return;
    }
    if (base == "activemask" && type == Type::kB32) return Is(ActiveMask, {kDestination});
    if (base == "shfl" && parts.Take("sync")) return ShuffleOf(type);
    if (base == "vote" && parts.Take("sync")) return VoteOf();
    if (base == "redux" && parts.Take("sync")) return ReduceOf(type);
    if (base == "match" && parts.Take("sync")) return MatchOf(type);
  }

  void MultiplyWide(Type type, bool adds) {
    if (adds) return;  // not needed yet
    Handler run = nullptr;
    if (type == Type::kU16) run = Map<MulWideOp, uint32_t, uint16_t, uint16_t>;
    if (type == Type::kS16) run = Map<MulWideOp, int32_t, int16_t, int16_t>;
    if (type == Type::kU32) run = Map<MulWideOp, uint64_t, uint32_t, uint32_t>;
    if (type == Type::kS32) run = Map<MulWideOp, int64_t, int32_t, int32_t>;
    Is(run, {kDestination, kSource, kSource});
    out.bytes[0] = 2 * width;
  }

  void DecodeUntyped(absl::string_view base) {
    if (base == "membar" || base == "fence") {
      parts.TakeAny({"acq_rel", "sc", "gl"});
      Is(TakeScope() ? Fence : DoNothing, {});
    } else if (base == "griddepcontrol") {
      // A launch begins when those before it have ended.
      if (parts.TakeAny({"wait", "launch_dependents"})) Is(DoNothing, {});
    } else if (base == "prefetch" || base == "prefetchu") {
      parts.TakeAny({"global", "L1", "L2"});
      Is(DoNothing, {kAddress});
    } else if (base == "cp") {
      CopyAsyncOf();
    } else if (base == "bra") {
      parts.Take("uni");
      it().control = Control::kBranch;
      Is(nullptr, {kLabel});
    } else if (base == "ret" || base == "exit") {
      parts.Take("uni");
      it().control = Control::kExit;
    } else if (base == "trap") {
      Is(Trap, {});
    } else if (base == "bar" && parts.Take("warp") && parts.Take("sync")) {
      WaitsForLanes(PassWarpBarrier, {kSource}, 0);
      it().is_memory_barrier = true;
    } else if ((base == "bar" || base == "barrier") && (parts.Take("cta"), parts.Take("sync"))) {
      parts.Take("aligned");
      it().control = Control::kBlockBarrier;
      Is(nullptr, {kBarrierZero});
    }
  }
};

}  // namespace

absl::StatusOr<Decoded> Decode(absl::string_view mnemonic, MovShape shape, int pieces) {
  Parts parts(mnemonic);
  Decoder decoder = {parts, shape, pieces};
  const bool is_product = parts.base() == "mma", is_load = parts.base() == "ldmatrix";
  const std::optional<Type> type = is_product || is_load ? std::nullopt : parts.TakeType();
  if (is_product) {
    decoder.MultiplyMatricesOf();
  } else if (is_load) {
    decoder.LoadMatricesOf();
  } else if (type.has_value()) {
    decoder.DecodeTyped(parts.base(), *type);
  } else {
    decoder.DecodeUntyped(parts.base());
  }
  const Instruction& it = decoder.it();
  if (it.run == nullptr && it.control == Control::kNone) {
    return absl::UnimplementedError(absl::StrCat("the emulator does not know ", mnemonic));
  }
  if (!parts.left().empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the emulator does not know .", parts.left().front(), " of ", mnemonic));
  }
  return std::move(decoder.out);
}

}  // namespace brigade::emulator
