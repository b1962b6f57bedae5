#include "brigade/device/address_registry.h"

#include <optional>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;

TEST(AddressRegistryTest, KnowsFirstAndLastByteButNotTheNext) {
  AddressRegistry registry;
  char memory[64] = {};
  registry.Add(memory + 16, 16, Cuda(1), /*owned=*/true);
  EXPECT_EQ(registry.DeviceOf(memory + 15), std::nullopt);
  EXPECT_EQ(registry.DeviceOf(memory + 16), Cuda(1));
  EXPECT_EQ(registry.DeviceOf(memory + 31), Cuda(1));
  EXPECT_EQ(registry.DeviceOf(memory + 32), std::nullopt);
  registry.Remove(memory + 16, 16, /*owned=*/true);
  EXPECT_EQ(registry.DeviceOf(memory + 16), std::nullopt);
}

TEST(AddressRegistryTest, FindsLongBorrowsBehindShortOnes) {
  AddressRegistry registry;
  char memory[64] = {};
  registry.Add(memory, 64, Cuda(0), /*owned=*/false);
  registry.Add(memory + 8, 4, Cuda(0), /*owned=*/false);
  registry.Add(memory + 8, 2, Cuda(0), /*owned=*/false);
  EXPECT_EQ(registry.DeviceOf(memory + 60), Cuda(0));
  registry.Remove(memory, 64, /*owned=*/false);
  EXPECT_EQ(registry.DeviceOf(memory + 60), std::nullopt);
  EXPECT_EQ(registry.DeviceOf(memory + 11), Cuda(0));
  registry.Remove(memory + 8, 4, /*owned=*/false);
  EXPECT_EQ(registry.DeviceOf(memory + 11), std::nullopt);
  EXPECT_EQ(registry.DeviceOf(memory + 9), Cuda(0));
}

TEST(AddressRegistryTest, BelievesTheOwnerBeforeABorrower) {
  AddressRegistry registry;
  char memory[64] = {};
  registry.Add(memory, 64, Cuda(0), /*owned=*/true);
  registry.Add(memory, 64, Cuda(5), /*owned=*/false);
  EXPECT_EQ(registry.DeviceOf(memory), Cuda(0));
}

TEST(AddressRegistryTest, FollowsBuffersAndBorrowsOfContexts) {
  ContextOptions options = CpuOptions();
  options.device = Cpu(3);
  auto context = CreateContext(options);
  AddressRegistry& registry = AddressRegistry::Global();
  const void* address = nullptr;
  int theirs = 0;
  {
    Buffer buffer = context->Allocate(100, Purpose::kScratch).value();
    address = buffer.data();
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(registry.DeviceOf(address), Cpu(3));
    const Buffer borrowed = context->Borrow(&theirs, sizeof(theirs)).value();
    EXPECT_EQ(registry.DeviceOf(&theirs), Cpu(3));
  }
  EXPECT_EQ(registry.DeviceOf(address), std::nullopt);
  EXPECT_EQ(registry.DeviceOf(&theirs), std::nullopt);
}

TEST(AddressRegistryTest, LookupFindsEachRangeAgain) {
  AddressRegistry registry;
  char ours[8] = {}, theirs[8] = {}, unknown[8] = {};
  registry.Add(ours, 8, Cpu(), /*owned=*/true);
  registry.Add(theirs, 8, Cuda(1), /*owned=*/false);
  AddressRegistry::Lookup lookup(registry);
  for (const char* address : {ours, ours + 7, ours}) {
    const AddressRegistry::Region* region = lookup.Find(address);
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->device, Cpu());
    EXPECT_EQ(region->end, reinterpret_cast<uintptr_t>(ours + 8));
    EXPECT_TRUE(region->owned);
    EXPECT_EQ(lookup.Find(unknown), nullptr);
    EXPECT_EQ(lookup.Find(nullptr), nullptr);
    region = lookup.Find(theirs + 4);
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->device, Cuda(1));
    EXPECT_FALSE(region->owned);
  }
}

TEST(AddressRegistryTest, KeepsACpuStreamFromCopyingGpuMemory) {
  auto context = CreateContext(CpuOptions());
  auto stream = context->CreateStream("copy").value();
  char gpu[8] = {}, host[8] = {};
  AddressRegistry::Global().Add(gpu, 8, Cuda(0), /*owned=*/false);
  EXPECT_THAT(stream->Copy(host, gpu, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "copy: source is in memory of cuda:0, but the stream is on cpu:0"));
  AddressRegistry::Global().Remove(gpu, 8, /*owned=*/false);
}

}  // namespace
}  // namespace brigade::device
