// A training step of a synthetic model in each ZeRO stage, beside the sum of its parts measured alone; and how much of
// the communication a slow link leaves exposed. benchmarks/README.md says how to read it.

#include <time.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/zero/synthetic_model.h"
#include "brigade/benchmarks/zero/throttled_engine.h"
#include "brigade/collectives/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/memory_model.h"
#include "brigade/zero/zero_optimizer.h"

ABSL_FLAG(int, ranks, 2, "how many ranks, as threads");
ABSL_FLAG(int, units, 16, "units of the model");
ABSL_FLAG(int, parameters_per_unit, 4, "parameters of a unit");
ABSL_FLAG(int64_t, unit_elements, 1 << 20, "elements of a unit");
ABSL_FLAG(int, steps, 2, "steps of a turn");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;
using zero::ZeroOptimizer;
using zero::ZeroOptions;

// What takes turns: enqueues its work on this rank, and waits for it.
struct Contestant {
  std::string name;
  std::function<absl::Status()> run;
  std::function<absl::Status()> after = {};  // not timed
};

// Rank 0's times of a contestant's turns, and the processor time of its host thread in them.
struct Times {
  Seconds wall, host;
};

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

ZeroOptions Options(const SyntheticModel& model, int stage, bool overlap) {
  ZeroOptions options;
  options.stage = stage;
  options.overlap_comm = overlap;
  options.bucket_elements = model.unit_elements;
  return options;
}

class RankRun {
 public:
  absl::Status Create(int rank, collectives::ThreadGroup& group, const SyntheticModel& model,
                      double bytes_per_second) {
    model_ = model;
    device::ContextOptions options;
    options.compute_threads = 1;
    options.checks = false;
    BRIGADE_ASSIGN_OR_RETURN(context, device::Context::Create(options));
    context_ = std::move(context);
    BRIGADE_ASSIGN_OR_RETURN(compute, context_->NewStream("compute"));
    compute_ = std::move(compute);
    BRIGADE_ASSIGN_OR_RETURN(engine, group.Join(rank, *context_));
    BRIGADE_ASSIGN_OR_RETURN(communicator,
                             collectives::Communicator::Create(
                                 NewThrottledEngine(std::move(engine), bytes_per_second), *context_));
    communicator_ = std::move(communicator);
    BRIGADE_ASSIGN_OR_RETURN(passes, SyntheticPasses::Create(model, *context_, *compute_));
    passes_ = std::move(passes);
    return absl::OkStatus();
  }

  absl::StatusOr<ZeroOptimizer*> NewZero(int stage, bool overlap) {
    const ZeroOptions options = Options(model_, stage, overlap);
    BRIGADE_ASSIGN_OR_RETURN(zero, ZeroOptimizer::Create(model_.Spec(), options, *communicator_,
                                                         *context_, *compute_));
    optimizers_.push_back(std::move(zero));
    return optimizers_.back().get();
  }

  absl::Status Sync(ZeroOptimizer* zero = nullptr) {
    if (zero != nullptr) BRIGADE_RETURN_IF_ERROR(zero->step_stream().Synchronize());
    return compute_->Synchronize();
  }

  // The whole step, `steps` times.
  Contestant Step(const std::string& name, ZeroOptimizer* zero, int steps) {
    return {name, [=, this]() -> absl::Status {
              for (int i = 0; i < steps; ++i) {
                BRIGADE_RETURN_IF_ERROR(passes_->Forward(*zero));
                BRIGADE_RETURN_IF_ERROR(passes_->Backward(*zero));
                BRIGADE_RETURN_IF_ERROR(zero->Step());
              }
              host_end_ = ThreadSeconds();
              return Sync(zero);
            }};
  }

  Contestant Passes(int steps) {
    return {"passes", [=, this]() -> absl::Status {
              for (int i = 0; i < steps; ++i) {
                BRIGADE_RETURN_IF_ERROR(passes_->ForwardAlone());
                BRIGADE_RETURN_IF_ERROR(passes_->BackwardAlone());
              }
              host_end_ = ThreadSeconds();
              return Sync();
            }};
  }

  // The plan's collectives: each bucket reduced once and gathered `gathers` times, in place.
  Contestant Collectives(const zero::Plan& plan, int gathers, int steps) {
    return {absl::StrCat("collectives, ", gathers), [=, this, &plan]() -> absl::Status {
              char* const data = static_cast<char*>(buffer_.data());
              for (int i = 0; i < steps; ++i) {
                int64_t at = 0;
                for (const zero::Bucket& bucket : plan.buckets()) {
                  const int64_t slice = plan.slice(bucket);
                  char* const whole = data + at;
                  char* const mine =
                      whole + communicator_->rank() * slice * precision::SizeOf(bucket.dtype);
                  BRIGADE_RETURN_IF_ERROR(communicator_->ReduceScatter(
                      whole, mine, slice, {.dtype = bucket.dtype}, *compute_));
                  for (int k = 0; k < gathers; ++k) {
                    BRIGADE_RETURN_IF_ERROR(communicator_->AllGather(
                        mine, whole, slice, {.dtype = bucket.dtype}, *compute_));
                  }
                  at += bucket.bytes();
                }
              }
              return Sync();
            }};
  }

  // What the memory allows for the own slices' check and the update of `elements`.
  Contestant Optimizer(const std::string& name, int64_t elements, int steps) {
    const int64_t slice = model_.elements() / communicator_->size();
    float* const state = state_.as<float>().data();
    auto* const weights = static_cast<BFloat16*>(buffer_.data());
    auto* const gradients = reinterpret_cast<BFloat16*>(state + 3 * model_.elements());
    const Work check = ReadCeilings(gradients, slice * 2).back();
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

  absl::Status NewArrays() {
    const int64_t elements = model_.elements();
    BRIGADE_ASSIGN_OR_RETURN(state, context_->Allocate(elements * 14, device::Purpose::kScratch));
    BRIGADE_ASSIGN_OR_RETURN(buffer, context_->Allocate(elements * 2, device::Purpose::kScratch));
    BRIGADE_RETURN_IF_ERROR(compute_->FillBytes(state.data(), 0, state.bytes()));
    BRIGADE_RETURN_IF_ERROR(compute_->FillBytes(buffer.data(), 0, buffer.bytes()));
    state_ = std::move(state);
    buffer_ = std::move(buffer);
    return compute_->Synchronize();
  }

  // Backward alone, up to the end of the last reduction; the rest of the step is not timed.
  Contestant Backward(const std::string& name, ZeroOptimizer* zero) {
    return {name,
            [=, this]() -> absl::Status {
              BRIGADE_RETURN_IF_ERROR(passes_->Backward(*zero));
              return Sync(zero);
            },
            [=, this]() -> absl::Status {
              BRIGADE_RETURN_IF_ERROR(zero->Step());
              return Sync(zero);
            }};
  }
  Contestant BackwardAlone() {
    return {"backward alone", [this]() -> absl::Status {
              BRIGADE_RETURN_IF_ERROR(passes_->BackwardAlone());
              return Sync();
            }};
  }

  double host_end() const { return host_end_; }

 private:
  SyntheticModel model_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<SyntheticPasses> passes_;
  device::Buffer state_, buffer_;
  std::vector<std::unique_ptr<ZeroOptimizer>> optimizers_;
  double host_end_ = 0;
};

// Makes each rank's contestants on a thread of its own, and lets them take turns.
using MakeContestants = std::function<absl::StatusOr<std::vector<Contestant>>(RankRun&)>;
absl::StatusOr<std::vector<Times>> Compete(const SyntheticModel& model, double bytes_per_second,
                                           int rounds, const MakeContestants& make) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  BRIGADE_ASSIGN_OR_RETURN(group, collectives::ThreadGroup::Create({.size = ranks}));
  std::barrier meet(ranks);
  std::vector<Times> times;
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankRun run;
      const auto all = [&]() -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(run.Create(rank, *group, model, bytes_per_second));
        BRIGADE_ASSIGN_OR_RETURN(contestants, make(run));
        if (rank == 0) times.resize(contestants.size());
        for (int round = -1; round < rounds; ++round) {  // the first is not counted
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
            }
            if (contestants[i].after) BRIGADE_RETURN_IF_ERROR(contestants[i].after());
          }
        }
        return absl::OkStatus();
      };
      statuses[static_cast<size_t>(rank)] = all();
      // Who fails says so, and lets the others end.
      if (!statuses[static_cast<size_t>(rank)].ok()) {
        std::cerr << "rank " << rank << ": " << statuses[static_cast<size_t>(rank)] << "\n";
        std::exit(1);
      }
      meet.arrive_and_wait();  // nobody leaves while others still use its memory
    });
  }
  for (std::thread& thread : threads) thread.join();
  return times;
}

std::vector<std::string> json_lines;

void WriteFigure(const std::string& name, double value) {
  json_lines.push_back(absl::StrFormat(R"(  "%s": %.6g)", name, value));
}

absl::Status MeasureSteps(const SyntheticModel& model) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const int steps = absl::GetFlag(FLAGS_steps);
  enum { kPasses = 4, kCollectives, kCollectives3, kWhole, kSlice };
  BRIGADE_ASSIGN_OR_RETURN(
      times,
      Compete(model, std::numeric_limits<double>::infinity(), absl::GetFlag(FLAGS_rounds),
              [&](RankRun& run) -> absl::StatusOr<std::vector<Contestant>> {
                std::vector<Contestant> contestants;
                const zero::Plan* plan = nullptr;
                BRIGADE_RETURN_IF_ERROR(run.NewArrays());
                for (int stage = 0; stage < zero::kStages; ++stage) {
                  BRIGADE_ASSIGN_OR_RETURN(zero, run.NewZero(stage, /*overlap=*/false));
                  contestants.push_back(run.Step(absl::StrCat("stage ", stage), zero, steps));
                  plan = &zero->plan();
                }
                contestants.push_back(run.Passes(steps));
                contestants.push_back(run.Collectives(*plan, 1, steps));
                contestants.push_back(run.Collectives(*plan, 2, steps));
                contestants.push_back(run.Optimizer("whole", model.elements(), steps));
                contestants.push_back(run.Optimizer("slice", model.elements() / ranks, steps));
                return contestants;
              }));
  std::cout << absl::StrFormat(
      "# %d ranks, %d units of %d parameters, %d elements each, bfloat16, AdamW, no overlap; ms per step\n",
      ranks, model.units, model.parameters_per_unit, model.unit_elements);
  std::cout << absl::StrFormat("%6s %9s %9s %12s %10s %9s %12s %9s %10s %9s\n", "stage", "step",
                               "passes", "collectives", "optimizer", "step/sum", "of stage 0",
                               "host %", "memory MB", "sent MB");
  const auto ratio_to = [&](size_t a, const std::vector<size_t>& b) {
    Seconds sums(times[a].wall.size(), 0.0);
    for (const size_t each : b) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += times[each].wall[i];
    }
    return MedianRatio(times[a].wall, sums);
  };
  for (size_t stage = 0; stage < zero::kStages; ++stage) {
    const size_t collectives = stage == 3 ? kCollectives3 : kCollectives;
    const size_t optimizer = stage == 0 ? kWhole : kSlice;
    const double of_sum = ratio_to(stage, {kPasses, collectives, optimizer});
    const double of_stage0 = ratio_to(stage, {0});
    Seconds host;
    for (size_t i = 0; i < times[stage].host.size(); ++i) {
      host.push_back((times[stage].host[i] - times[kPasses].host[i]) / times[stage].wall[i]);
    }
    const auto ms = [&](size_t i) { return Median(times[i].wall) / steps * 1e3; };
    const ZeroOptions options = Options(model, static_cast<int>(stage), false);
    BRIGADE_ASSIGN_OR_RETURN(
        plan, zero::Plan::Create(model.Spec(), {ranks, options.dtype, options.bucket_elements}));
    const auto memory = static_cast<double>(zero::Total(zero::MemoryOf(plan, options)));
    const double sent_bytes = static_cast<double>(model.elements()) * 2 * (ranks - 1) / ranks *
                              (stage == 3 ? 3 : 2);
    std::cout << absl::StrFormat("%6d %9.2f %9.2f %12.2f %10.2f %9.3f %12.3f %9.2f %10.1f %9.1f\n",
                                 stage, ms(stage), ms(kPasses), ms(collectives), ms(optimizer),
                                 of_sum, of_stage0, Median(host) * 100, memory * 1e-6,
                                 sent_bytes * 1e-6);
    const std::string prefix = absl::StrCat("stage_", stage, "_");
    WriteFigure(prefix + "ms", ms(stage));
    WriteFigure(prefix + "of_sum", of_sum);
    WriteFigure(prefix + "of_stage_0", of_stage0);
    WriteFigure(prefix + "host_share", Median(host));
  }
  return absl::OkStatus();
}

// With the link as slow as 0.7 of a unit's backward per bucket, so that all but the last bucket's reduction fits beside.
absl::Status MeasureOverlap(SyntheticModel model) {
  model.passes = 32;
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const auto alone = [](RankRun& run) -> absl::StatusOr<std::vector<Contestant>> {
    return std::vector<Contestant>{run.BackwardAlone()};
  };
  constexpr double kFast = std::numeric_limits<double>::infinity();
  BRIGADE_ASSIGN_OR_RETURN(calm, Compete(model, kFast, 3, alone));
  const double unit_seconds = Median(calm[0].wall) / model.units;
  const double bucket_bytes =
      static_cast<double>(model.unit_elements) * 2 * (ranks - 1) / ranks;
  for (int stage = 0; stage < 3; ++stage) {
    BRIGADE_ASSIGN_OR_RETURN(
        times, Compete(model, bucket_bytes / (0.7 * unit_seconds), absl::GetFlag(FLAGS_rounds),
                       [&](RankRun& run) -> absl::StatusOr<std::vector<Contestant>> {
                         BRIGADE_ASSIGN_OR_RETURN(overlapped, run.NewZero(stage, true));
                         BRIGADE_ASSIGN_OR_RETURN(serial, run.NewZero(stage, false));
                         return std::vector<Contestant>{run.Backward("overlapped", overlapped),
                                                        run.Backward("serial", serial),
                                                        run.BackwardAlone()};
                       }));
    Seconds hidden, fits;
    for (size_t i = 0; i < times[0].wall.size(); ++i) {
      const double communication = times[1].wall[i] - times[2].wall[i];
      hidden.push_back(times[1].wall[i] - times[0].wall[i]);
      fits.push_back(communication * (model.units - 1) / model.units);
    }
    const double share = MedianRatio(hidden, fits);
    std::cout << absl::StrFormat(
        "overlap, stage %d: backward %.1f ms alone, %.1f with communication after it, %.1f beside it: %.1f %% of "
        "what fits is hidden\n",
        stage, Median(times[2].wall) * 1e3, Median(times[1].wall) * 1e3,
        Median(times[0].wall) * 1e3, share * 100);
    WriteFigure(absl::StrCat("overlap_stage_", stage), share);
  }
  return absl::OkStatus();
}

absl::Status Main() {
  SyntheticModel model;
  model.units = absl::GetFlag(FLAGS_units);
  model.parameters_per_unit = absl::GetFlag(FLAGS_parameters_per_unit);
  model.unit_elements = absl::GetFlag(FLAGS_unit_elements);
  BRIGADE_RETURN_IF_ERROR(MeasureSteps(model));
  BRIGADE_RETURN_IF_ERROR(MeasureOverlap(model));
  if (!absl::GetFlag(FLAGS_json).empty()) {
    std::ofstream(absl::GetFlag(FLAGS_json)) << "{\n" << absl::StrJoin(json_lines, ",\n") << "\n}\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Times ZeRO's steps; benchmarks/README.md says how to read them.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = brigade::benchmarks::Main();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
