#ifndef BRIGADE_PROFILE_ROOFLINE_H_
#define BRIGADE_PROFILE_ROOFLINE_H_

// What a machine can do at most, and what of it limits work.
//
// Source       Williams, Waterman, Patterson 2009: work of F operations and B bytes takes at least
//              max(F / peak, B / bandwidth).

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::profile {

// Of one rank, with all ranks at work. 0: not known.
struct Ceilings {
  // Of matrix products in the type of the training.
  double flops_per_second = 0;
  // Read and written.
  double memory_bytes_per_second = 0;
  // Sent to other ranks.
  double network_bytes_per_second = 0;
  // "measured", "from FILE".
  std::string source = {};
  // Of each collective, by its name ("all_reduce"): sent to other ranks. What is not in it is not
  // known.
  std::map<std::string, double> collective_bytes_per_second = {};

  // Of a collective; of one that is not known 0. What ranks of a pipeline send each other is
  // compared with a shift, where each rank sends as well.
  double OfCollective(const std::string& name) const;
};

enum class Limit : uint8_t {
  // The peak of products.
  kCompute,
  // The bandwidth of memory.
  kMemory,
  // Other ranks, and the link to them.
  kNetwork,
  // The host, which has not enqueued the next operation yet; or nothing is to be done.
  kHost,
};
inline constexpr int kLimits = 4;

// "compute", "memory", "network", "host".
absl::string_view Name(Limit limit);

// What an operation would reach first: the one of both that takes longer. Without operations, or
// with an unknown peak, memory.
Limit LimitOf(double flops, double bytes, const Ceilings& ceilings);

// What it takes at least, in seconds; 0 where nothing is known.
double LeastSeconds(double flops, double bytes, const Ceilings& ceilings);

// [Limit]: the seconds in which each was what limited.
using LimitSeconds = std::array<double, kLimits>;

// The largest of them; of equal ones the first.
Limit Largest(const LimitSeconds& seconds);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_ROOFLINE_H_
