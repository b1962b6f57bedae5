#ifndef BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_
#define BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_

#include <cstdint>

namespace brigade::testing {

// How often any thread of the process has called operator new. Linking this library replaces it.
int64_t CountedAllocations();

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_COUNTED_ALLOCATIONS_H_
