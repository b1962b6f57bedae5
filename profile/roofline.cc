#include "brigade/profile/roofline.h"

#include <algorithm>
#include <iterator>

namespace brigade::profile {
namespace {

double Over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

}  // namespace

double Ceilings::OfCollective(const std::string& name) const {
  const auto found = collective_bytes_per_second.find(name == "send" ? "shift" : name);
  return found == collective_bytes_per_second.end() ? 0 : found->second;
}

absl::string_view Name(Limit limit) {
  constexpr absl::string_view kNames[kLimits] = {"compute", "memory", "network", "host"};
  return kNames[static_cast<size_t>(limit)];
}

Limit LimitOf(double flops, double bytes, const Ceilings& ceilings) {
  const double compute = Over(flops, ceilings.flops_per_second);
  if (compute == 0) return Limit::kMemory;
  return compute >= Over(bytes, ceilings.memory_bytes_per_second) ? Limit::kCompute
                                                                  : Limit::kMemory;
}

double LeastSeconds(double flops, double bytes, const Ceilings& ceilings) {
  return std::max(Over(flops, ceilings.flops_per_second),
                  Over(bytes, ceilings.memory_bytes_per_second));
}

Limit Largest(const LimitSeconds& seconds) {
  const auto largest = std::max_element(seconds.begin(), seconds.end());
  return static_cast<Limit>(std::distance(seconds.begin(), largest));
}

}  // namespace brigade::profile
