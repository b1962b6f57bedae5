#include "brigade/parallel/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace brigade::parallel {

const std::vector<NamedMachine>& NamedMachines() {
  static const std::vector<NamedMachine>* const machines = new std::vector<NamedMachine>{
      {"dgx_a100",
       "collectives/tuning/topologies/dgx_a100.json",
       {"A100 80 GB", 312e12, 0.68, 80e9, 2.039e12},
       8},
      {"hgx_h100",
       "collectives/tuning/topologies/hgx_h100.json",
       {"H100 80 GB", 989e12, 0.56, 80e9, 3.35e12},
       8},
      {"dgx2h_v100",
       "collectives/tuning/topologies/dgx2h_v100.json",
       {"V100 32 GB", 130e12, 0.37, 32e9, 0.9e12},
       16},
  };
  return *machines;
}

absl::StatusOr<NamedMachine> MachineByName(absl::string_view name) {
  for (const NamedMachine& machine : NamedMachines()) {
    if (machine.name == name) return machine;
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no machine \"", name, "\"; there are ",
      absl::StrJoin(NamedMachines(), ", ", [](std::string* out, const NamedMachine& machine) {
        absl::StrAppend(out, machine.name);
      })));
}

absl::Status Validate(const Machine& machine) {
  for (const auto& [what, value] :
       {std::pair("peak in FLOP/s", machine.device.peak_flops),
        std::pair("efficiency", machine.device.product_efficiency),
        std::pair("memory in bytes", machine.device.memory_bytes),
        std::pair("memory's bytes/s", machine.device.memory_bytes_per_s)}) {
    if (value > 0 && std::isfinite(value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the device's ", what, " is ", value, "; it must be more than 0"));
  }
  if (machine.ranks_per_node < 1 || machine.ranks_per_node > collectives::kMaxModelledRanks) {
    return absl::InvalidArgumentError(absl::StrCat("a node has ", machine.ranks_per_node,
                                                   " ranks; it must be 1 to ",
                                                   collectives::kMaxModelledRanks));
  }
  collectives::Topology topology = machine.topology;
  topology.ranks_of_node = {machine.ranks_per_node};
  return collectives::Validate(topology);
}

double ProductSeconds(const Device& device, const Product& product) {
  constexpr double kElementBytes = 2;
  const auto [m, n, k, count, more_bytes] = product;
  const double bytes = kElementBytes * (m * k + k * n + m * n) + more_bytes;
  return count * std::max(2 * m * n * k / (device.product_efficiency * device.peak_flops),
                          MemorySeconds(device, bytes));
}

double MemorySeconds(const Device& device, double bytes) {
  return bytes / (kMemoryEfficiency * device.memory_bytes_per_s);
}

}  // namespace brigade::parallel
