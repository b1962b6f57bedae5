#ifndef BRIGADE_TESTS_FUZZING_CHECKS_H_
#define BRIGADE_TESTS_FUZZING_CHECKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

// Ends the process, which is how libFuzzer hears that an input breaks a promise.
#define FUZZ_CHECK(promise)                                                    \
  if (!(promise)) {                                                            \
    std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #promise); \
    std::abort();                                                              \
  }

namespace brigade::testing {

// An error that people can read, whatever the bytes were that it is about: lines that are short,
// and without bytes that a terminal obeys.
inline void CheckError(const absl::Status& status, int most_lines = 1) {
  constexpr size_t kMostBytes = 2000;
  FUZZ_CHECK(!status.ok());
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    FUZZ_CHECK(!line.empty());
    FUZZ_CHECK(line.size() <= kMostBytes);
    FUZZ_CHECK(std::all_of(line.begin(), line.end(),
                           [](unsigned char c) { return absl::ascii_isprint(c); }));
    ++lines;
  }
  FUZZ_CHECK(lines <= most_lines);
}

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_FUZZING_CHECKS_H_
