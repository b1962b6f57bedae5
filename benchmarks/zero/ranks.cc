#include "brigade/benchmarks/zero/ranks.h"

#include <time.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/zero/throttled_engine.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;
using zero::ZeroOptimizer;

constexpr int64_t kGradientBytes = sizeof(BFloat16);  // and a weight's
constexpr int64_t kStateBytes = sizeof(float);

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

zero::ZeroOptions OptionsOf(const SyntheticModel& model, int stage, bool overlap) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.overlap_comm = overlap;
  options.bucket_elements = model.unit_elements;
  return options;
}

absl::Status Rank::Create(int rank, collectives::ThreadGroup& group, const SyntheticModel& model,
                          double bytes_per_second) {
  model_ = model;
  device::ContextOptions options;
  options.compute_threads = 1;
  options.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(context_, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(compute_, context_->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *context_));
  BRIGADE_ASSIGN_OR_RETURN(
      communicator_, collectives::Communicator::Create(
                         CreateThrottledEngine(std::move(engine), bytes_per_second), *context_));
  BRIGADE_ASSIGN_OR_RETURN(transformer_, SyntheticTransformer::Create(model, *context_, *compute_));
  return absl::OkStatus();
}

absl::StatusOr<ZeroOptimizer*> Rank::CreateZero(int stage, bool overlap) {
  const zero::ZeroOptions options = OptionsOf(model_, stage, overlap);
  BRIGADE_ASSIGN_OR_RETURN(auto zero, ZeroOptimizer::Create(model_.Spec(), options, *communicator_,
                                                            *context_, *compute_));
  optimizers_.push_back(std::move(zero));
  return optimizers_.back().get();
}

absl::Status Rank::Sync(ZeroOptimizer* zero) {
  if (zero != nullptr) BRIGADE_RETURN_IF_ERROR(zero->step_stream().Synchronize());
  return compute_->Synchronize();
}

Contestant Rank::Step(const std::string& name, ZeroOptimizer* zero, int steps) {
  return {name, [=, this]() -> absl::Status {
            const int64_t before = zero->traffic().total();
            for (int i = 0; i < steps; ++i) {
              BRIGADE_RETURN_IF_ERROR(transformer_->Forward(*zero));
              BRIGADE_RETURN_IF_ERROR(transformer_->Backward(*zero));
              BRIGADE_RETURN_IF_ERROR(zero->Step());
            }
            sent_ = zero->traffic().total() - before;
            host_end_ = ThreadSeconds();
            return Sync(zero);
          }};
}

Contestant Rank::TransformerAlone(int steps) {
  return {"transformer", [=, this]() -> absl::Status {
            for (int i = 0; i < steps; ++i) {
              BRIGADE_RETURN_IF_ERROR(transformer_->ForwardAlone());
              BRIGADE_RETURN_IF_ERROR(transformer_->BackwardAlone());
            }
            host_end_ = ThreadSeconds();
            return Sync();
          }};
}

Contestant Rank::Collectives(const zero::Plan& plan, bool stage3, int steps) {
  return {stage3 ? "collectives, stage 3" : "collectives", [=, this, &plan]() -> absl::Status {
            for (int i = 0; i < steps; ++i) {
              for (const bool reduce : {true, false}) {
                for (int k = 0; k < (stage3 && !reduce ? 2 : 1); ++k) {
                  BRIGADE_RETURN_IF_ERROR(ForEachBucket(plan, reduce, stage3 && !reduce));
                }
              }
            }
            host_end_ = ThreadSeconds();
            return Sync();
          }};
}

absl::Status Rank::ForEachBucket(const zero::Plan& plan, bool reduce, bool from_elsewhere) {
  char* whole = static_cast<char*>(buffer_.data());
  const char* elsewhere = static_cast<const char*>(state_.data());
  for (const zero::Bucket& bucket : plan.buckets()) {
    const int64_t slice = plan.slice(bucket);
    const int64_t bytes = slice * precision::SizeOf(bucket.dtype);
    char* const mine = whole + communicator_->rank() * bytes;
    BRIGADE_RETURN_IF_ERROR(
        reduce ? communicator_->ReduceScatter(whole, mine, slice, bucket.dtype, {}, *compute_)
               : communicator_->AllGather(from_elsewhere ? elsewhere : mine, whole, slice,
                                          bucket.dtype, {}, *compute_));
    whole += bucket.bytes();
    elsewhere += bytes;
  }
  return absl::OkStatus();
}

Contestant Rank::Optimizer(const std::string& name, int64_t elements, int steps) {
  const int64_t slice = model_.elements() / communicator_->size();
  float* const state = state_.as<float>().data();
  auto* const weights = static_cast<BFloat16*>(buffer_.data());
  auto* const gradients = reinterpret_cast<BFloat16*>(state + 3 * model_.elements());
  const Work check = ReadCeilings(gradients, slice * kGradientBytes).back();
  const Work update = UpdateCeiling<BFloat16, BFloat16, 3>(
      {state, state + elements, state + 2 * elements}, gradients, weights, elements);
  return {name, [=, this]() -> absl::Status {
            for (int i = 0; i < steps; ++i) {
              BRIGADE_RETURN_IF_ERROR(check(*compute_));
              BRIGADE_RETURN_IF_ERROR(update(*compute_));
            }
            return Sync();
          }};
}

absl::Status Rank::CreateArrays() {
  const int64_t elements = model_.elements();
  BRIGADE_ASSIGN_OR_RETURN(
      auto state,
      context_->Allocate(elements * (3 * kStateBytes + kGradientBytes), device::Purpose::kScratch));
  BRIGADE_ASSIGN_OR_RETURN(
      auto buffer, context_->Allocate(elements * kGradientBytes, device::Purpose::kScratch));
  BRIGADE_RETURN_IF_ERROR(compute_->FillBytes(state.data(), 0, state.bytes()));
  BRIGADE_RETURN_IF_ERROR(compute_->FillBytes(buffer.data(), 0, buffer.bytes()));
  state_ = std::move(state);
  buffer_ = std::move(buffer);
  return compute_->Synchronize();
}

Contestant Rank::Backward(const std::string& name, ZeroOptimizer* zero) {
  return {name,
          [=, this]() -> absl::Status {
            BRIGADE_RETURN_IF_ERROR(transformer_->Backward(*zero));
            return Sync(zero);
          },
          [=, this]() -> absl::Status {
            BRIGADE_RETURN_IF_ERROR(zero->Step());
            return Sync(zero);
          }};
}
Contestant Rank::BackwardAlone() {
  return {"backward alone", [this]() -> absl::Status {
            BRIGADE_RETURN_IF_ERROR(transformer_->BackwardAlone());
            return Sync();
          }};
}

absl::StatusOr<std::vector<Times>> Compete(int ranks, const SyntheticModel& model,
                                           double bytes_per_second, int rounds,
                                           const CreateContestants& make) {
  BRIGADE_ASSIGN_OR_RETURN(auto group, collectives::ThreadGroup::Create({.size = ranks}));
  std::barrier meet(ranks);
  std::vector<Times> times;
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rank run;
      const auto all = [&]() -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(run.Create(rank, *group, model, bytes_per_second));
        BRIGADE_ASSIGN_OR_RETURN(auto contestants, make(run));
        if (rank == 0) times.resize(contestants.size());
        // The first round is not counted.
        for (int round = -1; round < rounds; ++round) {
          for (size_t i = 0; i < contestants.size(); ++i) {
            meet.arrive_and_wait();
            const double host = ThreadSeconds();
            const auto begin = std::chrono::steady_clock::now();
            BRIGADE_RETURN_IF_ERROR(contestants[i].run());
            meet.arrive_and_wait();
            const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
            if (rank == 0 && round >= 0) {
              times[i].wall.push_back(wall.count());
              times[i].host.push_back(run.host_end() - host);
              times[i].sent = run.sent();
            }
            if (contestants[i].after) BRIGADE_RETURN_IF_ERROR(contestants[i].after());
          }
        }
        return absl::OkStatus();
      };
      statuses[static_cast<size_t>(rank)] = all();
      // A rank that fails ends the process, because the others would wait for it.
      if (!statuses[static_cast<size_t>(rank)].ok()) {
        std::cerr << "rank " << rank << ": " << statuses[static_cast<size_t>(rank)] << "\n";
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
