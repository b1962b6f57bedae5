#include "brigade/device/address_book.h"

#include <optional>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;

TEST(AddressBookTest, KnowsFirstAndLastByteButNotTheNext) {
  AddressBook book;
  char memory[64] = {};
  book.Add(memory + 16, 16, Cuda(1), /*owned=*/true);
  EXPECT_EQ(book.DeviceOf(memory + 15), std::nullopt);
  EXPECT_EQ(book.DeviceOf(memory + 16), Cuda(1));
  EXPECT_EQ(book.DeviceOf(memory + 31), Cuda(1));
  EXPECT_EQ(book.DeviceOf(memory + 32), std::nullopt);
  book.Remove(memory + 16, 16, /*owned=*/true);
  EXPECT_EQ(book.DeviceOf(memory + 16), std::nullopt);
}

TEST(AddressBookTest, FindsLongBorrowsBehindShortOnes) {
  AddressBook book;
  char memory[64] = {};
  book.Add(memory, 64, Cuda(0), /*owned=*/false);
  book.Add(memory + 8, 4, Cuda(0), /*owned=*/false);
  book.Add(memory + 8, 2, Cuda(0), /*owned=*/false);
  EXPECT_EQ(book.DeviceOf(memory + 60), Cuda(0));
  book.Remove(memory, 64, /*owned=*/false);
  EXPECT_EQ(book.DeviceOf(memory + 60), std::nullopt);
  EXPECT_EQ(book.DeviceOf(memory + 11), Cuda(0));
  book.Remove(memory + 8, 4, /*owned=*/false);
  EXPECT_EQ(book.DeviceOf(memory + 11), std::nullopt);
  EXPECT_EQ(book.DeviceOf(memory + 9), Cuda(0));
}

TEST(AddressBookTest, BelievesTheOwnerBeforeABorrower) {
  AddressBook book;
  char memory[64] = {};
  book.Add(memory, 64, Cuda(0), /*owned=*/true);
  book.Add(memory, 64, Cuda(5), /*owned=*/false);
  EXPECT_EQ(book.DeviceOf(memory), Cuda(0));
}

TEST(AddressBookTest, FollowsBuffersAndBorrowsOfContexts) {
  ContextOptions options = CpuOptions();
  options.device = Cpu(3);
  auto context = MakeContext(options);
  AddressBook& book = AddressBook::Global();
  const void* address = nullptr;
  int theirs = 0;
  {
    Buffer buffer = context->Allocate(100, Purpose::kScratch).value();
    address = buffer.data();
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(book.DeviceOf(address), Cpu(3));
    const Buffer borrowed = context->Borrow(&theirs, sizeof(theirs)).value();
    EXPECT_EQ(book.DeviceOf(&theirs), Cpu(3));
  }
  EXPECT_EQ(book.DeviceOf(address), std::nullopt);
  EXPECT_EQ(book.DeviceOf(&theirs), std::nullopt);
}

TEST(AddressBookTest, LookupFindsEachRangeAgain) {
  AddressBook book;
  char ours[8] = {}, theirs[8] = {}, unknown[8] = {};
  book.Add(ours, 8, Cpu(), /*owned=*/true);
  book.Add(theirs, 8, Cuda(1), /*owned=*/false);
  AddressBook::Lookup lookup(book);
  for (const char* address : {ours, ours + 7, ours}) {
    const AddressBook::Range* range = lookup.Find(address);
    ASSERT_NE(range, nullptr);
    EXPECT_EQ(range->device, Cpu());
    EXPECT_EQ(range->end, reinterpret_cast<uintptr_t>(ours + 8));
    EXPECT_TRUE(range->owned);
    EXPECT_EQ(lookup.Find(unknown), nullptr);
    EXPECT_EQ(lookup.Find(nullptr), nullptr);
    range = lookup.Find(theirs + 4);
    ASSERT_NE(range, nullptr);
    EXPECT_EQ(range->device, Cuda(1));
    EXPECT_FALSE(range->owned);
  }
}

TEST(AddressBookTest, KeepsACpuStreamFromCopyingGpuMemory) {
  auto context = MakeContext(CpuOptions());
  auto stream = context->NewStream("copy").value();
  char gpu[8] = {}, host[8] = {};
  AddressBook::Global().Add(gpu, 8, Cuda(0), /*owned=*/false);
  EXPECT_THAT(stream->Copy(host, gpu, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "copy: source is in memory of cuda:0, but the stream is on cpu:0"));
  AddressBook::Global().Remove(gpu, 8, /*owned=*/false);
}

}  // namespace
}  // namespace brigade::device
