#ifndef BRIGADE_PROFILE_CEILINGS_H_
#define BRIGADE_PROFILE_CEILINGS_H_

// What the machine of a running job can do at most, measured or from a file.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/options.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/profile/roofline.h"

namespace brigade::profile {

// Of one rank, while all ranks measure at once: what they share (cores, memory, links) they share
// here as in a step. A call of all ranks; waits.
//
// Method       The best of several rounds: of a square product by nn::Blas, of a copy of memory
//              that is larger than caches, and of each collective with 1 MiB of each rank over a
//              communicator of its own, sums of `dtype` as `reduce` says. That of the network is
//              that of an all-gather.
// Time         On a CPU some 0.3 s, more where many ranks share a core.
// Memory       Until it returns: of purpose scratch, three matrices, Blas's workspace, then two
//              arrays of 64 MiB (1 GiB on a GPU), all of them smaller where less is free; and of
//              purpose communication 1 MiB for each rank. What has no memory at all is not known.
// Errors       Those of Blas, of the device and of the communicator.
absl::StatusOr<Ceilings> MeasureCeilings(precision::DType dtype,
                                         const collectives::ReduceOptions& reduce,
                                         collectives::Communicator& world, device::Context& context,
                                         device::Stream& stream);

// What a file of ceilings is of.
struct Machine {
  // "cpu", "cuda".
  std::string device = {};
  // "fp32".
  std::string dtype = {};
  int ranks = 1;
};

//   {"device": "cpu", "dtype": "fp32", "ranks": 4, "matmul_tflops": 0.05,
//    "memory_gigabytes_per_s": 8.5, "network_gigabytes_per_s": 1.2,
//    "all_reduce_gigabytes_per_s": 1.1, "reduce_scatter_gigabytes_per_s": 1.3, ...}
//
// Tflop and GB are 1e12 and 1e9. Optional are device, dtype and ranks, which must be the job's, and
// what is not to be compared with: 0.
//
// Errors       InvalidArgument naming the key and what it must be.
std::string CeilingsJson(const Ceilings& ceilings, const Machine& machine);
absl::StatusOr<Ceilings> CeilingsFromJson(absl::string_view text, const Machine& machine);

// Of the file, which rank 0 reads; if it is not there they are measured, and rank 0 writes it. With
// an empty path they are measured. A call of all ranks, with the same path.
//
// Errors       On all ranks: of the file, naming it, and of MeasureCeilings.
absl::StatusOr<Ceilings> CeilingsOf(const std::string& path, precision::DType dtype,
                                    const collectives::ReduceOptions& reduce,
                                    collectives::Communicator& world, device::Context& context,
                                    device::Stream& stream);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_CEILINGS_H_
