#include "brigade/benchmarks/checkpoint/trainings.h"

#include <time.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>

#include "brigade/benchmarks/zero/ranks.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_control.h"

namespace brigade::benchmarks {
namespace {

double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

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
                                                 const CreateTurns& create) {
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = ranks}));
  std::barrier meet(ranks);
  std::vector<TurnTimes> times;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Training training;
      const auto take = [&](const Turn& turn, bool counts, TurnTimes* of_turn) -> absl::Status {
        if (turn.before) BRIGADE_RETURN_IF_ERROR(turn.before());
        meet.arrive_and_wait();
        const double processor = ProcessorSeconds();
        const auto begin = std::chrono::steady_clock::now();
        BRIGADE_RETURN_IF_ERROR(turn.run());
        meet.arrive_and_wait();
        const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
        if (rank == 0 && counts) {
          of_turn->wall.push_back(wall.count());
          of_turn->processor.push_back(ProcessorSeconds() - processor);
        }
        if (turn.after) BRIGADE_RETURN_IF_ERROR(turn.after());
        meet.arrive_and_wait();
        return absl::OkStatus();
      };
      const auto all = [&]() -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(training.Create(rank, *group, model));
        BRIGADE_ASSIGN_OR_RETURN(const std::vector<Turn> turns, create(training));
        if (rank == 0) times.resize(turns.size());
        meet.arrive_and_wait();
        for (int round = -1; round < rounds; ++round) {
          for (size_t k = 0; k < turns.size(); ++k) {
            const size_t i = round % 2 == 0 ? turns.size() - 1 - k : k;
            BRIGADE_RETURN_IF_ERROR(take(turns[i], round >= 0, &times[i]));
          }
        }
        return absl::OkStatus();
      };
      // A rank that fails ends the process, because the others would wait for it.
      if (const absl::Status status = all(); !status.ok()) {
        std::cerr << "rank " << rank << ": " << status << "\n";
        std::exit(1);
      }
      // No rank frees its memory while others still use it.
      meet.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return times;
}

}  // namespace brigade::benchmarks
