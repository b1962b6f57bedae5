#ifndef BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_
#define BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_

#include <cstdint>

namespace brigade::testing {

// How often any thread of the process has called operator new. Linking this library replaces it.
int64_t CountedAllocations();

// While it lives, the most bytes that operator new has given out and not taken back since it was
// made, beyond those of before: of all threads, with what malloc rounds up. One at a time.
class PeakOfAllocations {
 public:
  PeakOfAllocations();

  int64_t bytes() const;

 private:
  const int64_t before_;
};

// While it lives, tells allocations made under functions of a shared library from all others. One
// at a time.
class AllocationsByLibrary {
 public:
  // Part of its file's name; it must be loaded.
  explicit AllocationsByLibrary(const char* name);
  ~AllocationsByLibrary();

  int64_t inside() const;
  int64_t outside() const;
};

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_
