// Schedules on two tiers, carried out with states on the host and in a file. The same tests run on
// the CPU and, by BRIGADE_STASH_DEVICE of their target, on a GPU.

#include "brigade/recompute/stash.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/file/file_options.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"
#include "brigade/recompute/revolve.h"
#include "brigade/recompute/schedule.h"
#include "brigade/tests/device/file/disk_fault.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_STASH_DEVICE
#define BRIGADE_STASH_DEVICE device::Cpu()
#endif

namespace brigade::recompute {

class StashTestPeer {
 public:
  static void OmitWait(Stash& stash, StashWait point) { stash.omitted_ = point; }
};

namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kStages = 9;
const bool kOnCpu = (BRIGADE_STASH_DEVICE).kind == device::DeviceKind::kCpu;

// Outputs of different sizes.
Chain ToyChain() {
  Chain chain;
  for (int s = 0; s < kStages; ++s) {
    const int64_t output = (8 + s % 3) * kUnit;
    chain.stages.push_back({.forward_time = 1,
                            .output_bytes = output,
                            .transient_bytes = 2 * kUnit,
                            .options = {{.saved_bytes = output + kUnit,
                                         .forward_transient_bytes = kUnit,
                                         .backward_transient_bytes = 3 * kUnit,
                                         .backward_time = 2}}});
  }
  return chain;
}

std::vector<Plan> Plans() {
  const Chain chain = ToyChain();
  return {PlanStashedSegments(chain, 1).value(), PlanStashedSegments(chain, 2).value(),
          Plan{.operations = DiskRevolve(kStages, 2, {.write = 0.5, .read = 0.5})->operations}};
}

device::FileOptions InTestFolder() {
  // The engine whose calls disk_fault.h replaces.
  return {.directory = ::testing::TempDir(), .engine = device::FileEngineKind::kThreads};
}

// A chain in which each stage copies its input and leaves a mark of its own in it.
class Toy {
 public:
  Toy(device::ContextOptions options, const Plan& plan, StashTier tier)
      : chain_(ToyChain()), schedule_(Place(chain_, plan).value()) {
    options.device = BRIGADE_STASH_DEVICE;
    options.compute_threads = 1;
    context_ = device::Context::Create(std::move(options)).value();
    compute_ = context_->CreateStream("compute").value();
    arena_ =
        context_->Allocate(schedule_.arena_bytes, device::Purpose::kActivations, "arena").value();
    seen_ =
        context_->AllocateHost(kStages * kMost, device::Purpose::kScratch, "inputs seen").value();
    const device::FileOptions file = InTestFolder();
    stash_ = Stash::Create(schedule_.written_bytes, *context_,
                           tier == StashTier::kFile ? &file : nullptr)
                 .value();
  }

  absl::Status Forward() {
    BRIGADE_RETURN_IF_ERROR(stash_->Begin(*compute_));
    return Run(0, schedule_.first_of_backward);
  }
  absl::Status Backward() { return Run(schedule_.first_of_backward, schedule_.operations.size()); }
  absl::Status Pass() {
    BRIGADE_RETURN_IF_ERROR(Forward());
    return Backward();
  }

  // Whether the backward pass has seen what the forward pass has made.
  bool SawAllInputs() {
    bool is_right = true;
    std::vector<char> state;
    for (int s = 0; s < kStages; ++s) {
      const char* const seen = seen_.as<char>().data() + s * kMost;
      is_right = is_right && std::equal(state.begin(), state.end(), seen);
      state.resize(static_cast<size_t>(OutputBytes(s)), Mark(s));
      std::fill_n(state.begin() + s * kUnit / 2, kUnit / 2, Mark(s));
    }
    return is_right;
  }

  device::Context& context() { return *context_; }
  device::Stream& compute() { return *compute_; }
  Stash& stash() { return *stash_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  static constexpr int64_t kMost = 16 * kUnit;
  static char Mark(int stage) { return static_cast<char>(stage + 1); }

  int64_t OutputBytes(int stage) const {
    return stage < 0 ? 0 : chain_.stages[static_cast<size_t>(stage)].output_bytes;
  }
  char* At(int64_t offset) { return arena_.as<char>().data() + offset; }
  absl::Status Fill(int64_t at, uint8_t value, int64_t bytes) {
    return compute_->FillBytes(At(at), value, bytes);
  }

  // As SawAllInputs does it.
  absl::Status ForwardOf(const PlacedOperation& placed) {
    const int s = placed.operation.stage;
    const int64_t output = OutputBytes(s), common = std::min(output, OutputBytes(s - 1));
    const auto mark = static_cast<uint8_t>(Mark(s));
    if (s > 0) {
      BRIGADE_RETURN_IF_ERROR(compute_->Copy(At(placed.output), At(placed.input), common));
    }
    BRIGADE_RETURN_IF_ERROR(Fill(placed.output + common, mark, output - common));
    return Fill(placed.output + s * kUnit / 2, mark, kUnit / 2);
  }

  absl::Status Run(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) BRIGADE_RETURN_IF_ERROR(Run(schedule_.operations[i]));
    return absl::OkStatus();
  }

  absl::Status Run(const PlacedOperation& placed) {
    const int s = placed.operation.stage;
    const Stage& stage = chain_.stages[static_cast<size_t>(s)];
    const SaveOption& option = stage.options[0];
    if (Computes(placed.operation.action) && placed.after_write != PlacedOperation::kNone) {
      BRIGADE_RETURN_IF_ERROR(stash_->AwaitWrite(placed.after_write, *compute_));
    }
    switch (placed.operation.action) {
      case Action::kForward:
      case Action::kForwardKeep:
        BRIGADE_RETURN_IF_ERROR(Fill(placed.transient, 0xEE, stage.transient_bytes));
        return ForwardOf(placed);
      case Action::kForwardSave:
        BRIGADE_RETURN_IF_ERROR(Fill(placed.transient, 0xEE, option.forward_transient_bytes));
        BRIGADE_RETURN_IF_ERROR(Fill(placed.saved, 0xEE, option.saved_bytes));
        return ForwardOf(placed);
      case Action::kBackward:
        if (s > 0) {
          BRIGADE_RETURN_IF_ERROR(compute_->Copy(seen_.as<char>().data() + s * kMost,
                                                 At(placed.input), OutputBytes(s - 1)));
        }
        BRIGADE_RETURN_IF_ERROR(Fill(placed.saved, 0xEE, option.saved_bytes));
        return Fill(placed.transient, 0xEE, option.backward_transient_bytes);
      case Action::kWrite:
        return stash_->Write(s, At(placed.input), *compute_);
      case Action::kFetch:
        return stash_->Fetch(s, At(placed.input), *compute_);
      case Action::kRead:
        return stash_->AwaitFetch(s, *compute_);
      case Action::kDrop:
        break;
    }
    return absl::OkStatus();
  }

  const Chain chain_;
  const Schedule schedule_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> compute_;
  device::Buffer arena_, seen_;
  std::unique_ptr<Stash> stash_;
};

class StashTest : public ::testing::TestWithParam<StashTier> {
 protected:
  static bool InFile() { return GetParam() == StashTier::kFile; }
};

INSTANTIATE_TEST_SUITE_P(Tiers, StashTest, ::testing::Values(StashTier::kHost, StashTier::kFile),
                         [](const auto& info) {
                           return info.param == StashTier::kFile ? "File" : "Host";
                         });

TEST_P(StashTest, StatesComeBackInTheBytesOfTheFormula) {
  for (const Plan& plan : Plans()) {
    device::RaceChecker checker;
    Toy toy({.checks = true, .race_checker = &checker}, plan, GetParam());
    const int64_t written = toy.schedule().WrittenBytes();
    EXPECT_GT(written, 0);
    const std::vector<int64_t>& slots = toy.schedule().written_bytes;
    const device::FileOptions file;
    const int64_t of_host = Stash::HostBytes(slots, InFile() ? &file : nullptr);
    // The sizes are multiples already.
    const int64_t largest = *std::max_element(slots.begin(), slots.end());
    const auto states = std::count_if(slots.begin(), slots.end(), [](int64_t b) { return b > 0; });
    const int64_t blocks = file.queue_depth * (int64_t{64} << 10) + 4096;
    EXPECT_EQ(of_host, InFile() ? 2 * std::min<int64_t>(states, 2) * largest + blocks : written);
    EXPECT_EQ(toy.context().host_memory_stats().peak_bytes(device::Purpose::kActivations), of_host);
    ASSERT_EQ(toy.stash().file() != nullptr, InFile());
    if (InFile()) {
      EXPECT_EQ(toy.stash().file()->bytes(), Stash::FileBytes(slots));
    }
    EXPECT_EQ(toy.stash().movement(), StashMovement());
    for (int pass = 1; pass <= 3; ++pass) {
      ASSERT_OK(toy.Pass());
      ASSERT_OK(toy.compute().Synchronize());
      EXPECT_TRUE(toy.SawAllInputs());
      const int64_t moved = pass * written, in_file = InFile() ? moved : 0;
      EXPECT_EQ(toy.stash().movement(), (StashMovement{moved, moved, in_file, in_file}));
      if (InFile()) {
        EXPECT_EQ(toy.stash().file()->bytes_read(), moved);
        EXPECT_EQ(toy.stash().file()->bytes_written(), moved);
      }
    }
    EXPECT_THAT(checker.reports(), IsEmpty());
  }
}

TEST_P(StashTest, AForwardPassAloneMayBeFollowedByAnother) {
  for (const Plan& plan : Plans()) {
    device::RaceChecker checker;
    Toy toy({.checks = true, .race_checker = &checker}, plan, GetParam());
    for (int i = 0; i < 3; ++i) ASSERT_OK(toy.Forward());
    ASSERT_OK(toy.Backward());
    ASSERT_OK(toy.Forward());
    ASSERT_OK(toy.Pass());
    ASSERT_OK(toy.compute().Synchronize());
    EXPECT_TRUE(toy.SawAllInputs());
    EXPECT_THAT(checker.reports(), IsEmpty());
  }
}

TEST(StashBytesTest, SlotsAreRoundedUp) {
  EXPECT_EQ(Stash::HostBytes({}), 0);
  EXPECT_EQ(Stash::HostBytes({0, 1, 256, 0, 257}), 256 + 256 + 512);
  // Two in each direction, if there are two, and the file's blocks in flight.
  const device::FileOptions file = {.queue_depth = 3, .operations = 9};
  const int64_t blocks = 3 * 65536 + 4096;
  EXPECT_EQ(Stash::HostBytes({}, &file), blocks);
  EXPECT_EQ(Stash::HostBytes({0, 257, 0}, &file), 2 * 512 + blocks);
  EXPECT_EQ(Stash::HostBytes({0, 1, 256, 0, 257}, &file), 4 * 512 + blocks);
  // Two slots for each, and two tables, in blocks.
  EXPECT_EQ(Stash::FileBytes({0, 1, 4096, 0, 4097}), 2 * (4096 + 4096 + 8192) + 2 * 4096);
}

TEST_P(StashTest, MoreThanTheHostsLimitIsRefused) {
  const std::vector<int64_t> slots = {512, 512};
  const device::FileOptions file = InTestFolder();
  const int64_t needed = Stash::HostBytes(slots, InFile() ? &file : nullptr);
  auto context =
      device::Context::Create(
          {.device = BRIGADE_STASH_DEVICE, .host_memory_limit_bytes = needed - 1, .name = "rank 3"})
          .value();
  EXPECT_THAT(Stash::Create(slots, *context, InFile() ? &file : nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(InFile() ? "\"stash from the file\"" : "\"stash\"")));
  EXPECT_EQ(context->host_memory_stats().current_bytes(device::Purpose::kActivations), 0);
}

// Whatever the timing, the race checker names the operations that a wait keeps apart.
TEST_P(StashTest, AnOmittedWaitIsReported) {
  struct Case {
    StashWait point;
    const char *one, *other;
    // States that go there before one waits for another.
    int64_t more_than = 0;
  };
  constexpr char kCompute[] = "compute", kCopies[] = "stash", kFile[] = "stash's file";
  std::vector<Case> cases = {{StashWait::kStateWritten, kCompute, kCopies},
                             {StashWait::kStashed, kCompute, kCopies},
                             {StashWait::kStashFree, kCompute, kCopies},
                             {StashWait::kRestored, kCompute, kCopies}};
  if (InFile()) {
    cases.insert(cases.end(), {{StashWait::kWrittenToFile, kCopies, kFile, 2},
                               {StashWait::kOnHost, kCopies, kFile},
                               {StashWait::kOnDevice, kCopies, kFile, 2},
                               {StashWait::kReadFromFile, kCopies, kFile}});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.point));
    for (const Plan& plan : Plans()) {
      device::RaceChecker checker;
      Toy toy({.checks = true, .race_checker = &checker}, plan, GetParam());
      const std::vector<int64_t>& slots = toy.schedule().written_bytes;
      if (std::count_if(slots.begin(), slots.end(), [](int64_t b) { return b > 0; }) <=
          c.more_than) {
        continue;
      }
      StashTestPeer::OmitWait(toy.stash(), c.point);
      // A call may fail because of the race. The checker has the report in any case.
      for (int pass = 0; pass < 2; ++pass) toy.Pass().IgnoreError();
      toy.compute().Synchronize().IgnoreError();
      const std::vector<device::Race> races = checker.reports();
      EXPECT_FALSE(races.empty());
      for (const device::Race& race : races) {
        EXPECT_THAT((std::vector<std::string>{race.first.stream, race.second.stream}),
                    ::testing::UnorderedElementsAre(c.one, c.other))
            << race.message;
      }
    }
  }
}

// A step without its backward pass: the next one's forward pass waits for the copies.
TEST_P(StashTest, APassThatDoesNotAwaitTheLastOnesCopiesIsReported) {
  const Plan plan = Plans()[0];
  device::RaceChecker checker;
  Toy toy({.checks = true, .race_checker = &checker}, plan, GetParam());
  ASSERT_OK(toy.Forward());
  EXPECT_THAT(checker.reports(), IsEmpty());
  StashTestPeer::OmitWait(toy.stash(), StashWait::kStashed);
  toy.Forward().IgnoreError();
  toy.compute().Synchronize().IgnoreError();
  EXPECT_FALSE(checker.reports().empty());
}

TEST_P(StashTest, DelaysChangeNoBit) {
  const std::vector<Plan> plans = Plans();
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    device::RaceChecker checker;
    Toy toy({.checks = true,
             .race_checker = &checker,
             .random_delay = {.seed = seed, .max_delay_us = 100}},
            plans[seed % plans.size()], GetParam());
    for (int pass = 0; pass < 2; ++pass) ASSERT_OK(toy.Pass());
    ASSERT_OK(toy.compute().Synchronize());
    EXPECT_TRUE(toy.SawAllInputs()) << seed;
    EXPECT_THAT(checker.reports(), IsEmpty()) << seed;
  }
}

TEST_P(StashTest, AllocatesNothingAndWaitsOnNoHost) {
  for (const Plan& plan : Plans()) {
    Toy toy({.checks = false}, plan, GetParam());
    // The queues grow to all of these passes, which are held up.
    device::Gate gate;
    if (kOnCpu) {
      ASSERT_OK(device::Block(toy.compute(), gate));
    }
    absl::Status status;
    for (int pass = 0; pass < 4; ++pass) status.Update(toy.Pass());
    gate.Open();
    ASSERT_OK(status);
    ASSERT_OK(toy.compute().Synchronize());
    const int64_t waits = toy.context().host_waits();
    const int64_t allocations = brigade::testing::CountedAllocations();
    for (int pass = 0; pass < 3; ++pass) status.Update(toy.Pass());
    // CUDA itself may allocate.
    if (kOnCpu) {
      EXPECT_EQ(brigade::testing::CountedAllocations(), allocations);
    }
    EXPECT_EQ(toy.context().host_waits(), waits);
    EXPECT_OK(status);
    ASSERT_OK(toy.compute().Synchronize());
    EXPECT_TRUE(toy.SawAllInputs());
  }
}

TEST(StashFileTest, AnErrorOfTheDiskReachesCompute) {
  device::DiskFault& fault = device::TheDiskFault();
  fault.file = "/brigade_stash_";
  for (const bool write : {false, true}) {
    for (const Plan& plan : Plans()) {
      Toy toy({}, plan, StashTier::kFile);
      ASSERT_OK(toy.Pass());
      ASSERT_OK(toy.compute().Synchronize());
      fault.of_writes = write;
      fault.after = 0;
      fault.error = write ? ENOSPC : EIO;
      absl::Status status = toy.Pass();
      status.Update(toy.compute().Synchronize());
      fault.Clear();
      EXPECT_THAT(
          status,
          StatusIs(write ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss,
                   AllOf(HasSubstr(write ? "cannot write chunk " : "cannot read chunk "),
                         HasSubstr(" (input of stage "), HasSubstr("/brigade_stash_"))));
    }
  }
}

TEST(StashFileTest, ShortTransfersAndASlowDiskChangeNoBit) {
  device::DiskFault& fault = device::TheDiskFault();
  fault.file = "/brigade_stash_";
  for (const bool is_slow : {false, true}) {
    // 10 MB/s.
    if (is_slow) fault.ns_per_byte = 100;
    if (!is_slow) fault.bytes = 512;
    for (const Plan& plan : Plans()) {
      Toy toy({}, plan, StashTier::kFile);
      ASSERT_OK(toy.Pass());
      ASSERT_OK(toy.compute().Synchronize());
      EXPECT_TRUE(toy.SawAllInputs());
    }
    fault.Clear();
  }
}

TEST(StashFileTest, WithoutItsFolderThereIsNone) {
  auto context = device::Context::Create({.device = BRIGADE_STASH_DEVICE}).value();
  const device::FileOptions file = {.directory = ::testing::TempDir() + "/no folder"};
  EXPECT_THAT(Stash::Create({512}, *context, &file),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no folder")));
}

}  // namespace
}  // namespace brigade::recompute
