#ifndef BRIGADE_TESTS_KERNELS_GPU_BOTH_DEVICES_H_
#define BRIGADE_TESTS_KERNELS_GPU_BOTH_DEVICES_H_

// Runs the same calls on a CPU and on a GPU, on blocks of memory with the same contents, and
// compares every byte.

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/testing/emulated.h"
#include "gtest/gtest.h"

namespace brigade::kernels {

inline constexpr int64_t kBytes = int64_t{32} << 20;  // of a block

// Hands out pieces of one block of memory, so that a list has the same layout on every device.
class Layout {
 public:
  explicit Layout(char* base) : base_(base) {}

  // `elements` of `element_bytes`, `offset` elements past a 64-byte boundary.
  template <typename T>
  T* Take(int64_t elements, int64_t offset = 0, int64_t element_bytes = sizeof(T)) {
    used_ = (used_ + 63) / 64 * 64 + offset * element_bytes;
    T* const piece = reinterpret_cast<T*>(base_ + used_);
    used_ += elements * element_bytes;
    EXPECT_LE(used_, kBytes) << "the block is too small";
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

using Prepare = std::function<void(char* base)>;
using Run = std::function<absl::Status(char* base, device::Stream& stream)>;

inline std::vector<char> Prepared(const Prepare& prepare) {
  std::vector<char> memory(kBytes, 0x3c);
  prepare(memory.data());
  return memory;
}

// What becomes of a block when `run` has run on a device.
inline std::vector<char> RunOn(device::Device on, std::vector<char> memory, const Run& run) {
  device::ContextOptions options;
  options.device = on;
  auto context = device::Context::Create(options).value();
  auto stream = context->CreateStream("compute").value();
  auto buffer = context->Allocate(kBytes, device::Purpose::kScratch).value();
  EXPECT_OK(stream->Copy(buffer.data(), memory.data(), kBytes));
  EXPECT_OK(run(static_cast<char*>(buffer.data()), *stream));
  EXPECT_OK(stream->Copy(memory.data(), buffer.data(), kBytes));
  EXPECT_OK(stream->Synchronize());
  return memory;
}

struct BeforeAndAfter {
  std::vector<char> before;
  std::vector<char> after;  // on the GPU
};

inline BeforeAndAfter ExpectSameOnBoth(const std::string& what, const Prepare& prepare,
                                       const Run& run) {
  BeforeAndAfter memory;
  memory.before = Prepared(prepare);
  memory.after = RunOn(device::Cuda(), memory.before, run);
  const std::vector<char> cpu = RunOn(device::Cpu(), memory.before, run);
  if (cpu == memory.after) return memory;
  int64_t different = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < kBytes; ++i) {
    if (cpu[i] == memory.after[i]) continue;
    if (different++ == 0) first = i;
  }
  EXPECT_EQ(different, 0) << what << ": first at byte " << first;
  return memory;
}

// More segments than one launch holds, empty ones, odd sizes and a large one.
inline std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  for (int i = 0; i < 1500; ++i) sizes.push_back(i % 37);
  sizes.push_back(brigade::testing::OnGpuOrEmulator(1'000'003, 30'003));
  // Large at a place in the list where the codecs' arrays begin at a group's boundary.
  sizes.push_back(5'003);
  return sizes;
}

inline const std::vector<precision::DType> kFloats = {
    precision::DType::kFloat32, precision::DType::kFloat16, precision::DType::kBFloat16};

inline void FillFloats(void* data, precision::DType dtype, int64_t size, uint32_t seed,
                       float scale = 1.0f) {
  std::mt19937 random(seed);
  precision::VisitFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < size; ++i) {
      static_cast<T*>(data)[i] = T(scale * TypicalValue(random));
      // NaN's payload is not promised, and infinities soon make NaN.
      if (!std::isfinite(static_cast<float>(static_cast<T*>(data)[i]))) {
        static_cast<T*>(data)[i] = T(1.0f);
      }
    }
  });
}

struct StepMemory {
  explicit StepMemory(Layout& layout)
      : state(layout.Take<StepState>(1)), group_steps(layout.Take<GroupStep>(2)) {}
  void Prepare(int32_t skip, int64_t step = 1) const {
    *state = {};
    state->grad_multiplier = 0.125f;
    state->step = step;
    state->skip = skip;
    group_steps[0] = {1e-2f, 3e-2f, 5.0f};
    group_steps[1] = {2e-2f, 4e-2f, 7.0f};
  }
  StepState* state;
  GroupStep* group_steps;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_GPU_BOTH_DEVICES_H_
