#ifndef BRIGADE_TESTS_DIGESTS_TOY_DIGESTS_H_
#define BRIGADE_TESTS_DIGESTS_TOY_DIGESTS_H_

// Trainings of the toy whose digests are taken and compared, and in which a bit may flip.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/digests/copies.h"
#include "brigade/digests/first_difference.h"
#include "brigade/digests/step_digests.h"
#include "brigade/digests/tensor_dump.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/digests/flipping.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {

inline constexpr int kSteps = 4;
// Of the toy: h.0.w, in unit h.0.
inline constexpr int kParameter = 2;

struct Flip {
  // The first is 0.
  int step = 0;
  int rank = 0;
  bool in_gradient = false;
};

struct Training {
  zero::ZeroOptions options;
  int ranks = 3;
  zero::ModelSpec model = zero::ToyModel();
  std::optional<Flip> flip = {};
  // Of the messages to one rank, from this step on.
  WireFault* wire = nullptr;
  int wire_step = 0;
  int wire_rank = 0;
  // Of the last step; empty: no dump.
  std::string dump = {};
};

struct Seen {
  DigestLog log;
  // By step, as each rank finds it.
  std::vector<std::vector<absl::Status>> checks;
  std::vector<std::vector<float>> exported;
  int64_t flipped = -1;
};

inline void TrainRank(const Training& run, collectives::Rank& self, Seen& seen) {
  auto zero = zero::CreateZero(run.model, run.options, self);
  ASSERT_OK(zero);
  ASSERT_OK(zero::InitializeToy(**zero));
  auto digests = StepDigests::Create({}, 2, **zero, *self.communicator, *self.context);
  ASSERT_OK(digests);
  const std::vector<TensorName>& tensors = (*digests)->map().tensors();
  const std::vector<Comparison> comparisons = ComparisonsOf(tensors, (*digests)->shares());
  TensorDump dump(run.dump, (*digests)->map(), (*zero)->shard_group() == 0, *self.context);
  zero::ToyTrainer trainer(**zero, self);
  if (self.rank == 0) seen.log.header = {tensors, "toy"};
  for (int step = 0; step < kSteps; ++step) {
    std::unique_ptr<FlippingObserver> flipping;
    zero::StepObserver* beside = nullptr;
    if (run.flip.has_value() && run.flip->step == step && run.flip->rank == self.rank) {
      flipping = std::make_unique<FlippingObserver>(**zero, kParameter, run.flip->in_gradient);
      beside = flipping.get();
    }
    if (!run.dump.empty() && step + 1 == kSteps) beside = &dump;
    if (run.wire != nullptr && run.wire_rank == self.rank && run.wire_step == step) {
      run.wire->armed = true;
    }
    ASSERT_OK((*digests)->Begin(true, true, beside));
    ASSERT_OK(trainer.Step());
    ASSERT_OK((*digests)->Enqueue(step % 2));
    ASSERT_OK((*zero)->step_stream().Synchronize());
    ASSERT_OK(self.communicator->status());
    const DigestTable table = (*digests)->Table(step % 2);
    seen.checks[static_cast<size_t>(step)][static_cast<size_t>(self.rank)] =
        CheckCopies(step + 1, /*skipped=*/false, tensors, comparisons, table);
    if (flipping != nullptr) seen.flipped = flipping->flipped();
    if (self.rank != 0) continue;
    StepRecord record = {.step = step + 1, .skipped = false, .gradients = {}, .weights = {}};
    for (int t = 0; t < static_cast<int>(tensors.size()); ++t) {
      record.gradients.push_back((*digests)->Sum(table, DigestKind::kGradients, t));
      record.weights.push_back((*digests)->Sum(table, DigestKind::kUpdated, t));
    }
    seen.log.steps.push_back(record);
  }
  const absl::Status dumped = run.dump.empty() ? absl::OkStatus() : dump.Write();
  ASSERT_OK(dumped);
  ASSERT_OK(self.stream->Synchronize());
  auto exported = zero::Exported(**zero);
  ASSERT_OK(exported);
  if (self.rank == 0) seen.exported = *std::move(exported);
}

inline Seen Train(const Training& run, const collectives::CreateEngineFn& engines) {
  Seen seen;
  seen.checks.assign(kSteps, std::vector<absl::Status>(static_cast<size_t>(run.ranks)));
  collectives::OnRanks({.size = run.ranks}, engines,
                       [&](collectives::Rank& self) { TrainRank(run, self, seen); });
  return seen;
}
inline Seen Train(const Training& run) {
  return Train(run, collectives::ThreadEngines({.size = run.ranks}));
}

// Networks of messages in memory, of all ranks and of groups of them.
class MemoryNetworks {
 public:
  using MemoryNetwork = collectives::testing::MemoryNetwork;
  using MemoryTransport = collectives::testing::MemoryTransport;

  // What rank `rank` has of the group of these members.
  std::unique_ptr<MemoryTransport> Transport(int rank, absl::Span<const int> members,
                                             const std::string& label) {
    const std::lock_guard lock(mutex_);
    auto& network = networks_[absl::StrCat(label, " of ", absl::StrJoin(members, " "))];
    if (network == nullptr) {
      network = std::make_unique<MemoryNetwork>(static_cast<int>(members.size()));
    }
    const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
    return std::make_unique<MemoryTransport>(static_cast<int>(place), *network);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<MemoryNetwork>> networks_;
};

// Over messages in memory, one of which may be damaged where all ranks are one group.
inline Seen TrainOverMessages(const Training& run) {
  MemoryNetworks networks;
  std::vector<int> all(static_cast<size_t>(run.ranks));
  std::iota(all.begin(), all.end(), 0);
  return Train(run, [&](int rank, device::Context& context) {
    auto transport = std::make_unique<FlippingTransport>(
        networks.Transport(rank, all, "all"), rank == run.wire_rank ? run.wire : nullptr);
    const collectives::Regroup regroup = [&networks, rank](absl::Span<const int> members,
                                                           absl::Span<const int> /*lost*/,
                                                           const std::string& label) {
      return networks.Transport(rank, members, label);
    };
    // The context is the rank's, which outlives its engine.
    return collectives::CreateTransportEngine(
        std::move(transport), regroup,
        std::shared_ptr<device::Context>(std::shared_ptr<void>(), &context));
  });
}

inline zero::ZeroOptions Options(int stage) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kBFloat16;
  options.bucket_elements = 1000;
  // Sums in float32, of which messages have other sizes than those of weights.
  options.micro_batches = 2;
  options.optimizer.groups = {{.lr = 0.01}};
  return options;
}

inline void ExpectClean(const Seen& seen) {
  for (const auto& of_step : seen.checks) {
    for (const absl::Status& status : of_step) EXPECT_OK(status);
  }
}

// All ranks say the same about a step, and nothing of others.
inline void ExpectFoundIn(const Seen& seen, int step, const std::string& who) {
  for (size_t s = 0; s < seen.checks.size(); ++s) {
    for (const absl::Status& status : seen.checks[s]) {
      if (static_cast<int>(s) < step) {
        EXPECT_OK(status);
      } else if (static_cast<int>(s) == step) {
        EXPECT_THAT(status,
                    testing::StatusIs(
                        absl::StatusCode::kDataLoss,
                        ::testing::AllOf(
                            ::testing::HasSubstr(absl::StrCat("step ", step + 1, ", unit \"h.0\"")),
                            ::testing::HasSubstr("h.0.w"), ::testing::HasSubstr(who))));
      }
    }
  }
}

inline void ExpectAlike(const Seen& seen, const Seen& wanted) {
  const auto compared = FirstDifference(seen.log, wanted.log);
  ASSERT_OK(compared);
  EXPECT_EQ(compared->steps, kSteps);
  ASSERT_FALSE(compared->difference.has_value())
      << "step " << compared->difference->step << ", " << compared->difference->kind << " of "
      << compared->difference->tensors[0];
}

}  // namespace brigade::digests

#endif  // BRIGADE_TESTS_DIGESTS_TOY_DIGESTS_H_
