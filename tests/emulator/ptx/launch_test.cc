// What launches count, and orders and threads that change nothing.

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Thread i reads `width` bytes at i * stride + shift and writes them likewise.
std::string CopyKernel(int width, int stride, int shift) {
  const std::string type = width == 16 ? "v4.b32 {%r1, %r2, %r3, %r4}" : "b32 %r1";
  const std::string store = width == 16 ? "v4.b32" : "b32";
  const std::string parts = width == 16 ? "{%r1, %r2, %r3, %r4}" : "%r1";
  return absl::StrCat(
      kPtxHead,
      ".entry copy(.param .u64 in, .param .u64 out)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n",
      "ld.param.u64 %d1, [in];\nld.param.u64 %d2, [out];\nmov.u32 %r0, %tid.x;\n",
      "mul.wide.u32 %d3, %r0, ", stride, ";\nadd.s64 %d3, %d3, ", shift,
      ";\nadd.s64 %d1, %d1, %d3;\nadd.s64 %d2, %d2, %d3;\nld.global.", type, ", [%d1];\n",
      "st.global.", store, " [%d2], ", parts, ";\nret;\n}\n");
}

LaunchResult Copy(int width, int stride, int shift, int threads, Kernel& kernel) {
  auto device = PtxDevice::Create(CopyKernel(width, stride, shift)).value();
  const size_t bytes = static_cast<size_t>(threads * stride + shift + width);
  const uint64_t in = device->Upload(std::vector<uint8_t>(bytes, 3), "in");
  const uint64_t out = device->Upload(std::vector<uint8_t>(bytes, 0), "out");
  LaunchOptions options;
  options.block.x = threads;
  kernel = device->module().kernels[0];
  return device->Run("copy", {in, out}, options).value();
}

TEST(LaunchTest, CountsSectorsOfEachWarp) {
  struct Case {
    int width, stride, shift, threads;
    int64_t sectors, least, lines;
  };
  const Case cases[] = {
      {4, 4, 0, 32, 4, 4, 1},        // side by side
      {4, 4, 4, 32, 5, 4, 2},        // not from the start of a sector
      {4, 8, 0, 32, 8, 4, 2},        // every other word
      {4, 128, 0, 32, 32, 4, 32},    // a line each
      {16, 16, 0, 32, 16, 16, 4},    // 128 bits, side by side
      {16, 32, 0, 32, 32, 16, 8},    // half of each sector
      {4, 0, 0, 1, 1, 1, 1},         // one thread
      {16, 16, 0, 128, 64, 64, 16},  // four warps
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.width, " bytes, stride ", each.stride));
    Kernel kernel;
    const LaunchResult result = Copy(each.width, each.stride, each.shift, each.threads, kernel);
    ASSERT_THAT(result.findings, IsEmpty());
    for (const AccessCounts& counts :
         {result.counts.GlobalLoads(kernel), result.counts.GlobalStores(kernel, each.width)}) {
      EXPECT_EQ(counts.requests, (each.threads + 31) / 32);
      EXPECT_EQ(counts.accesses, each.threads);
      EXPECT_EQ(counts.bytes, int64_t{each.threads} * each.width);
      EXPECT_EQ(counts.sectors, each.sectors);
      EXPECT_EQ(counts.least_sectors, each.least);
      EXPECT_EQ(counts.lines, each.lines);
    }
    EXPECT_EQ(result.counts.GlobalStores(kernel, 2).requests, 0);
    EXPECT_EQ(result.counts.executed(), int64_t{each.threads} * 10);
    EXPECT_EQ(result.counts.read_again, 0);
  }
}

TEST(LaunchTest, CountsBankConflicts) {
  // Thread i accesses word i * stride of shared memory.
  const auto conflicts = [](int stride, const std::string& type) {
    auto device = PtxDevice::Create(
                      absl::StrCat(kPtxHead, ".entry k()\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\n",
                                   ".shared .align 16 .b8 s[16384];\nmov.u32 %r0, %tid.x;\n",
                                   "mul.lo.u32 %r0, %r0, ", stride, ";\nmov.u32 %r1, s;\n",
                                   "add.u32 %r0, %r0, %r1;\nmov.b64 %d0, 0;\nst.shared.", type,
                                   " [%r0], ", type == "b64" ? "%d0" : "%r1", ";\nret;\n}\n"))
                      .value();
    LaunchOptions options;
    options.block.x = 32;
    const LaunchResult result = device->Run("k", {}, options).value();
    if (stride > 0) {
      EXPECT_THAT(result.findings, IsEmpty());
    }
    int64_t sum = 0;
    for (const auto& each : result.counts.instructions) sum += each.shared.bank_conflicts;
    return sum;
  };
  EXPECT_EQ(conflicts(4, "b32"), 0);
  EXPECT_EQ(conflicts(8, "b32"), 1);
  EXPECT_EQ(conflicts(64, "b32"), 15);
  EXPECT_EQ(conflicts(128, "b32"), 31);
  EXPECT_EQ(conflicts(132, "b32"), 0);
  EXPECT_EQ(conflicts(8, "b64"), 0);
  EXPECT_EQ(conflicts(16, "b64"), 2);
  // All lanes at one word, or pair of words.
  EXPECT_EQ(conflicts(0, "b32"), 0);
  EXPECT_EQ(conflicts(0, "b64"), 0);
}

TEST(LaunchTest, CountsWhatIsReadOrWrittenAgain) {
  Kernel kernel;
  // All threads at the same words: 31 of 32 read again, and race when they write.
  const LaunchResult result = Copy(4, 0, 0, 32, kernel);
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].kind, FindingKind::kRaceInBlock);
  EXPECT_EQ(result.counts.read_again, 31 * 4);
  EXPECT_EQ(result.counts.written_again, 31 * 4);
  EXPECT_EQ(result.counts.GlobalLoads(kernel).sectors, 1);
}

TEST(LaunchTest, OrdersAndThreadsOfTheHostChangeNothing) {
  auto device =
      PtxDevice::Create(
          absl::StrCat(kPtxHead,
                       ".entry k(.param .u64 out)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n"
                       ".reg .pred %p<2>;\n"
                       "ld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\n"
                       "mov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %r0;\n"
                       "mov.u32 %r4, 0;\n"
                       "$L: add.s32 %r4, %r4, %r3;\nadd.s32 %r0, %r0, -1;\n"
                       "setp.ge.s32 %p1, %r0, 0;\n@%p1 bra $L;\n"
                       "mul.wide.u32 %d2, %r3, 4;\nadd.s64 %d1, %d1, %d2;\n"
                       "st.global.u32 [%d1], %r4;\nret;\n}\n"))
          .value();
  constexpr int kBlocks = 37, kThreads = 70;
  std::vector<uint32_t> wanted;
  for (uint32_t i = 0; i < kBlocks * kThreads; ++i) wanted.push_back(i * (i % kThreads + 1));
  for (const int threads : {1, 2, 5}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const uint64_t out = device->Upload(std::vector<uint32_t>(wanted.size()), "out");
      LaunchOptions options;
      options.grid.x = kBlocks;
      options.block.x = kThreads;
      options.seed = seed;
      options.threads = threads;
      const LaunchResult result = device->Run("k", {out}, options).value();
      EXPECT_THAT(result.findings, IsEmpty());
      EXPECT_EQ(device->Download<uint32_t>(out, wanted.size()), wanted);
      EXPECT_EQ(result.counts.written_again, 0);
      ASSERT_OK(device->memory().Free(out));
    }
  }
}

TEST(LaunchTest, GenericAddressesReachEverySpace) {
  auto device =
      PtxDevice::Create(
          absl::StrCat(kPtxHead,
                       ".global .align 4 .u32 counter = 40;\n"
                       ".extern .shared .align 16 .b8 dynamic[];\n"
                       ".entry k(.param .u64 out, .param .u32 two)\n{\n.reg .b32 %r<8>;\n"
                       ".reg .b64 %d<8>;\n.local .align 4 .b8 depot[8];\n"
                       ".shared .align 4 .b8 fixed[4];\n"
                       "mov.u64 %d1, dynamic;\ncvta.shared.u64 %d1, %d1;\nst.u32 [%d1+4], 5;\n"
                       "mov.u64 %d2, depot;\ncvta.local.u64 %d2, %d2;\nst.u32 [%d2+4], 7;\n"
                       "ld.u32 %r1, [%d1+4];\nld.u32 %r2, [%d2+4];\n"
                       "ld.global.u32 %r3, [counter];\n"
                       "mov.u64 %d3, two;\ncvta.param.u64 %d3, %d3;\nld.u32 %r4, [%d3];\n"
                       "add.s32 %r1, %r1, %r2;\nadd.s32 %r1, %r1, %r3;\nadd.s32 %r1, %r1, %r4;\n"
                       "ld.param.u64 %d4, [out];\nst.global.u32 [%d4], %r1;\nret;\n}\n"))
          .value();
  const uint64_t out = device->Upload(std::vector<uint32_t>{0}, "out");
  LaunchOptions options;
  options.dynamic_shared_bytes = 16;
  const LaunchResult result = device->Run("k", {out, 2}, options).value();
  for (const Finding& finding : result.findings) ADD_FAILURE() << finding.ToString();
  EXPECT_THAT(device->Download<uint32_t>(out, 1), ElementsAre(5 + 7 + 40 + 2));
  // The dynamic part ends where the launch says.
  options.dynamic_shared_bytes = 4;
  const LaunchResult small = device->Run("k", {out, 2}, options).value();
  ASSERT_THAT(small.findings, SizeIs(2));
  EXPECT_THAT(small.findings[0].what, HasSubstr("byte 4 of 4 of shared \"dynamic"));
}

// A kernel of 70 threads, whose last warp has 6 lanes.
std::vector<Finding> RunInWarps(absl::string_view body, int threads = 70) {
  auto device = PtxDevice::Create(
      absl::StrCat(kPtxHead, ".entry k()\n{\n.reg .b32 %r<8>;\n",
                   ".reg .pred %p<4>;\n.shared .align 4 .b8 s[4096];\nmov.u32 %r0, %tid.x;\n",
                   "mov.u32 %r1, %laneid;\nshl.b32 %r2, %r0, 2;\n", body, "\nret;\n}\n"));
  EXPECT_OK(device);
  std::vector<Finding> all;
  for (uint64_t seed = 0; seed < 4 && device.ok(); ++seed) {
    LaunchOptions options;
    options.block.x = threads;
    options.seed = seed;
    options.most_instructions = 1'000'000;
    auto result = (*device)->Run("k", {}, options);
    EXPECT_OK(result);
    if (!result.ok()) continue;
    for (Finding& finding : result->findings) all.push_back(std::move(finding));
  }
  return all;
}

TEST(WarpTest, WaitsNeitherForLanesThatHaveLeftNorForThoseThatNeverWere) {
  EXPECT_THAT(RunInWarps("bar.warp.sync -1;"), IsEmpty());
  EXPECT_THAT(RunInWarps("setp.lt.u32 %p1, %r1, 3;\n@%p1 ret;\nbar.warp.sync -1;\n"
                         "vote.sync.any.pred %p2, %p1, -1;"),
              IsEmpty());
}

TEST(WarpTest, LanesMeetAtDifferentBarriersOfTheirWarp) {
  EXPECT_THAT(RunInWarps("setp.lt.u32 %p1, %r1, 3;\n@%p1 bra $A;\nbar.warp.sync -1;\n"
                         "bra $B;\n$A: bar.warp.sync -1;\n$B: bar.sync 0;"),
              IsEmpty());
}

TEST(WarpTest, ABarrierOfTheWarpOrdersItsLanesOnly) {
  // All read a word, and one writes it after a barrier.
  constexpr absl::string_view kBroadcast =
      "st.shared.u32 [s], %r1;\nbar.warp.sync -1;\nld.shared.u32 %r3, [s];\nbar.warp.sync -1;\n"
      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], %r3;";
  const std::string one_writer(absl::StrCat("setp.eq.u32 %p1, %r1, 5;\n@%p1 ", kBroadcast));
  EXPECT_THAT(RunInWarps(one_writer, 32), IsEmpty());
  // Between warps it orders nothing.
  EXPECT_THAT(RunInWarps(one_writer, 64), Not(IsEmpty()));
  // Nor for lanes that its mask leaves out: lanes 16 to 31 write, 0 to 15 meet and read.
  EXPECT_THAT(RunInWarps("setp.ge.u32 %p1, %r1, 16;\n@%p1 st.shared.u32 [%r2+64], %r1;\n"
                         "@%p1 bra $E;\nst.shared.u32 [%r2+1024], %r1;\n"
                         "bar.warp.sync 65535;\nld.shared.u32 %r3, [%r2+128];\n$E: ret;",
                         32),
              Each(Field(&Finding::kind, FindingKind::kRaceInBlock)));
  EXPECT_THAT(RunInWarps("setp.ge.u32 %p1, %r1, 16;\n@%p1 st.shared.u32 [%r2+64], %r1;\n"
                         "@%p1 bra $E;\nbar.warp.sync 65535;\nld.shared.u32 %r3, [%r2+128];\n"
                         "$E: ret;",
                         32),
              SizeIs(4));
}

TEST(WarpTest, ReadsOfOtherWarpsAreOrderedByBarriersOfTheBlockOnly) {
  constexpr absl::string_view kWrite = "setp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [s], %r0;\n";
  const std::string begin = absl::StrCat(kWrite, "bar.sync 0;\n");
  // Warp 1 reads what warp 0 writes again, in either order.
  EXPECT_THAT(RunInWarps(absl::StrCat(begin, "setp.lt.u32 %p2, %r0, 32;\n@%p2 bra $W;\n",
                                      "ld.shared.u32 %r3, [s];\nret;\n$W: ", kWrite),
                         64),
              AllOf(SizeIs(4), Each(Field(&Finding::kind, FindingKind::kRaceInBlock))));
  // Both warps read; a barrier of warp 0 says nothing of warp 1.
  const std::string read = absl::StrCat(begin, "ld.shared.u32 %r3, [s];\n");
  EXPECT_THAT(RunInWarps(absl::StrCat(read, "bar.warp.sync -1;\n", kWrite), 64), SizeIs(4));
  EXPECT_THAT(RunInWarps(absl::StrCat(read, "bar.sync 0;\n", kWrite), 64), IsEmpty());
  EXPECT_THAT(RunInWarps(absl::StrCat(read, "bar.warp.sync -1;\n", kWrite), 32), IsEmpty());
}

TEST(WarpTest, AWarpThatSpinsLetsTheOtherRun) {
  // Lane 0 of warp 0 waits for what warp 1 writes.
  EXPECT_THAT(RunInWarps("setp.ne.u32 %p1, %r0, 0;\n@%p1 bra $O;\nst.volatile.shared.u32 [s], 0;\n"
                         "$S: ld.volatile.shared.u32 %r3, [s+4];\nsetp.ne.u32 %p2, %r3, 7;\n"
                         "@%p2 bra $S;\nbra $E;\n$O: setp.ne.u32 %p1, %r0, 40;\n@%p1 bra $E;\n"
                         "mov.u32 %r4, 7;\nst.volatile.shared.u32 [s+4], %r4;\n$E: ret;"),
              Each(Field(&Finding::kind, FindingKind::kUninitialized)));
}

TEST(WarpTest, WhatLeavesASharedVariableMeetsNoOther) {
  const auto findings = RunInWarps(
      ".shared .align 4 .b8 first[16];\n.shared .align 4 .b8 second[16];\n"
      "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r3, first;\nmov.u32 %r4, second;\n"
      "@%p1 st.shared.u32 [%r3+16], %r0;\n@%p1 st.shared.u32 [%r4+12], %r0;");
  ASSERT_THAT(findings, SizeIs(4));
  EXPECT_THAT(findings[0].what, HasSubstr("write of 4 bytes at byte 16 of 16 of shared \"first\""));
}

TEST(WarpTest, AddressesOfSharedMemoryHave32Bits) {
  EXPECT_THAT(RunInWarps("mov.u32 %r3, 0;\nadd.s32 %r3, %r3, -8;\n"
                         "setp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [%r3+8], %r0;"),
              IsEmpty());
}

TEST(WarpTest, FindsRacesBetweenBlocksOnSeveralThreadsOfTheHost) {
  auto device = PtxDevice::Create(CopyKernel(4, 4, 0)).value();
  const uint64_t in = device->Upload(std::vector<uint8_t>(512, 3), "in");
  const uint64_t out = device->Upload(std::vector<uint8_t>(512, 0), "out");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    LaunchOptions options;
    options.grid.x = 2;
    options.block.x = 128;
    options.threads = 2;
    options.seed = seed;
    const LaunchResult result = device->Run("copy", {in, out}, options).value();
    ASSERT_THAT(result.findings, SizeIs(1));
    EXPECT_EQ(result.findings[0].kind, FindingKind::kRaceBetweenBlocks);
    // One of two threads sees the other, or both do.
    EXPECT_GE(result.findings[0].times, 128);
    EXPECT_LE(result.findings[0].times, 256);
  }
}

TEST(MemoryTest, ForgetsPastAccessesWhenNumbersRunOut) {
  auto memory = Memory::Create(1 << 20).value();
  EXPECT_EQ(memory->TakeSerials(3, 10).value(), 1u);
  EXPECT_EQ(memory->TakeSerials(6, 10).value(), 4u);
  const uint64_t a = memory->Allocate(4, "a").value();
  memory->Past(a)->write = 77;
  // Not while a launch runs that has some of them.
  memory->ReturnSerials();
  absl::StatusOr<uint64_t> third;
  std::thread later([&] { third = memory->TakeSerials(2, 10); });
  memory->ReturnSerials();
  later.join();
  EXPECT_EQ(third.value(), 1u);
  EXPECT_EQ(memory->Past(a)->write, 0u);
  EXPECT_THAT(memory->TakeSerials(10, 10), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(MemoryTest, NamesWhatIsWrong) {
  auto memory = Memory::Create(1 << 20).value();
  const uint64_t a = memory->Allocate(1000, "a").value();
  const uint64_t b = memory->Allocate(100, "b").value();
  EXPECT_GE(b - a, 1256u);
  EXPECT_EQ(memory->Find(a + 990).address, a);
  EXPECT_EQ(memory->Find(a + 990).bytes, 1000);
  EXPECT_EQ(memory->Find(a + 1001).bytes, -1);
  EXPECT_EQ(memory->Describe(a + 10), "byte 10 of 1000 of \"a\"");
  EXPECT_EQ(memory->Describe(a + 1000), "byte 1000 of 1000 of \"a\"");
  EXPECT_THAT(memory->Describe(3), HasSubstr("0x3, which is not on the device"));
  std::vector<uint8_t> bytes(1000, 7);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnwritten = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(memory->Read(a, bytes.data(), 4), StatusIs(kUnwritten, HasSubstr("never written")));
  ASSERT_OK(memory->Write(a, bytes.data(), 1000));
  EXPECT_THAT(memory->Write(a, bytes.data(), 1001),
              StatusIs(kInvalid, HasSubstr("outside of live allocations: byte 1000 of 1000")));
  std::vector<uint8_t> back(1000);
  ASSERT_OK(memory->Read(a, back.data(), 1000));
  EXPECT_THAT(back, Each(7));
  ASSERT_OK(memory->Free(a));
  EXPECT_THAT(memory->Free(a), StatusIs(kInvalid, HasSubstr("of \"a\", which has been freed")));
  EXPECT_THAT(memory->Free(b + 1), StatusIs(kInvalid, HasSubstr("is the start of no allocation")));
  EXPECT_THAT(memory->Read(a, back.data(), 4), StatusIs(kInvalid, HasSubstr("has been freed")));
  EXPECT_THAT(memory->Allocate(1 << 21, "c"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("for \"c\"")));
  EXPECT_THAT(memory->Allocate(-1, "c"), StatusIs(kInvalid));
  EXPECT_THAT(memory->CheckWrite(0, b, 101), StatusIs(kInvalid, HasSubstr("byte 100 of 100")));
  EXPECT_THAT(memory->CheckRead(0, b, 100), StatusIs(kUnwritten, HasSubstr("never written")));
  ASSERT_OK(memory->CheckWrite(0, b, 100));
  EXPECT_OK(memory->CheckRead(0, b, 100));
  // A freed address comes again only when there is no other.
  uint64_t last = b;
  while (true) {
    const auto next = memory->Allocate(10'000, "many");
    if (!next.ok() || *next < last) break;
    EXPECT_NE(*next, a);
    last = *next;
  }
}

TEST(MemoryTest, KeepsOwnersApart) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnwritten = absl::StatusCode::kFailedPrecondition;
  auto memory = Memory::Create(1 << 20, 2).value();
  const uint64_t first = memory->Allocate(100, "weights", 0).value();
  const uint64_t second = memory->Allocate(100, "weights", 1).value();
  const uint64_t pinned = memory->Allocate(100, "pinned", Memory::kHost).value();
  EXPECT_THAT(memory->Allocate(1, "x", 2), StatusIs(kInvalid));
  EXPECT_EQ(memory->Find(second).owner, 1);
  EXPECT_EQ(memory->Find(pinned).owner, Memory::kHost);
  EXPECT_GE(memory->used_bytes(1), 100);
  EXPECT_EQ(memory->Describe(second + 1), "byte 1 of 100 of \"weights\", on device 1");
  EXPECT_TRUE(memory->Reaches(0, first) && memory->Reaches(0, pinned));
  EXPECT_FALSE(memory->Reaches(0, second));
  EXPECT_THAT(memory->CheckWrite(0, second, 4),
              StatusIs(kInvalid, HasSubstr("by device 0 at byte 0 of 100 of \"weights\", on de")));

  // The host and the devices see the same page-locked bytes.
  std::memset(reinterpret_cast<void*>(pinned), 5, 100);
  ASSERT_OK(memory->Copy(first, pinned, 100));
  ASSERT_OK(memory->Copy(second, first, 50));
  // Bytes that were never written may be copied, but not to the host.
  ASSERT_OK(memory->Copy(first, second, 100));
  EXPECT_THAT(memory->Copy(pinned, second, 51), StatusIs(kUnwritten, HasSubstr("never written")));
  EXPECT_THAT(memory->Copy(first, second, 101), StatusIs(kInvalid, HasSubstr("byte 100 of 100")));
  std::vector<uint8_t> back(50);
  ASSERT_OK(memory->Read(second, back.data(), 50));
  EXPECT_THAT(back, Each(5));
  *memory->Host(pinned) = 9;
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(pinned), 9);
  ASSERT_OK(memory->Free(second));
  EXPECT_EQ(memory->used_bytes(1), 0);
}

}  // namespace
}  // namespace brigade::emulator
