#ifndef BRIGADE_PARALLEL_PLAN_MACHINE_H_
#define BRIGADE_PARALLEL_PLAN_MACHINE_H_

// What a planner has to know of a machine: its devices, and what lies between them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/tuning/topology.h"

namespace brigade::parallel {

struct Device {
  std::string name = {};
  // Of products of 16-bit matrices.
  double peak_flops = 0;
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
};

struct Machine {
  Device device = {};
  int ranks_per_node = 8;
  // Of any number of nodes: ranks_of_node is not looked at.
  collectives::Topology topology = {};
};

// A machine that is known by name, with the file of its topology, from the root of the repository.
struct NamedMachine {
  std::string name;
  std::string topology_file;
  Device device;
  int ranks_per_node;
};

// "dgx_a100", "hgx_h100", "dgx2h_v100". Sources: data sheets of the devices. The V100 of a DGX-2H
// has a higher clock than others: Megatron calls 62.4 TFLOP/s 48 % of its peak
// (nv-adlr.github.io/MegatronLMV1), which makes it 130.
//
// Errors       NotFound with all names.
absl::StatusOr<NamedMachine> MachineByName(absl::string_view name);
const std::vector<NamedMachine>& NamedMachines();

// InvalidArgument naming the figure that no machine has.
absl::Status Validate(const Machine& machine);

// The share of the peak that the largest products of 16-bit matrices reach. Fitted, once, to one
// published run: Megatron's 1.7e9 parameters on 32 A100, whose ranks exchange nothing but
// gradients (arXiv 2104.04473, table 1: 137 TFLOP/s); used for all devices and all sizes.
inline constexpr double kProductEfficiency = 0.70;

// The time of `count` products [m, k] * [k, n] in 16 bits: operations at kProductEfficiency of the
// peak, and after them, as if nothing overlapped, every operand and the result once through memory.
// So small or thin products are slower: that is the whole efficiency curve.
double ProductSeconds(const Device& device, double m, double n, double k, double count = 1);

// The time of an operation that is bound by memory.
double MemorySeconds(const Device& device, double bytes);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_MACHINE_H_
