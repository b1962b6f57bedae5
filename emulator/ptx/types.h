#ifndef BRIGADE_EMULATOR_PTX_TYPES_H_
#define BRIGADE_EMULATOR_PTX_TYPES_H_

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"
#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// Types as PTX writes them. Those of bits are taken as unsigned.
enum class Type : uint8_t {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF32,
  kF64,
  // Two in a register.
  kF16x2,
  kBF16x2,
};

struct TypeInfo {
  absl::string_view name;
  Type type;
  int bytes;
};

inline constexpr TypeInfo kTypes[] = {
    {"pred", Type::kPred, 0},     {"b8", Type::kB8, 1},   {"b16", Type::kB16, 2},
    {"b32", Type::kB32, 4},       {"b64", Type::kB64, 8}, {"u8", Type::kU8, 1},
    {"u16", Type::kU16, 2},       {"u32", Type::kU32, 4}, {"u64", Type::kU64, 8},
    {"s8", Type::kS8, 1},         {"s16", Type::kS16, 2}, {"s32", Type::kS32, 4},
    {"s64", Type::kS64, 8},       {"f16", Type::kF16, 2}, {"bf16", Type::kBF16, 2},
    {"f32", Type::kF32, 4},       {"f64", Type::kF64, 8}, {"f16x2", Type::kF16x2, 4},
    {"bf16x2", Type::kBF16x2, 4},
};

inline int SizeOf(Type type) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const TypeInfo& info) { return info.type == type; })
      ->bytes;
}

inline bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

// Calls visit(T()) for the integers (numbers) that the type is read as; null if it is none.
template <typename Visit>
Handler VisitInteger(Type type, const Visit& visit) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
      return visit(uint8_t());
    case Type::kB16:
    case Type::kU16:
      return visit(uint16_t());
    case Type::kB32:
    case Type::kU32:
      return visit(uint32_t());
    case Type::kB64:
    case Type::kU64:
      return visit(uint64_t());
    case Type::kS8:
      return visit(int8_t());
    case Type::kS16:
      return visit(int16_t());
    case Type::kS32:
      return visit(int32_t());
    case Type::kS64:
      return visit(int64_t());
    default:
      return nullptr;
  }
}

template <typename Visit>
Handler VisitFloat(Type type, const Visit& visit) {
  if (type == Type::kF32) return visit(float());
  if (type == Type::kF64) return visit(double());
  return nullptr;
}

template <typename Visit>
Handler VisitNumber(Type type, const Visit& visit) {
  const Handler handler = VisitInteger(type, visit);
  return handler != nullptr ? handler : VisitFloat(type, visit);
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_TYPES_H_
