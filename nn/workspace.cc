#include "brigade/nn/workspace.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/rows.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::nn {
namespace {

#if BRIGADE_CUDA
absl::StatusOr<size_t> SortBytes(const device::Context& context, int64_t rows) {
  const device::CudaDeviceGuard guard(context.device().ordinal);
  size_t bytes = 0;
  BRIGADE_RETURN_IF_ERROR(device::CudaStatus(SortTemporaryBytes(rows, bytes), "workspace"));
  return bytes;
}

// CUDA loads a kernel when it is first launched, which may wait for kernels that run
// (launch_kernel.h): CUB's run here once, of which no list is to be had. It has others for few
// rows.
absl::Status LoadSort(device::Context& context, const Workspace& workspace) {
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context.CreateStream("load the sort"));
  const device::Buffer& memory = workspace.memory();
  BRIGADE_RETURN_IF_ERROR(stream->Launch(
      {"load_sort", {{device::Writes(memory.data(), memory.bytes())}}}, [&](void* cuda_stream) {
        for (const int64_t rows : {workspace.rows(), std::min<int64_t>(workspace.rows(), 1)}) {
          BRIGADE_RETURN_IF_ERROR(device::CudaStatus(
              LaunchSort(rows, workspace.sort_memory().rows, workspace.order().rows,
                         workspace.sort_memory(), static_cast<cudaStream_t>(cuda_stream)),
              "load_sort"));
        }
        return absl::OkStatus();
      }));
  return stream->Synchronize();
}
#endif

}  // namespace

int64_t Workspace::LayOut(char* memory) {
  int64_t end = 0;
  const auto take = [&](auto*& array, int64_t bytes) {
    void* const begin = memory == nullptr ? nullptr : memory + end;
    array = static_cast<std::remove_reference_t<decltype(array)>>(begin);
    end += (bytes + 255) / 256 * 256;
  };
  take(order_.first_row, (order_.vocabulary + 1) * sizeof(int64_t));
  take(order_.rows, rows_ * sizeof(uint32_t));
  if (sort_.temporary_bytes == 0) return end;
  take(sort_.keys, rows_);
  take(sort_.sorted_keys, rows_);
  take(sort_.rows, rows_ * sizeof(uint32_t));
  take(sort_.temporary, static_cast<int64_t>(sort_.temporary_bytes));
  take(parts_, parts_bytes_);
  return end;
}

absl::StatusOr<Workspace> Workspace::Measure(const device::Context& context, precision::DType dtype,
                                             const Sizes& sizes) {
  const int64_t rows = sizes.rows;
  if (rows < 0 || rows > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("workspace: rows is ", rows, "; it must be from 0 to 2^32 - 1"));
  }
  if (sizes.vocabulary < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("workspace: vocabulary is ", sizes.vocabulary, "; it must be at least 1"));
  }
  Workspace workspace;
  workspace.order_.vocabulary = sizes.vocabulary;
  workspace.rows_ = rows;
  [[maybe_unused]] const bool on_gpu = context.device().kind == device::DeviceKind::kCuda;
#if BRIGADE_CUDA
  if (on_gpu) {
    BRIGADE_ASSIGN_OR_RETURN(workspace.sort_.temporary_bytes, SortBytes(context, rows));
  }
#endif
  const int64_t bytes = dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float);
  workspace.parts_bytes_ = bytes * std::max(PartsOf(rows) * sizes.sums,
                                            MostTokenParts(rows, sizes.vocabulary) * sizes.width);
  return workspace;
}

absl::StatusOr<int64_t> Workspace::Bytes(const device::Context& context, precision::DType dtype,
                                         const Sizes& sizes) {
  BRIGADE_ASSIGN_OR_RETURN(Workspace workspace, Measure(context, dtype, sizes));
  return workspace.LayOut(nullptr);
}

absl::StatusOr<Workspace> Workspace::Create(device::Context& context, precision::DType dtype,
                                            const Sizes& sizes) {
  BRIGADE_ASSIGN_OR_RETURN(Workspace workspace, Measure(context, dtype, sizes));
  BRIGADE_ASSIGN_OR_RETURN(
      workspace.memory_,
      context.Allocate(workspace.LayOut(nullptr), device::Purpose::kScratch, "sums of layers"));
  workspace.LayOut(static_cast<char*>(workspace.memory_.data()));
#if BRIGADE_CUDA
  const bool on_gpu = context.device().kind == device::DeviceKind::kCuda;
  if (on_gpu) BRIGADE_RETURN_IF_ERROR(LoadSort(context, workspace));
#endif
  return workspace;
}

}  // namespace brigade::nn
