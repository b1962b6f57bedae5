#include "brigade/emulator/nccl/accumulate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
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

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
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

template <typename Type>
void AccumulateAs(Type, NcclOp op, const void* input, size_t count, void* result) {
  switch (op) {
    case NcclOp::kSum:
      return Apply<Type>([](auto a, auto b) { return Sum(a, b); }, input, count, result);
    case NcclOp::kMax:
      return Apply<Type>([](auto a, auto b) { return std::max(a, b); }, input, count, result);
    case NcclOp::kMin:
      return Apply<Type>([](auto a, auto b) { return std::min(a, b); }, input, count, result);
  }
}

// Calls visit with the type's tag.
template <typename Visit>
auto WithType(NcclType type, Visit visit) {
  switch (type) {
    case NcclType::kInt32:
      return visit(Plain<int32_t>());
    case NcclType::kInt64:
      return visit(Plain<int64_t>());
    case NcclType::kFloat16:
      return visit(Half());
    case NcclType::kFloat32:
      return visit(Plain<float>());
    case NcclType::kFloat64:
      return visit(Plain<double>());
    case NcclType::kBfloat16:
      return visit(BFloat16());
    case NcclType::kUint8:
      break;
  }
  return visit(Plain<uint8_t>());
}

}  // namespace

size_t BytesOf(NcclType type) {
  return WithType(type, [](auto tag) { return sizeof(typename decltype(tag)::Stored); });
}

void Accumulate(NcclType type, NcclOp op, const void* input, size_t count, void* result) {
  WithType(type, [&](auto tag) { AccumulateAs(tag, op, input, count, result); });
}

}  // namespace brigade::emulator
