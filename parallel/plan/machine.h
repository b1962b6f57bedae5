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
  // Of products of 16-bit matrices, and the share of it that large ones reach.
  double peak_flops = 0;
  double product_efficiency = 0.7;
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
// (nv-adlr.github.io/MegatronLMV1), which makes it 130. product_efficiency is fitted, once a
// device, to the published run with the least communication, and used for all others:
//   A100   0.68  1.7e9 parameters on 32, 137 TFLOP/s (arXiv 2104.04473, table 1)
//   H100   0.56  GPT-3 on 96, 47 % of the peak (Megatron-LM's README)
//   V100   0.37  1.2e9 parameters on one, 39 TFLOP/s (arXiv 1909.08053)
//
// Errors       NotFound with all names.
absl::StatusOr<NamedMachine> MachineByName(absl::string_view name);
const std::vector<NamedMachine>& NamedMachines();

// InvalidArgument naming the figure that no machine has.
absl::Status Validate(const Machine& machine);

// The share of the memory's bandwidth that is reached: an assumption, what large copies reach.
inline constexpr double kMemoryEfficiency = 0.8;

// [m, k] * [k, n] in 16 bits, `count` times; each moves `more_bytes` besides its operands and its
// result.
struct Product {
  double m = 0;
  double n = 0;
  double k = 0;
  double count = 1;
  double more_bytes = 0;
};

// Its time: operations at product_efficiency of the peak, or every operand and the result once
// through memory, whichever takes longer. That is the whole efficiency curve.
double ProductSeconds(const Device& device, const Product& product);

// The time of an operation that is bound by memory.
double MemorySeconds(const Device& device, double bytes);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_MACHINE_H_
