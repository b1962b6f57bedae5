#ifndef BRIGADE_BENCHMARKS_COMMON_CASES_H_
#define BRIGADE_BENCHMARKS_COMMON_CASES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "brigade/benchmarks/common/bench.h"
#include "brigade/benchmarks/common/tensor_list.h"

namespace brigade::benchmarks {

// One line of a benchmark's output: so many elements, in one range or as a list, on a GPU or by so
// many threads.
struct Case {
  int64_t elements;
  int64_t tensors;  // 1: one flat range
  device::Device device;
  int threads = 1;

  TensorList list() const;
};

// Measures one case on a fresh bench and fills `state`; an error becomes the benchmark's.
using MeasureCase = std::function<absl::Status(const Case&, Bench&, benchmark::State&)>;

struct CaseOptions {
  // Of memory: cases that do not fit are left out and named on stderr.
  int64_t bytes_per_element;
};

// Registers `name`/[tensors:L/]elements:N/threads:T
//   flat: for N from 4 Ki to 256 Mi, times 4; lists: 10,000 tensors of 64 Mi elements altogether,
//   and 100 of 256 Ki; each with T of 1 and of all cores.
// or, with --device=cuda, `name`/[tensors:1000/]elements:N/cuda
//   flat for N of 10^4; flat and as a GPT's tensors for N of 10^6, 10^8 and 10^9.
absl::Status RegisterCases(const std::string& name, const CaseOptions& options,
                           MeasureCase measure);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_CASES_H_
