#ifndef BRIGADE_PRECISION_DTYPE_H_
#define BRIGADE_PRECISION_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "brigade/precision/float16.h"

namespace brigade::precision {

// The element type of a device array whose C++ type is known only at run time.
enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt32,
  kInt64,
  kUint8,
};

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
  }
  return 0;  // not a DType: callers validate with IsValid first
}

// Whether `dtype` is one of the enumerators: false for a value cast from an integer out of range.
constexpr bool IsValid(DType dtype) { return SizeOf(dtype) != 0; }

// "float32", "bfloat16", ...; "invalid" for a value out of range.
absl::string_view Name(DType dtype);

// The DType of a C++ type: kDType<Half> == DType::kFloat16.
template <typename T>
inline constexpr DType kDType = T::no_such_dtype;
template <>
inline constexpr DType kDType<float> = DType::kFloat32;
template <>
inline constexpr DType kDType<Half> = DType::kFloat16;
template <>
inline constexpr DType kDType<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDType<double> = DType::kFloat64;
template <>
inline constexpr DType kDType<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDType<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDType<uint8_t> = DType::kUint8;

// Calls `visit` with a value-initialised tag of the C++ type of a floating-point training format
// (float32, float16, bfloat16) and returns true; returns false for any other DType.
//
//   VisitFloat(dtype, [&](auto tag) { Run<decltype(tag)>(); });
template <typename Visitor>
bool VisitFloat(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      visit(float());
      return true;
    case DType::kFloat16:
      visit(Half());
      return true;
    case DType::kBFloat16:
      visit(BFloat16());
      return true;
    default:
      return false;
  }
}

// Whether it is a floating-point training format.
inline bool IsTrainingFormat(DType dtype) {
  return VisitFloat(dtype, [](auto) {});
}

// The same for every DType; returns false for a value out of range.
template <typename Visitor>
bool VisitAny(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::kFloat64:
      visit(double());
      return true;
    case DType::kInt32:
      visit(int32_t());
      return true;
    case DType::kInt64:
      visit(int64_t());
      return true;
    case DType::kUint8:
      visit(uint8_t());
      return true;
    default:
      return VisitFloat(dtype, visit);
  }
}

}  // namespace brigade::precision

#endif  // BRIGADE_PRECISION_DTYPE_H_
