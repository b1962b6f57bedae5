#include "brigade/train/step_batch.h"

#include <cstring>

#include "brigade/device/status_macros.h"
#include "brigade/nn/cross_entropy.h"

namespace brigade::train {

using device::Purpose;

int64_t StepBatch::LossesBegin(const BatchShape& shape, int64_t micro_batches) {
  return kLossParts +
         nn::PartsOfLosses(micro_batches * shape.losses) * static_cast<int64_t>(sizeof(double));
}

int64_t StepBatch::SamplesBegin(const BatchShape& shape, int64_t micro_batches) {
  const int64_t end = LossesBegin(shape, micro_batches) +
                      micro_batches * shape.losses * static_cast<int64_t>(sizeof(float));
  return (end + shape.alignment - 1) / shape.alignment * shape.alignment;
}

int64_t StepBatch::Bytes(const BatchShape& shape, int64_t micro_batches) {
  return SamplesBegin(shape, micro_batches) + micro_batches * shape.stride();
}

absl::StatusOr<StepBatch> StepBatch::Create(const BatchShape& shape, int64_t micro_batches,
                                            device::Context& context) {
  StepBatch batch(shape, micro_batches);
  const int64_t bytes = Bytes(shape, micro_batches);
  BRIGADE_ASSIGN_OR_RETURN(batch.device_, context.Allocate(bytes, Purpose::kActivations, "batch"));
  BRIGADE_ASSIGN_OR_RETURN(batch.host_in_,
                           context.AllocateHost(bytes, Purpose::kScratch, "batch to come"));
  BRIGADE_ASSIGN_OR_RETURN(batch.host_out_,
                           context.AllocateHost(bytes, Purpose::kScratch, "losses"));
  BRIGADE_ASSIGN_OR_RETURN(batch.computed_, context.CreateEvent("losses computed"));
  BRIGADE_ASSIGN_OR_RETURN(batch.done_, context.CreateEvent("step done"));
  return batch;
}

absl::Status StepBatch::CopyToDevice(const StepSums& mine, device::Stream& stream) {
  uint8_t* const host = host_in_.as<uint8_t>().data();
  std::memcpy(host, &mine, sizeof(mine));
  std::memcpy(host + sizeof(mine), &weights.gradient, sizeof(float));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(sums(), host, sizeof(mine) + sizeof(float)));
  return stream.Copy(OnDevice(samples_begin()), host + samples_begin(),
                     micro_batches_ * shape_.stride());
}

float* StepBatch::losses_of(int64_t micro_batch) const {
  return reinterpret_cast<float*>(OnDevice(LossesBegin(shape_, micro_batches_))) +
         micro_batch * shape_.losses;
}

absl::Status StepBatch::MeanOfLosses(device::Stream& stream) {
  return nn::MeanOfLosses(precision::DType::kFloat32, losses_of(0), losses(),
                          reinterpret_cast<double*>(OnDevice(kLossParts)), sums(), stream);
}

absl::Status StepBatch::CopySumsToHost(device::Stream& stream) {
  return stream.Copy(host_out_.data(), sums(), sizeof(StepSums));
}

absl::Status StepBatch::CopyLossesToHost(device::Stream& stream) {
  return stream.Copy(host_out_.data(), losses_of(0),
                     losses() * static_cast<int64_t>(sizeof(float)));
}

StepSums StepBatch::host_sums() const {
  StepSums sums;
  std::memcpy(&sums, host_out_.data(), sizeof(sums));
  return sums;
}

}  // namespace brigade::train
