#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/system_error.h>
#include <thrust/transform.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>

#include "brigade/benchmarks/kernels/cub_rivals.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;

struct Convert {
  __device__ BFloat16 operator()(float x) const { return BFloat16(x); }
};
struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};
struct Magnitude {
  __device__ float operator()(float x) const { return ::fabsf(x); }
};

// Of Thrust, which throws.
template <typename F>
cudaError_t ErrorOf(const F& algorithm) {
  try {
    algorithm();
    return cudaSuccess;
  } catch (const thrust::system_error& error) {
    return static_cast<cudaError_t>(error.code().value());
  }
}

}  // namespace

cudaError_t ThrustCast(const float* source, BFloat16* target, int64_t size, cudaStream_t stream) {
  return ErrorOf([&] {
    thrust::transform(thrust::cuda::par_nosync.on(stream), source, source + size, target,
                      Convert());
  });
}

cudaError_t CubCast(const float* source, BFloat16* target, int64_t size, cudaStream_t stream) {
  return cub::DeviceTransform::Transform(source, target, size, Convert(), stream);
}

cudaError_t ThrustFill(float* target, int64_t size, float value, cudaStream_t stream) {
  return ErrorOf(
      [&] { thrust::fill(thrust::cuda::par_nosync.on(stream), target, target + size, value); });
}

cudaError_t CubFill(float* target, int64_t size, float value, cudaStream_t stream) {
  return cub::DeviceTransform::Transform(cuda::std::tuple<>{}, target, size, Constant{value},
                                         stream);
}

cudaError_t CubAmax(const float* array, int64_t size, void* memory, size_t& bytes, float* result,
                    cudaStream_t stream) {
  return cub::DeviceReduce::Max(memory, bytes, thrust::make_transform_iterator(array, Magnitude()),
                                result, size, stream);
}

}  // namespace brigade::benchmarks
