#ifndef BRIGADE_TESTS_TESTING_SANITIZER_H_
#define BRIGADE_TESTS_TESTING_SANITIZER_H_

namespace brigade::testing {

// Whether a sanitizer watches, which makes code up to 40 times slower: a product of cases takes few
// of them then. ThreadSanitizer sees a race between two threads as well as between eight, and
// AddressSanitizer a bad access in each of the cases.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_SANITIZER_H_
