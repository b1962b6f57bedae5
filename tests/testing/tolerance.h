#ifndef BRIGADE_TESTS_TESTING_TOLERANCE_H_
#define BRIGADE_TESTS_TESTING_TOLERANCE_H_

#include <limits>

namespace brigade::testing {

// The error that `roundings` roundings to T in a row may leave in a result whose intermediate
// values stay within `magnitude`: half a unit each, to first order.
template <typename T>
constexpr double RoundingError(double roundings, double magnitude) {
  return roundings * 0.5 * static_cast<double>(std::numeric_limits<T>::epsilon()) * magnitude;
}

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_TOLERANCE_H_
