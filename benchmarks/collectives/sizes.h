#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_SIZES_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_SIZES_H_

// Which sizes a collective is timed with. The flags --min_bytes, --max_bytes, --factor and
// --iterations, which this file defines, have the names of nccl-tests too: -b, -e, -f, -n, and
// --minbytes, --maxbytes, --stepfactor, --iters, with their value behind a blank, "=" or nothing.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace brigade::benchmarks {

// A command line in which those names are ours, for RunMain.
class NcclTestsArguments {
 public:
  NcclTestsArguments(int argc, char** argv);
  NcclTestsArguments(const NcclTestsArguments&) = delete;

  int argc() const { return static_cast<int>(words_.size()); }
  // Null at its end, as main's.
  char** argv() { return pointers_.data(); }

 private:
  std::deque<std::string> words_;
  std::vector<char*> pointers_;
};

// Before the flags are parsed: what they are if they are not given.
void SetDefaultSizes(int64_t min_bytes, int64_t max_bytes, int64_t factor);

// In bytes, ascending: --min_bytes, and as often times --factor as does not exceed --max_bytes.
// InvalidArgument naming the flag if there is no size, or if they never end.
absl::StatusOr<std::vector<int64_t>> SizesOfFlags();

// --iterations: calls in a row that are timed as one; 0: as many as take long enough to be timed.
// InvalidArgument for fewer.
absl::StatusOr<int> IterationsOfFlags();

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_SIZES_H_
