// Blocks that wait for each other by flags: what fences order is no race, and what they do not is.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kThreads = 64;

struct Done {
  std::vector<Finding> findings;
  // A word of each thread of each block.
  std::vector<uint32_t> data, out;
};

// Kernels whose threads have a word of `data` at %data, one of `out` at %out, a word for all at
// %flag, and %p1 where they are the first of their block. `blocks` are the bodies of each block.
Done RunBlocks(const std::vector<std::string>& blocks, int host_threads = 1) {
  std::string text = absl::StrCat(
      kPtxHead, ".entry k(.param .u64 data, .param .u64 flag, .param .u64 out)\n{\n",
      ".reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .pred %p<9>;\n.reg .b64 %data, %flag, %out;\n",
      "ld.param.u64 %data, [data];\nld.param.u64 %flag, [flag];\nld.param.u64 %out, [out];\n",
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n",
      "mad.lo.s32 %r3, %r2, %r3, %r1;\nmul.wide.u32 %d1, %r3, 4;\nadd.s64 %out, %out, %d1;\n",
      "add.s64 %data, %data, %d1;\nsetp.eq.u32 %p1, %r1, 0;\n");
  for (size_t block = 0; block < blocks.size(); ++block) {
    absl::StrAppend(&text, "setp.eq.u32 %p2, %r2, ", block, ";\n@%p2 bra B", block, ";\n");
  }
  for (size_t block = 0; block < blocks.size(); ++block) {
    absl::StrAppend(&text, "B", block, ":\n{\n", blocks[block], "}\nret;\n");
  }
  auto device = PtxDevice::Create(absl::StrCat(text, "}\n"));
  EXPECT_OK(device);
  if (!device.ok()) return {};
  const std::vector<uint32_t> zeros(kThreads * blocks.size());
  const uint64_t data = (*device)->Upload(zeros, "data"), out = (*device)->Upload(zeros, "out");
  const uint64_t flag = (*device)->Upload(std::vector<uint32_t>{0}, "flag");
  LaunchOptions options;
  options.grid.x = static_cast<int>(blocks.size());
  options.block.x = kThreads;
  options.threads = host_threads;
  options.seed = 3;
  auto result = (*device)->Run("k", {data, flag, out}, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  return {result->findings, (*device)->Download<uint32_t>(data, zeros.size()),
          (*device)->Download<uint32_t>(out, zeros.size())};
}

// The data of the block before, which is what one waits for.
constexpr absl::string_view kRead =
    "ld.global.u32 %r5, [%data+-256];\nst.global.u32 [%out], %r5;\n";
constexpr absl::string_view kWrite = "mov.u32 %r8, 7;\nst.global.u32 [%data], %r8;\n";

std::string Wait(absl::string_view load = "ld.relaxed.gpu.global.u32", int value = 1) {
  return absl::StrCat("W: ", load, " %r4, [%flag];\nsetp.ne.u32 %p3, %r4, ", value,
                      ";\n@%p3 bra W;\n");
}

// One thread of each block: the others leave.
constexpr absl::string_view kOnlyFirst = "@!%p1 bra L;\n";
Done RunPair(absl::string_view writer, absl::string_view reader) {
  return RunBlocks(
      {absl::StrCat(kOnlyFirst, writer, "L:\n"), absl::StrCat(kOnlyFirst, reader, "L:\n")});
}

void ExpectRace(const Done& done) {
  ASSERT_THAT(done.findings, Not(IsEmpty()));
  EXPECT_THAT(done.findings, Each(Field(&Finding::kind, FindingKind::kRaceBetweenBlocks)));
}

TEST(OrderTest, FencesBeforeAndBehindAFlagOrder) {
  for (const absl::string_view fence :
       {"membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.sc"}) {
    for (const absl::string_view write :
         {"st.relaxed.gpu.global.u32 [%flag], 1", "st.volatile.global.u32 [%flag], 1",
          "red.global.add.u32 [%flag], 1", "atom.global.exch.b32 %r4, [%flag], 1"}) {
      SCOPED_TRACE(absl::StrCat(fence, " ", write));
      const Done done = RunPair(absl::StrCat(kWrite, fence, ";\n", write, ";\n"),
                                absl::StrCat(Wait(), fence, ";\n", kRead));
      EXPECT_THAT(done.findings, IsEmpty());
      EXPECT_EQ(done.out[kThreads], 7u);
    }
  }
}

TEST(OrderTest, ReleaseAndAcquireAreFencesToo) {
  const std::string wait = Wait("ld.acquire.gpu.global.u32");
  for (const absl::string_view write :
       {"st.release.gpu.global.u32 [%flag], 1", "red.release.gpu.global.add.u32 [%flag], 1",
        "atom.acq_rel.gpu.global.add.u32 %r4, [%flag], 1"}) {
    SCOPED_TRACE(write);
    EXPECT_THAT(RunPair(absl::StrCat(kWrite, write, ";\n"), absl::StrCat(wait, kRead)).findings,
                IsEmpty());
  }
  ExpectRace(RunPair(absl::StrCat(kWrite, "atom.acquire.gpu.global.add.u32 %r4, [%flag], 1;\n"),
                     absl::StrCat(wait, kRead)));
}

constexpr absl::string_view kFlag = "st.relaxed.gpu.global.u32 [%flag], 1;\n";
constexpr absl::string_view kFence = "membar.gl;\n";

TEST(OrderTest, WithoutTheWritersFenceItIsARace) {
  ExpectRace(RunPair(absl::StrCat(kWrite, kFlag), absl::StrCat(Wait(), kFence, kRead)));
}
TEST(OrderTest, WithoutTheReadersFenceItIsARace) {
  ExpectRace(RunPair(absl::StrCat(kWrite, kFence, kFlag), absl::StrCat(Wait(), kRead)));
}
TEST(OrderTest, AFlagBeforeTheDataOrdersNothing) {
  ExpectRace(RunPair(absl::StrCat(kFence, kFlag, kWrite), absl::StrCat(Wait(), kFence, kRead)));
  ExpectRace(RunPair(absl::StrCat(kFence, kWrite, kFlag), absl::StrCat(Wait(), kFence, kRead)));
  // Behind a second fence, and no flag.
  ExpectRace(
      RunPair(absl::StrCat(kFence, kFlag, kWrite, kFence), absl::StrCat(Wait(), kFence, kRead)));
}
TEST(OrderTest, DataThatIsReadBeforeTheFlagIsARace) {
  ExpectRace(RunPair(absl::StrCat(kWrite, kFence, kFlag), absl::StrCat(kRead, Wait(), kFence)));
}
TEST(OrderTest, AFenceOfTheBlockIsTooNarrow) {
  ExpectRace(
      RunPair(absl::StrCat(kWrite, "membar.cta;\n", kFlag), absl::StrCat(Wait(), kFence, kRead)));
  ExpectRace(RunPair(absl::StrCat(kWrite, "st.release.cta.global.u32 [%flag], 1;\n"),
                     absl::StrCat(Wait(), kFence, kRead)));
}

// All threads of a block: barriers take to the others what one thread orders.
TEST(OrderTest, BarriersHandOn) {
  const auto run = [](absl::string_view writers_barrier, absl::string_view readers_barrier) {
    return RunBlocks(
        {absl::StrCat(kWrite, writers_barrier, "@!%p1 bra L;\n", kFence, kFlag, "L:\n"),
         absl::StrCat("@!%p1 bra L;\n", Wait(), kFence, "L: ", readers_barrier, kRead)});
  };
  const Done done = run("bar.sync 0;\n", "bar.sync 0;\n");
  EXPECT_THAT(done.findings, IsEmpty());
  EXPECT_EQ(done.out.back(), 7u);
  ExpectRace(run("", "bar.sync 0;\n"));
  ExpectRace(run("bar.sync 0;\n", ""));
  // The first warp has a barrier of its own.
  ExpectRace(run("bar.warp.sync -1;\n", "bar.sync 0;\n"));
  ExpectRace(run("bar.sync 0;\n", "bar.warp.sync -1;\n"));
}

TEST(OrderTest, BarriersOfAWarpHandOn) {
  const auto run = [](absl::string_view barrier) {
    constexpr absl::string_view kFirstWarp = "setp.ge.u32 %p4, %r1, 32;\n@%p4 bra E;\n";
    return RunBlocks(
        {absl::StrCat(kFirstWarp, kWrite, barrier, "@!%p1 bra L;\n", kFence, kFlag, "L:\nE:\n"),
         absl::StrCat(kFirstWarp, "@!%p1 bra L;\n", Wait(), kFence, "L: ", barrier, kRead,
                      "E:\n")});
  };
  EXPECT_THAT(run("bar.warp.sync -1;\n").findings, IsEmpty());
  ExpectRace(run("mov.u32 %r6, 0;\n"));
}

TEST(OrderTest, OneThatHasWaitedHandsOnWhatItKnows) {
  const auto run = [](absl::string_view fence) {
    const std::string to_third = absl::StrCat(fence, "st.relaxed.gpu.global.u32 [%flag], 2;\n");
    return RunBlocks(
        {absl::StrCat(kOnlyFirst, kWrite, kFence, kFlag, "L:\n"),
         absl::StrCat(kOnlyFirst, Wait(), to_third, "L:\n"),
         absl::StrCat(kOnlyFirst, Wait("ld.relaxed.gpu.global.u32", 2), kFence,
                      "ld.global.u32 %r5, [%data+-512];\nst.global.u32 [%out], %r5;\nL:\n")});
  };
  EXPECT_THAT(run(kFence).findings, IsEmpty());
  ExpectRace(run(""));
}

TEST(OrderTest, TheLastBlockReadsWhatAllHaveWritten) {
  const auto run = [](absl::string_view fence, int host_threads) {
    const std::string block = absl::StrCat(
        kWrite, "bar.sync 0;\n@!%p1 bra L;\n", fence, "atom.global.add.u32 %r4, [%flag], 1;\n",
        "setp.ne.u32 %p3, %r4, 2;\n@%p3 bra L;\n", fence, "ld.param.u64 %d2, [data];\n",
        "ld.global.u32 %r5, [%d2];\nld.global.u32 %r6, [%d2+256];\nadd.u32 %r5, %r5, %r6;\n",
        "ld.global.u32 %r6, [%d2+512];\nadd.u32 %r5, %r5, %r6;\nst.global.u32 [%data], %r5;\n",
        // For the next launch.
        "st.global.u32 [%flag], 0;\nL:\n");
    return RunBlocks({block, block, block}, host_threads);
  };
  for (const int host_threads : {1, 3}) {
    const Done done = run(kFence, host_threads);
    EXPECT_THAT(done.findings, IsEmpty());
    EXPECT_EQ(done.data[0] + done.data[kThreads] + done.data[2 * kThreads], 7u + 7 + 21);
    ExpectRace(run("", host_threads));
  }
}

}  // namespace
}  // namespace brigade::emulator
