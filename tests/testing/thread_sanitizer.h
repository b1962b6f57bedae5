#ifndef BRIGADE_TESTS_TESTING_THREAD_SANITIZER_H_
#define BRIGADE_TESTS_TESTING_THREAD_SANITIZER_H_

namespace brigade::testing {

// Whether ThreadSanitizer watches, which makes code up to 40 times slower: a product of cases takes
// few of them then. It sees a race between two threads as well as between eight.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_THREAD_SANITIZER_H_
