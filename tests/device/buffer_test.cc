#include "brigade/device/buffer.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "brigade/device/address_registry.h"
#include "brigade/device/context.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/internal/context_state.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(BufferTest, IsBornPoisonedAndAligned) {
  auto context = CreateContext(CpuOptions());
  for (const int64_t bytes : {int64_t{1}, int64_t{255}, int64_t{4096}, (int64_t{2} << 20) + 5}) {
    const Buffer buffer = context->Allocate(bytes, Purpose::kGradients, "grads").value();
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(buffer.purpose(), Purpose::kGradients);
    EXPECT_EQ(buffer.name(), "grads");
    EXPECT_EQ(buffer.device(), Cpu());
    const uintptr_t alignment = bytes >= int64_t{2} << 20 ? 2 << 20 : bytes >= 4096 ? 4096 : 256;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % alignment, 0u);
    EXPECT_THAT(buffer.as<uint8_t>(), Each(0xFF));
    EXPECT_EQ(buffer.as<float>().size(), static_cast<size_t>(bytes) / 4);
    for (const float value : buffer.as<float>()) ASSERT_TRUE(std::isnan(value));
  }
}

TEST(BufferTest, MayBeEmpty) {
  auto context = CreateContext(CpuOptions());
  const Buffer buffer = context->Allocate(0, Purpose::kScratch).value();
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_TRUE(buffer.as<float>().empty());
  EXPECT_EQ(context->memory_stats().current_bytes(), 0);
}

TEST(BufferTest, IsCountedUntilItsLastOwnerGoes) {
  auto context = CreateContext(CpuOptions());
  const MemoryStats& stats = context->memory_stats();
  Buffer a = context->Allocate(1000, Purpose::kParameters).value();
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(stats.current_bytes(Purpose::kParameters), 1000);
  b = context->Allocate(10, Purpose::kParameters).value();
  EXPECT_EQ(stats.current_bytes(Purpose::kParameters), 10);
  EXPECT_EQ(stats.peak_bytes(Purpose::kParameters), 1010);
  b = Buffer();
  EXPECT_EQ(stats.current_bytes(), 0);
}

TEST(BufferTest, BorrowedMemoryIsLeftAloneAndNotCounted) {
  RaceChecker checker;
  auto context = CreateContext(CheckedOptions(checker));
  int theirs = 42;
  {
    const Buffer borrowed = context->Borrow(&theirs, sizeof(theirs), "theirs").value();
    EXPECT_EQ(borrowed.data(), &theirs);
    EXPECT_FALSE(borrowed.owned());
    EXPECT_EQ(context->memory_stats().current_bytes(), 0);
  }
  EXPECT_EQ(theirs, 42);
}

TEST(BufferTest, HostMemoryHasBooksAndALimitOfItsOwn) {
  RaceChecker checker;
  ContextOptions options = CheckedOptions(checker);
  options.device = Cpu(3);
  options.memory_limit_bytes = 100;
  options.host_memory_limit_bytes = 6000;
  auto context = CreateContext(options);
  MemoryStats& stats = context->host_memory_stats();
  Buffer buffer = context->AllocateHost(5000, Purpose::kGradients, "host").value();
  EXPECT_TRUE(buffer.owned());
  EXPECT_EQ(buffer.bytes(), 5000);
  EXPECT_EQ(buffer.name(), "host");
  EXPECT_EQ(buffer.device(), Cpu(3));
  EXPECT_EQ(AddressRegistry::Global().DeviceOf(buffer.data()), Cpu(3));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  EXPECT_THAT(buffer.as<uint8_t>(), Each(0xFF));
  EXPECT_EQ(buffer.purpose(), Purpose::kGradients);
  EXPECT_EQ(stats.current_bytes(Purpose::kGradients), 5000);
  EXPECT_EQ(context->memory_stats().peak_bytes(), 0);
  EXPECT_THAT(
      context->AllocateHost(1001, Purpose::kOptimizerState, "moments"),
      StatusIs(
          absl::StatusCode::kResourceExhausted,
          HasSubstr("cannot have 1001 bytes of the host for optimizer_state (\"moments\"): the "
                    "context's limit would be exceeded; in use 5000 bytes (gradients 5000), "
                    "limit 6000")));
  EXPECT_OK(context->AllocateHost(1000, Purpose::kOptimizerState));
  const Buffer full = context->Allocate(100, Purpose::kScratch).value();
  EXPECT_EQ(stats.peak_bytes(), 6000);
  const void* const data = buffer.data();
  buffer = Buffer();
  EXPECT_EQ(AddressRegistry::Global().DeviceOf(data), std::nullopt);
  EXPECT_EQ(stats.current_bytes(), 0);
  EXPECT_THAT(context->AllocateHost(-1, Purpose::kScratch, "host"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"host\" of -1 bytes")));
  EXPECT_THAT(
      CreateContext(CpuOptions())->AllocateHost(int64_t{1} << 60, Purpose::kScratch),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("1152921504606846976 bytes of the host for scratch: the machine has")));
}

TEST(BufferTest, HostMemoryIsFollowedByTheRaceChecker) {
  RaceChecker checker;
  auto context = CreateContext(CheckedOptions(checker));
  auto one = context->CreateStream("one").value();
  auto two = context->CreateStream("two").value();
  const Buffer buffer = context->AllocateHost(8, Purpose::kScratch, "host").value();
  // The gate keeps the two apart, which the checker cannot know, so that only it reports.
  Gate gate;
  ASSERT_OK(Block(*one, gate));
  ASSERT_OK(one->FillBytes(buffer.data(), 1, 8));
  ASSERT_OK(two->FillBytes(buffer.data(), 2, 8));
  EXPECT_THAT(two->Synchronize(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("bytes [0, 8) of \"host\"")));
  gate.Open();
}

TEST(BufferTest, BeyondTheLimitNamesEverythingAndChangesNothing) {
  ContextOptions options = CpuOptions("rank 3");
  options.memory_limit_bytes = 1000;
  auto context = CreateContext(options);
  const Buffer parameters = context->Allocate(600, Purpose::kParameters).value();
  const Buffer gradients = context->Allocate(300, Purpose::kGradients).value();
  EXPECT_THAT(context->Allocate(101, Purpose::kOptimizerState, "moments"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "\"rank 3\" cannot have 101 bytes for optimizer_state (\"moments\"): the "
                       "context's limit would be exceeded; in use 900 bytes (parameters 600, "
                       "gradients 300), limit 1000"));
  EXPECT_EQ(context->memory_stats().current_bytes(), 900);
  EXPECT_EQ(context->memory_stats().peak_bytes(), 900);
  EXPECT_EQ(context->memory_stats().peak_bytes(Purpose::kOptimizerState), 0);
  EXPECT_OK(context->Allocate(100, Purpose::kOptimizerState));
}

TEST(BufferTest, BeyondTheMachineIsAnErrorToo) {
  auto context = CreateContext(CpuOptions());
  EXPECT_THAT(context->Allocate(int64_t{1} << 60, Purpose::kScratch),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1152921504606846976 bytes for scratch"),
                             HasSubstr("the machine has"), HasSubstr("limit none"))));
  EXPECT_EQ(context->memory_stats().peak_bytes(), 0);
}

// A device whose memory can still be looked at after it was freed.
class GlassBackend final : public internal::Backend {
 public:
  explicit GlassBackend(std::vector<uint8_t>& freed) : freed_(freed) {}

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return std::malloc(static_cast<size_t>(bytes));
  }
  void Free(void* data, int64_t bytes) override {
    const auto* const begin = static_cast<const uint8_t*>(data);
    freed_.assign(begin, begin + bytes);
    std::free(data);
  }
  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes) override {
    std::memset(data, value, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<internal::StreamState>> CreateStream(
      std::string, internal::TraceBuffer*) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::shared_ptr<internal::StreamState>> BorrowStream(
      void*, std::string, internal::TraceBuffer*) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<internal::EventState>> CreateEvent() override {
    return absl::UnimplementedError("");
  }

 private:
  std::vector<uint8_t>& freed_;
};

TEST(BufferTest, IsPoisonedAgainOnFreeWithChecksOn) {
  for (const bool checks : {true, false}) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      RaceChecker checker;
      std::vector<uint8_t> freed;
      internal::ContextState context(CpuOptions(), checks ? &checker : nullptr,
                                     /*compute_threads=*/1);
      context.backend = std::make_unique<GlassBackend>(freed);
      void* const data = context.Allocate(100, tier, Purpose::kScratch, "glass").value();
      std::memset(data, 7, 100);
      context.Free(data, 100, tier, Purpose::kScratch);
      EXPECT_EQ(freed, std::vector<uint8_t>(100, checks ? 0xFF : 7));
    }
  }
}

}  // namespace
}  // namespace brigade::device
