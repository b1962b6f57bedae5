#ifndef BRIGADE_TESTS_TRAIN_FLIPPED_WIRE_H_
#define BRIGADE_TESTS_TRAIN_FLIPPED_WIRE_H_

// Trainings of any task in which one bit flips on the wire of one rank, on every engine of the CPU.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/digests/digest_file.h"
#include "brigade/digests/first_difference.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/digests/flipping.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {

inline constexpr int kWireRanks = 3;
inline constexpr int64_t kWireSteps = 4;
// Behind so many steps, of those of this rank, one that does not write the digests.
inline constexpr int64_t kStepsBefore = 1;
inline constexpr int kWireRank = 1;

enum class WireEngine : uint8_t { kThreads, kMessages, kGloo };
inline const char* ToString(WireEngine engine) {
  return engine == WireEngine::kThreads    ? "threads"
         : engine == WireEngine::kMessages ? "messages"
                                           : "gloo";
}

// What one rank's next gather of weights, or sum of gradients, meets once it is armed.
struct CallFault {
  bool in_gradients = false;
  std::atomic<bool> armed = false;
  // Calls that are well before it.
  int passes_over = 0;
  // On engines of messages; of threads, which share memory, the call's result is damaged instead.
  digests::WireFault wire;
  bool has_wire = true;
  // Of the call that was damaged.
  collectives::CollectiveKind kind = collectives::CollectiveKind::kBarrier;

  bool IsOf(const collectives::CollectiveSignature& call) const {
    using collectives::CollectiveKind;
    // Not those of digests, losses and norms.
    constexpr int64_t kFewest = 1000;
    if (call.count < kFewest || call.dtype == precision::DType::kUint8) return false;
    return in_gradients ? call.kind == CollectiveKind::kReduceScatter ||
                              call.kind == CollectiveKind::kAllReduce
                        : call.kind == CollectiveKind::kAllGather;
  }
};

// Another engine, one of whose calls is damaged. So are those of groups made of it.
class FlippingEngine final : public collectives::Engine {
 public:
  // `fault` may be null.
  FlippingEngine(std::unique_ptr<collectives::Engine> below, CallFault* fault)
      : below_(std::move(below)), fault_(fault) {}

  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  bool HasNative(const collectives::CollectiveSignature& signature) const override {
    return below_->HasNative(signature);
  }
  collectives::Workspace WorkspaceFor(
      const collectives::CollectiveSignature& signature) const override {
    return below_->WorkspaceFor(signature);
  }
  absl::Status Reserve(const collectives::CollectiveSignature& signature) override {
    return below_->Reserve(signature);
  }
  absl::StatusOr<collectives::Registration> Register(void* data, int64_t bytes) override {
    return below_->Register(data, bytes);
  }
  absl::Status Run(const collectives::Collective& collective, device::Stream& stream) override {
    const collectives::CollectiveSignature& call = collective.signature;
    if (fault_ == nullptr || !fault_->IsOf(call) || !fault_->armed || fault_->passes_over-- > 0) {
      return below_->Run(collective, stream);
    }
    fault_->armed = false;
    fault_->kind = call.kind;
    if (fault_->has_wire) {
      BRIGADE_RETURN_IF_ERROR(
          stream.Enqueue({"arm a fault", {device::Reads(nullptr, 0)}}, [this](device::ThreadPool&) {
            fault_->wire.armed = true;
            return absl::OkStatus();
          }));
      return below_->Run(collective, stream);
    }
    BRIGADE_RETURN_IF_ERROR(below_->Run(collective, stream));
    const int64_t width = precision::SizeOf(call.dtype);
    // Of a gather, in what another rank has sent.
    const int64_t element =
        call.count / 2 + (fault_->in_gradients ? 0 : (rank() + 1) % size() * call.count);
    char* const at = static_cast<char*>(collective.output) + element * width;
    return stream.Enqueue({"flip a bit", {device::Writes(at, width)}},
                          [this, at, width](device::ThreadPool&) {
                            // Of the exponent: a gradient 256 times as large, or a 256th.
                            at[width - 1] ^= 0x04;
                            ++fault_->wire.damaged;
                            return absl::OkStatus();
                          });
  }
  absl::Status AllGatherHost(const collectives::Fingerprint& fingerprint,
                             absl::Span<const int64_t> values, absl::Span<int64_t> all) override {
    return below_->AllGatherHost(fingerprint, values, all);
  }
  absl::StatusOr<std::unique_ptr<collectives::Engine>> CreateSubgroup(
      absl::Span<const int> members, absl::Span<const int> lost, uint64_t generation) override {
    return Wrapped(below_->CreateSubgroup(members, lost, generation));
  }
  absl::StatusOr<std::unique_ptr<collectives::Engine>> Split(absl::Span<const int> members,
                                                             uint64_t generation) override {
    return Wrapped(below_->Split(members, generation));
  }
  absl::StatusOr<std::unique_ptr<collectives::Engine>> CreateHostChannel(
      uint64_t generation) override {
    return below_->CreateHostChannel(generation);
  }
  void Abort(const absl::Status& reason) override { below_->Abort(reason); }
  absl::Status status() const override { return below_->status(); }
  const int32_t* failure_flag() const override { return below_->failure_flag(); }
  int64_t sent_bytes(int to) const override { return below_->sent_bytes(to); }

 private:
  absl::StatusOr<std::unique_ptr<collectives::Engine>> Wrapped(
      absl::StatusOr<std::unique_ptr<collectives::Engine>> made) const {
    if (!made.ok() || *made == nullptr) return made;
    return std::make_unique<FlippingEngine>(*std::move(made), fault_);
  }

  const std::unique_ptr<collectives::Engine> below_;
  CallFault* const fault_;
};

// All ranks' engines of one training.
class WireEngines {
 public:
  WireEngines(WireEngine kind, bool verifies, CallFault* fault)
      : kind_(kind), verifies_(verifies), fault_(fault) {
    if (fault_ != nullptr) fault_->has_wire = kind != WireEngine::kThreads;
    if (kind == WireEngine::kThreads) {
      group_ = collectives::ThreadGroup::Create({.size = kWireRanks}).value();
    }
    if (kind == WireEngine::kGloo) port_ = collectives::testing::FreePort();
  }

  absl::StatusOr<std::unique_ptr<collectives::Engine>> Create(int rank, device::Context& context) {
    CallFault* const fault = rank == kWireRank ? fault_ : nullptr;
    BRIGADE_ASSIGN_OR_RETURN(auto below, CreateBelow(rank, fault, context));
    return std::make_unique<FlippingEngine>(std::move(below), fault);
  }

 private:
  using Transports = std::function<absl::StatusOr<std::unique_ptr<collectives::Transport>>(
      absl::Span<const int> members, const std::string& label)>;

  absl::StatusOr<std::unique_ptr<collectives::Engine>> CreateBelow(int rank, CallFault* fault,
                                                                   device::Context& context) {
    if (kind_ == WireEngine::kThreads) return group_->Join(rank, context);
    BRIGADE_ASSIGN_OR_RETURN(const Transports transports,
                             kind_ == WireEngine::kGloo ? GlooOf(rank) : InMemory(rank));
    const auto flipping =
        [transports, fault](
            absl::Span<const int> members,
            const std::string& label) -> absl::StatusOr<std::unique_ptr<collectives::Transport>> {
      BRIGADE_ASSIGN_OR_RETURN(auto transport, transports(members, label));
      return std::make_unique<digests::FlippingTransport>(
          std::move(transport), fault == nullptr ? nullptr : &fault->wire);
    };
    std::vector<int> all(kWireRanks);
    std::iota(all.begin(), all.end(), 0);
    BRIGADE_ASSIGN_OR_RETURN(auto world, flipping(all, "all"));
    // The context outlives the engine.
    return collectives::CreateTransportEngine(
        std::move(world),
        [flipping](absl::Span<const int> members, absl::Span<const int> /*lost*/,
                   const std::string& label) { return flipping(members, label); },
        std::shared_ptr<device::Context>(std::shared_ptr<void>(), &context),
        {.verify_messages = verifies_});
  }

  static int PlaceOf(int rank, absl::Span<const int> members) {
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  static std::string NameOf(absl::Span<const int> members, const std::string& label) {
    return absl::StrCat(label, " of ", absl::StrJoin(members, " "));
  }

  absl::StatusOr<Transports> InMemory(int rank) {
    return [this, rank](absl::Span<const int> members, const std::string& label)
               -> absl::StatusOr<std::unique_ptr<collectives::Transport>> {
      using collectives::testing::MemoryNetwork;
      const std::lock_guard lock(mutex_);
      auto& network = networks_[NameOf(members, label)];
      if (network == nullptr) {
        network = std::make_unique<MemoryNetwork>(static_cast<int>(members.size()));
      }
      return std::make_unique<collectives::testing::MemoryTransport>(PlaceOf(rank, members),
                                                                     *network);
    };
  }

  absl::StatusOr<Transports> GlooOf(int rank) {
    collectives::GlooOptions options;
    options.connect_timeout = options.timeout = collectives::testing::kNever;
    BRIGADE_ASSIGN_OR_RETURN(
        options.store,
        collectives::TcpStore::Create(collectives::testing::StoreOptions(rank, kWireRanks, port_)));
    return [options, rank](absl::Span<const int> members, const std::string& label)
               -> absl::StatusOr<std::unique_ptr<collectives::Transport>> {
      collectives::GlooOptions part = options;
      part.rank = PlaceOf(rank, members);
      part.size = static_cast<int>(members.size());
      part.prefix = NameOf(members, label);
      return collectives::CreateGlooTransport(part);
    };
  }

  const WireEngine kind_;
  const bool verifies_;
  CallFault* const fault_;
  std::shared_ptr<collectives::ThreadGroup> group_;
  int port_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<collectives::testing::MemoryNetwork>> networks_;
};

struct WireTraining {
  // What each rank's training has ended with.
  std::vector<absl::Status> ends = std::vector<absl::Status>(kWireRanks);
  digests::DigestLog log;
};

// Trains on ranks that are threads, each by a Trainer of its own. The job writes digests. `fault`,
// which may be null, happens to kWireRank behind kStepsBefore steps.
inline WireTraining TrainOnWires(const Job& job, const Task& task, WireEngine kind, bool verifies,
                                 CallFault* fault) {
  WireTraining ended;
  WireEngines engines(kind, verifies, fault);
  std::barrier all_have_ended(kWireRanks);
  std::vector<std::thread> threads;
  struct Place {
    std::unique_ptr<Watch> watch = Watch::Silent();
    std::unique_ptr<device::Context> context;
    std::unique_ptr<collectives::Communicator> communicator;
  };
  const auto train = [&](int rank, Place& place) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(place.context, ContextOf(job, rank, place.watch->recorder()));
    BRIGADE_ASSIGN_OR_RETURN(auto engine, engines.Create(rank, *place.context));
    BRIGADE_ASSIGN_OR_RETURN(place.communicator,
                             collectives::Communicator::Create(std::move(engine), *place.context));
    BRIGADE_ASSIGN_OR_RETURN(const auto trainer,
                             Trainer::Create(job, task, *place.communicator, rank, *place.context,
                                             {.watch = place.watch.get()}));
    while (true) {
      if (trainer->step() == kStepsBefore) {
        // Waits for what was enqueued before.
        BRIGADE_RETURN_IF_ERROR(trainer->Evaluate().status());
        if (rank == kWireRank && fault != nullptr) fault->armed = true;
      }
      BRIGADE_ASSIGN_OR_RETURN(const bool has_batch, trainer->Batch());
      if (!has_batch) break;
      BRIGADE_RETURN_IF_ERROR(trainer->Backward());
      BRIGADE_RETURN_IF_ERROR(trainer->Step());
    }
    return trainer->Finish().status();
  };
  for (int rank = 0; rank < kWireRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Place place;
      ended.ends[static_cast<size_t>(rank)] = train(rank, place);
      // Others may read its memory until they end.
      all_have_ended.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto log = digests::ReadDigests(job.digests.file);
  EXPECT_OK(log);
  if (log.ok()) ended.log = *std::move(log);
  return ended;
}

// Of a stage: a job of kWireRanks ranks and kWireSteps steps, one sample at a time, in bfloat16
// with gradients that are sent in float32.
using WireJobOf = std::function<Job(int stage)>;

// Digests of each step into this file; comparisons where there is something to compare.
inline Job WithDigests(Job job, const std::string& name) {
  job.steps = kWireSteps;
  job.digests = {.file = absl::StrCat(::testing::TempDir(), "/", name), .every = 1};
  if (job.config.zero.stage < 3) job.config.verify_replicas = 1;
  return job;
}

// The first step whose digests differ has these gradients otherwise.
inline void ExpectFirstDifference(const WireTraining& seen, const WireTraining& wanted) {
  for (const absl::Status& end : seen.ends) EXPECT_OK(end);
  const auto compared = digests::FirstDifference(seen.log, wanted.log);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  EXPECT_EQ(compared->difference->step, kStepsBefore + 1);
  EXPECT_EQ(compared->difference->kind, "gradients");
  EXPECT_FALSE(compared->difference->tensors.empty());
}

// A bit that flips on a wire is named: with checksums of messages both ends of the wire, before
// anybody has used it; without them the rank, where others have copies, and else step and tensor,
// by comparison with another run.
inline void ExpectWireFlipsAreNamed(const WireJobOf& job_of, const Task& task,
                                    absl::Span<const WireEngine> engines) {
  using ::brigade::testing::StatusIs;
  using ::testing::AllOf;
  using ::testing::AnyOf;
  using ::testing::HasSubstr;
  const WireTraining wanted =
      TrainOnWires(WithDigests(job_of(0), "wanted"), task, WireEngine::kThreads, false, nullptr);
  for (const absl::Status& end : wanted.ends) ASSERT_OK(end);
  ASSERT_EQ(wanted.log.steps.size(), static_cast<size_t>(kWireSteps));
  // Checksums of messages change nothing.
  for (const WireEngine engine : engines) {
    if (engine == WireEngine::kThreads) continue;
    SCOPED_TRACE(absl::StrCat(ToString(engine), ", verified"));
    const WireTraining verified =
        TrainOnWires(WithDigests(job_of(2), "verified"), task, engine, true, nullptr);
    for (const absl::Status& end : verified.ends) ASSERT_OK(end);
    const auto compared = digests::FirstDifference(verified.log, wanted.log);
    ASSERT_OK(compared);
    EXPECT_FALSE(compared->difference.has_value());
    EXPECT_EQ(verified.log.steps.size(), wanted.log.steps.size());
  }
  const auto is_alone = [](const absl::Status& end) {
    return ::testing::Value(
        end, StatusIs(absl::StatusCode::kDataLoss,
                      HasSubstr(absl::StrCat("rank ", kWireRank, " is alone with others than"))));
  };
  for (const WireEngine engine : engines) {
    for (int stage = 0; stage < zero::kStages; ++stage) {
      for (const bool in_gradients : {false, true}) {
        // Of stage 0 no weights are sent.
        if (stage == 0 && !in_gradients) continue;
        for (const bool verifies : {false, true}) {
          if (verifies && engine == WireEngine::kThreads) continue;
          SCOPED_TRACE(absl::StrCat(ToString(engine), ", stage ", stage,
                                    in_gradients ? ", gradients" : ", weights",
                                    verifies ? ", verified" : ""));
          CallFault fault;
          fault.in_gradients = in_gradients;
          // In stage 3 the first one is of an embedding, of which a step uses few rows.
          fault.passes_over = stage == 3 && !in_gradients ? 1 : 0;
          const WireTraining seen =
              TrainOnWires(WithDigests(job_of(stage), "seen"), task, engine, verifies, &fault);
          ASSERT_EQ(fault.wire.damaged, 1);
          if (verifies) {
            for (const absl::Status& end : seen.ends) {
              EXPECT_THAT(end,
                          StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(AnyOf(HasSubstr("what rank 0 sent to rank 1 has arrived"),
                                               HasSubstr("what rank 2 sent to rank 1 has arrived")),
                                         HasSubstr("as its call "))));
            }
            // Nothing was made of it.
            EXPECT_LE(seen.log.steps.size(), static_cast<size_t>(kStepsBefore));
          } else if (!in_gradients && stage < 3) {
            for (const absl::Status& end : seen.ends) {
              EXPECT_TRUE(is_alone(end)) << end;
              // The weights of the step behind it.
              EXPECT_THAT(std::string(end.message()),
                          HasSubstr(absl::StrCat("step ", kStepsBefore + 2, ", unit")));
            }
          } else if (engine == WireEngine::kThreads &&
                     fault.kind == collectives::CollectiveKind::kAllReduce) {
            // The one rank updates with another sum.
            for (const absl::Status& end : seen.ends) EXPECT_TRUE(is_alone(end)) << end;
          } else {
            ExpectFirstDifference(seen, wanted);
          }
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_FLIPPED_WIRE_H_
