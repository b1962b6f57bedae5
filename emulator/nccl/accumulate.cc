#include "brigade/emulator/nccl/accumulate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "brigade/emulator/nccl/rank_group.h"
#include "brigade/emulator/ptx/arithmetic.h"

namespace brigade::emulator {
namespace {

// How a type lies in memory, and what it is added as.
template <typename T>
struct Plain {
  using Stored = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  static float Load(uint16_t bits) { return HalfToFloat(bits); }
  static uint16_t Store(float value) { return FloatToHalf(value, Rounding::kNearest); }
};
struct BFloat16 {
  using Stored = uint16_t;
  static float Load(uint16_t bits) { return BFloat16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToBFloat16(value, Rounding::kNearest); }
};

// Of integers modulo their range; in 64 bits, where no type is promoted to a signed one.
template <typename T, typename Op>
T Wrapped(Op op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(op(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  } else {
    return op(a, b);
  }
}

template <typename Type, typename Op>
void Apply(Op op, const void* input, size_t count, void* result) {
  using Stored = typename Type::Stored;
  for (size_t i = 0; i < count; ++i) {
    Stored a, b;
    char* const at = static_cast<char*>(result) + i * sizeof(Stored);
    std::memcpy(&a, at, sizeof(a));
    std::memcpy(&b, static_cast<const char*>(input) + i * sizeof(Stored), sizeof(b));
    a = Type::Store(op(Type::Load(a), Type::Load(b)));
    std::memcpy(at, &a, sizeof(a));
  }
}

// ncclRedOp_t, of which api.h has those that the library uses.
enum Op : int { kSum, kProduct, kMax, kMin, kAverage, kOps };

template <typename Type>
void AccumulateAs(Type, NcclOp op, const void* input, size_t count, void* result) {
  const auto apply = [&](const auto& combine) { Apply<Type>(combine, input, count, result); };
  switch (static_cast<int>(op)) {
    case kSum:
    case kAverage:
      return apply([](auto a, auto b) { return Wrapped(std::plus<>(), a, b); });
    case kProduct:
      return apply([](auto a, auto b) { return Wrapped(std::multiplies<>(), a, b); });
    case kMax:
      return apply([](auto a, auto b) { return std::max(a, b); });
    case kMin:
      return apply([](auto a, auto b) { return std::min(a, b); });
  }
}

// Calls visit with the type's tag, by ncclDataType_t; of others with `unknown`.
template <typename Visit, typename Unknown>
auto WithType(NcclType type, Visit visit, Unknown unknown) {
  switch (static_cast<int>(type)) {
    case 0:
      return visit(Plain<int8_t>());
    case 1:
      return visit(Plain<uint8_t>());
    case 2:
      return visit(Plain<int32_t>());
    case 3:
      return visit(Plain<uint32_t>());
    case 4:
      return visit(Plain<int64_t>());
    case 5:
      return visit(Plain<uint64_t>());
    case 6:
      return visit(Half());
    case 7:
      return visit(Plain<float>());
    case 8:
      return visit(Plain<double>());
    case 9:
      return visit(BFloat16());
    default:
      return unknown();
  }
}

}  // namespace

size_t BytesOf(NcclType type) {
  return WithType(
      type, [](auto tag) { return sizeof(typename decltype(tag)::Stored); },
      [] { return size_t{0}; });
}

bool HasOp(NcclOp op) { return static_cast<int>(op) >= 0 && static_cast<int>(op) < kOps; }

void Accumulate(NcclType type, NcclOp op, const void* input, size_t count, void* result) {
  WithType(
      type, [&](auto tag) { AccumulateAs(tag, op, input, count, result); }, [] {});
}

void Finish(NcclType type, NcclOp op, int ranks, size_t count, void* result) {
  if (static_cast<int>(op) != kAverage) return;
  const auto average = [&](auto tag) {
    using Type = decltype(tag);
    const auto divide = [&](auto sum, auto) { return static_cast<decltype(sum)>(sum / ranks); };
    Apply<Type>(divide, result, count, result);
  };
  WithType(type, average, [] {});
}

}  // namespace brigade::emulator
