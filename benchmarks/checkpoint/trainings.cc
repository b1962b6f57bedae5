#include "brigade/benchmarks/checkpoint/trainings.h"

#include <cstring>
#include <random>

#include "brigade/benchmarks/zero/ranks.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_control.h"

namespace brigade::benchmarks {
absl::Status Training::Create(int rank, collectives::ThreadGroup& group,
                              const SyntheticModel& model) {
  device::ContextOptions options;
  options.compute_threads = 1;
  options.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(context_, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(compute_, context_->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *context_));
  BRIGADE_ASSIGN_OR_RETURN(communicator_,
                           collectives::Communicator::Create(std::move(engine), *context_));
  BRIGADE_ASSIGN_OR_RETURN(transformer_, SyntheticTransformer::Create(model, *context_, *compute_));
  const zero::ZeroOptions zero_options = OptionsOf(model, /*stage=*/2, /*overlap=*/true);
  BRIGADE_ASSIGN_OR_RETURN(
      zero_, zero::ZeroOptimizer::Create(model.Spec(), zero_options, *communicator_, *context_,
                                         *compute_));
  std::minstd_rand random(static_cast<unsigned>(rank + 1));
  BRIGADE_RETURN_IF_ERROR(zero_->LoadState(
      kernels::InitialStepState(zero_options.loss_scaler.ToKernelOptions()),
      [&](int, int, zero::ElementRange range, void* values) {
        // From 0.5 to 1, with random digits.
        for (int64_t i = 0; i < range.size; ++i) {
          const uint32_t bits = 0x3f000000 | (static_cast<uint32_t>(random()) & 0x7fffff);
          std::memcpy(static_cast<char*>(values) + i * 4, &bits, sizeof(bits));
        }
        return absl::OkStatus();
      }));
  return CopyOwn();
}

absl::Status Training::CopyOwn() {
  const zero::Plan& plan = zero_->plan();
  BRIGADE_RETURN_IF_ERROR(zero_->LendState(*compute_));
  for (int array = 0; array < zero_->state_arrays(); ++array) {
    for (int b = static_cast<int>(plan.buckets().size()); b-- > 0;) {
      const int64_t slice = plan.slice(plan.bucket(b));
      BRIGADE_ASSIGN_OR_RETURN(
          device::Buffer copy,
          context_->AllocateHost(slice * static_cast<int64_t>(sizeof(float)),
                                 device::Purpose::kScratch, "copy of the state"));
      BRIGADE_RETURN_IF_ERROR(zero_->CopyState(b, array, {0, slice}, copy.data(), *compute_));
      own_.push_back(std::move(copy));
    }
  }
  BRIGADE_RETURN_IF_ERROR(zero_->ReturnState());
  return compute_->Synchronize();
}

Memory Training::Own() const {
  Memory memory;
  for (const device::Buffer& each : own_) {
    memory.emplace_back(static_cast<const char*>(each.data()), static_cast<size_t>(each.bytes()));
  }
  return memory;
}

absl::Status Training::Step() {
  BRIGADE_RETURN_IF_ERROR(transformer_->Forward(*zero_));
  BRIGADE_RETURN_IF_ERROR(transformer_->Backward(*zero_));
  return zero_->Step();
}

absl::Status Training::Synchronize() {
  BRIGADE_RETURN_IF_ERROR(zero_->step_stream().Synchronize());
  return compute_->Synchronize();
}

absl::StatusOr<std::vector<TurnTimes>> TakeTurns(int ranks, const SyntheticModel& model, int rounds,
                                                 const CreateTrainingTurns& create) {
  std::vector<Training> trainings(static_cast<size_t>(ranks));
  return TakeTurns(
      ranks, rounds,
      [&](int rank, collectives::ThreadGroup& group) -> absl::StatusOr<std::vector<Turn>> {
        Training& training = trainings[static_cast<size_t>(rank)];
        BRIGADE_RETURN_IF_ERROR(training.Create(rank, group, model));
        return create(training);
      });
}

}  // namespace brigade::benchmarks
