#include "brigade/examples/gpt/step_batch.h"

#include <cstring>

#include "brigade/device/status_macros.h"
#include "brigade/nn/cross_entropy.h"

namespace brigade::gpt {

using device::Purpose;

int64_t StepBatch::LossesBegin(const PassShape& shape, int64_t micro_batches) {
  return kLossParts +
         nn::PartsOfLosses(micro_batches * shape.rows()) * static_cast<int64_t>(sizeof(double));
}

int64_t StepBatch::TextsBegin(const PassShape& shape, int64_t micro_batches) {
  return LossesBegin(shape, micro_batches) +
         micro_batches * shape.rows() * static_cast<int64_t>(sizeof(float));
}

int64_t StepBatch::Bytes(const PassShape& shape, int64_t micro_batches) {
  return TextsBegin(shape, micro_batches) + micro_batches * shape.batch * TextBytes(shape);
}

absl::StatusOr<StepBatch> StepBatch::Create(const PassShape& shape, int64_t micro_batches,
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

void StepBatch::SetText(int64_t index, const char* whole) {
  uint8_t* part = host_in_.as<uint8_t>().data() + texts_begin() + index * text_bytes();
  for (const parallel::PositionRun& run : shape_.runs()) {
    const auto bytes = static_cast<size_t>(run.count + 1);
    std::memcpy(part, whole + run.global, bytes);
    part += bytes;
  }
}

absl::Status StepBatch::CopyToDevice(const StepSums& mine, device::Stream& stream) {
  uint8_t* const host = host_in_.as<uint8_t>().data();
  std::memcpy(host, &mine, sizeof(mine));
  BRIGADE_RETURN_IF_ERROR(stream.Copy(sums(), host, sizeof(mine)));
  return stream.Copy(OnDevice(texts_begin()), host + texts_begin(), texts() * text_bytes());
}

nn::Texts StepBatch::MicroBatch(int64_t index) const {
  return {OnDevice(texts_begin() + index * shape_.batch * text_bytes()), shape_.batch,
          shape_.positions(), std::ssize(shape_.runs())};
}

float* StepBatch::losses_of(int64_t micro_batch) const {
  return reinterpret_cast<float*>(OnDevice(LossesBegin(shape_, micro_batches_))) +
         micro_batch * shape_.rows();
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

}  // namespace brigade::gpt
