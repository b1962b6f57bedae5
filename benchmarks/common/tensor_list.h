#ifndef BRIGADE_BENCHMARKS_COMMON_TENSOR_LIST_H_
#define BRIGADE_BENCHMARKS_COMMON_TENSOR_LIST_H_

#include <cstdint>
#include <vector>

namespace brigade::benchmarks {

// The elements that a benchmark works on, as one flat range or as the tensors of a made-up model.
class TensorList {
 public:
  static TensorList Flat(int64_t elements);

  // `tensors` sizes that add up to `elements` (at least one each): 99 in 100 spread evenly over the
  // orders of magnitude from 1 to 32 Ki, as biases and norms are, the others from 64 Ki to 1 Mi, as
  // matrices are; then all scaled to fit the total, and in random order. The same on every run.
  static TensorList Mixed(int64_t tensors, int64_t elements);

  // The 1,000 tensors of a GPT with 83 layers, as wide (a multiple of 8) as `elements` (at least a
  // million) allow; its token embedding takes the rest, a twentieth at least.
  static TensorList Gpt(int64_t elements);

  const std::vector<int64_t>& sizes() const { return sizes_; }

  // How many elements an array must have to hold all tensors, gaps included.
  int64_t extent() const { return extent_; }

  // Where the tensors lie in the array number `role` (0 for parameters, 1 for their gradients,
  // ...), in elements, ascending. The tensors of a mixed list have gaps of 0 to 7 elements before
  // them, others in each role, so that their addresses are aligned to the element only and not to
  // each other. Those of a GPT are aligned as allocations are, to 512 bytes of fp32.
  std::vector<int64_t> Offsets(int role) const;

 private:
  TensorList(std::vector<int64_t> sizes, int64_t max_gap, int64_t alignment = 1);

  std::vector<int64_t> sizes_;
  int64_t alignment_;
  int64_t max_gap_;
  int64_t extent_;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_TENSOR_LIST_H_
