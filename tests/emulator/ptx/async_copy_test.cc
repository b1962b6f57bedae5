// cp.async: what it copies, and that nothing else may touch the bytes until it has been waited for.

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

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kThreads = 64;

struct Done {
  std::vector<Finding> findings;
  // Words of the output.
  std::vector<uint32_t> out;
  LaunchCounts counts;
};

// Two warps run `body` with the addresses of thread i's 16 bytes: %g of the source, whose words are
// 0x01010101 * (1 + i), %s of shared memory, %n of the next thread's (of the last the first's), and
// %o of the output; the thread is %t.
std::string KernelOf(absl::string_view body) {
  return absl::StrCat(kPtxHead, ".entry k(.param .u64 in, .param .u64 out)\n{\n",
                      ".reg .b32 %r<9>, %s, %n, %t;\n.reg .b64 %a<9>, %g, %o;\n.reg .pred %p<9>;\n",
                      ".shared .align 16 .b8 tile[1024];\n",
                      "mov.u32 %t, %tid.x;\nld.param.u64 %g, [in];\nld.param.u64 %o, [out];\n",
                      "mul.wide.u32 %a1, %t, 16;\nadd.s64 %g, %g, %a1;\nadd.s64 %o, %o, %a1;\n",
                      "mov.u32 %r1, tile;\nmad.lo.u32 %s, %t, 16, %r1;\nadd.u32 %n, %t, 1;\n",
                      "and.b32 %n, %n, 63;\nmad.lo.u32 %n, %n, 16, %r1;\n", body, "\nret;\n}\n");
}

Done RunBody(absl::string_view body, uint64_t seed = 0, int64_t written = kThreads * 16,
             int64_t allocated = kThreads * 16) {
  auto device = PtxDevice::Create(KernelOf(body));
  EXPECT_OK(device) << body;
  if (!device.ok()) return {};
  std::vector<uint8_t> in;
  for (int i = 0; i < kThreads; ++i) in.resize(in.size() + 16, static_cast<uint8_t>(1 + i));
  const uint64_t from = (*device)->memory().Allocate(allocated, "in").value();
  EXPECT_OK((*device)->memory().Write(from, in.data(), written));
  const uint64_t to = (*device)->Upload(std::vector<uint32_t>(kThreads * 4), "out");
  LaunchOptions options;
  options.block.x = kThreads;
  options.seed = seed;
  auto result = (*device)->Run("k", {from, to}, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  Done done = {result->findings, {}, result->counts};
  if (done.findings.empty()) done.out = (*device)->Download<uint32_t>(to, kThreads * 4);
  return done;
}

// With each of some orders of the warps one finding, of this kind.
void ExpectFinding(absl::string_view body, FindingKind kind,
                   const ::testing::Matcher<std::string>& text) {
  SCOPED_TRACE(body);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<Finding> findings = RunBody(body, seed).findings;
    ASSERT_THAT(findings, SizeIs(1)) << seed;
    EXPECT_EQ(findings[0].kind, kind);
    EXPECT_THAT(findings[0].ToString(), text);
  }
}

constexpr absl::string_view kCopy = "cp.async.cg.shared.global [%s], [%g], 16;\n";
constexpr absl::string_view kCommit = "cp.async.commit_group;\n";
constexpr absl::string_view kWait = "cp.async.wait_group 0;\n";
constexpr absl::string_view kBarrier = "bar.sync 0;\n";
// The own 16 bytes, and the next thread's.
constexpr absl::string_view kOwn =
    "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%s];\nst.global.v4.b32 [%o], {%r2, %r3, %r4, %r5};\n";
constexpr absl::string_view kNext =
    "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%n];\nst.global.v4.b32 [%o], {%r2, %r3, %r4, %r5};\n";

uint32_t Word(int thread) { return 0x01010101u * static_cast<uint32_t>(1 + thread % kThreads); }

TEST(AsyncCopyTest, CopiesWhatIsWaitedFor) {
  const Done own = RunBody(absl::StrCat(kCopy, kCommit, kWait, kOwn));
  const Done all = RunBody(absl::StrCat(kCopy, "cp.async.wait_all;\n", kOwn));
  const Done next = RunBody(absl::StrCat(kCopy, kCommit, kWait, kBarrier, kNext));
  EXPECT_THAT(own.findings, IsEmpty());
  EXPECT_THAT(all.findings, IsEmpty());
  EXPECT_THAT(next.findings, IsEmpty());
  for (int i = 0; i < kThreads; ++i) {
    const auto at = static_cast<size_t>(4 * i);
    for (size_t word = at; word < at + 4; ++word) {
      ASSERT_EQ(own.out[word], Word(i));
      ASSERT_EQ(all.out[word], Word(i));
      ASSERT_EQ(next.out[word], Word(i + 1));
    }
  }
}

TEST(AsyncCopyTest, EveryWidthAndNumberOfBytesThatAreRead) {
  for (const int bytes : {4, 8, 16}) {
    for (int read = 0; read <= bytes; ++read) {
      const std::string size = read == bytes ? "" : absl::StrCat(", %r6");
      const Done done =
          RunBody(absl::StrCat("mov.u32 %r6, ", read, ";\nmov.u32 %r7, -1;\n",
                               "st.shared.v4.b32 [%s], {%r7, %r7, %r7, "
                               "%r7};\ncp.async.ca.shared.global.L2::128B [%s], [%g], ",
                               bytes, size, ";\n", kCommit, kWait, kOwn));
      EXPECT_THAT(done.findings, IsEmpty());
      for (int i = 0; i < 16; ++i) {
        const uint32_t expected = i < read ? 1 : i < bytes ? 0 : 0xff;
        ASSERT_EQ(done.out[static_cast<size_t>(i / 4)] >> 8 * (i % 4) & 0xff, expected)
            << bytes << " " << read << " " << i;
      }
    }
  }
}

TEST(AsyncCopyTest, GroupsAreWaitedForInTheirOrder) {
  // Two groups of 8 bytes: the first may be read while the second is under way.
  const std::string two = absl::StrCat("cp.async.ca.shared.global [%s], [%g], 8;\n", kCommit,
                                       "cp.async.ca.shared.global [%s+8], [%g+8], 8;\n", kCommit);
  constexpr absl::string_view kFirst =
      "ld.shared.v2.b32 {%r2, %r3}, [%s];\nst.global.v2.b32 [%o], {%r2, %r3};\n";
  constexpr absl::string_view kSecond =
      "ld.shared.v2.b32 {%r2, %r3}, [%s+8];\nst.global.v2.b32 [%o], {%r2, %r3};\n";
  EXPECT_THAT(RunBody(absl::StrCat(two, "cp.async.wait_group 1;\n", kFirst)).findings, IsEmpty());
  EXPECT_THAT(RunBody(absl::StrCat(two, "cp.async.wait_group 0;\n", kSecond)).findings, IsEmpty());
  const auto is_early = AllOf(HasSubstr("read of 8 bytes at byte"), HasSubstr("of shared \"tile\""),
                              HasSubstr("has not been waited for"), HasSubstr("the copy of line "),
                              HasSubstr("by thread ("));
  ExpectFinding(absl::StrCat(two, "cp.async.wait_group 2;\n", kFirst), FindingKind::kRaceInBlock,
                is_early);
  ExpectFinding(absl::StrCat(two, "cp.async.wait_group 1;\n", kSecond), FindingKind::kRaceInBlock,
                is_early);
  // What was not committed is in no group; an empty group counts.
  ExpectFinding(absl::StrCat(kCopy, kWait, kFirst), FindingKind::kRaceInBlock, is_early);
  ExpectFinding(absl::StrCat(kCopy, kCommit, kCommit, "cp.async.wait_group 2;\n", kFirst),
                FindingKind::kRaceInBlock, is_early);
  EXPECT_THAT(
      RunBody(absl::StrCat(kCopy, kCommit, kCommit, "cp.async.wait_group 1;\n", kFirst)).findings,
      IsEmpty());
}

TEST(AsyncCopyTest, TheBytesMayNotBeTouchedBeforeTheWait) {
  const auto is_early = HasSubstr("has not been waited for");
  const std::string begun = absl::StrCat(kCopy, kCommit);
  ExpectFinding(absl::StrCat(begun, kOwn), FindingKind::kRaceInBlock, is_early);
  ExpectFinding(absl::StrCat(begun, "st.shared.b32 [%s], %t;\n"), FindingKind::kRaceInBlock,
                is_early);
  ExpectFinding(absl::StrCat(begun, "atom.shared.add.u32 %r2, [%s], 1;\n"),
                FindingKind::kRaceInBlock, is_early);
  ExpectFinding(absl::StrCat(begun, kCopy), FindingKind::kRaceInBlock, is_early);
  ExpectFinding(absl::StrCat(begun, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%s];\n"),
                FindingKind::kRaceInBlock, is_early);
  // A barrier is no wait.
  ExpectFinding(absl::StrCat(begun, kBarrier, kNext), FindingKind::kRaceInBlock, is_early);
}

TEST(AsyncCopyTest, OtherThreadsNeedABarrierAfterTheWait) {
  const std::string begun = absl::StrCat(kCopy, kCommit);
  const std::string filled = absl::StrCat(begun, kWait, kBarrier, kNext);
  // Of another lane, which waits at the same time.
  constexpr absl::string_view kOfNeighbour = "xor.b32 %r6, %s, 16;\nld.shared.b32 %r2, [%r6];\n";
  // By the order of the warps it is the copy or the read that comes second. In the last two a copy
  // begins while others may still read.
  for (const std::string& body :
       {absl::StrCat(begun, kWait, kNext), absl::StrCat(begun, kBarrier, kWait, kNext),
        absl::StrCat(begun, kBarrier, kWait, kOfNeighbour), absl::StrCat(filled, kCopy),
        absl::StrCat(begun, kWait, kBarrier, kOfNeighbour, kCopy)}) {
    SCOPED_TRACE(body);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      EXPECT_THAT(RunBody(body, seed).findings,
                  Contains(Field(&Finding::kind, FindingKind::kRaceInBlock)));
    }
  }
  EXPECT_THAT(RunBody(absl::StrCat(filled, kBarrier, kCopy)).findings, IsEmpty());
}

TEST(AsyncCopyTest, TheSourceMayNotChangeBeforeTheWait) {
  const std::string begun = absl::StrCat(kCopy, kCommit);
  ExpectFinding(absl::StrCat(begun, "st.global.b32 [%g+4], 77;\n", kWait),
                FindingKind::kRaceInBlock,
                AllOf(HasSubstr("of \"in\", which line"), HasSubstr("written again")));
  EXPECT_THAT(RunBody(absl::StrCat(begun, kWait, "st.global.b32 [%g+4], 77;\n")).findings,
              IsEmpty());
}

TEST(AsyncCopyTest, AddressesAreChecked) {
  ExpectFinding("cp.async.cg.shared.global [%s+8], [%g], 16;\n", FindingKind::kMisaligned,
                HasSubstr("write of 16 bytes at byte"));
  ExpectFinding("cp.async.cg.shared.global [%s], [%g+8], 16;\n", FindingKind::kMisaligned,
                HasSubstr("read of 16 bytes at byte"));
  ExpectFinding("cp.async.ca.shared.global [%s+2], [%g], 4;\n", FindingKind::kMisaligned,
                HasSubstr("write of 4 bytes"));
  ExpectFinding("cp.async.cg.shared.global [%s+16], [%g], 16;\n", FindingKind::kOutOfBounds,
                AllOf(HasSubstr("byte 1024 of 1024 of shared \"tile\""), HasSubstr("thread (63")));
  ExpectFinding("cp.async.cg.shared.global [%s], [%g+16], 16;\n", FindingKind::kOutOfBounds,
                AllOf(HasSubstr("byte 1024 of 1024 of \"in\""), HasSubstr("thread (63")));
  ExpectFinding("cp.async.cg.shared.global [%s], [%g], 16, 17;\n", FindingKind::kOutOfBounds,
                HasSubstr("a copy of 16 bytes that reads 17"));
  // What is not read may be anywhere: here beyond the last 8 bytes that are there.
  EXPECT_THAT(RunBody("cp.async.cg.shared.global [%s], [%g+65536], 16, 0;\n").findings, IsEmpty());
  constexpr int64_t kShort = kThreads * 16 - 8;
  const auto copy = [](int read) {
    return absl::StrCat("cp.async.cg.shared.global [%s], [%g], 16, ", read, ";\n");
  };
  EXPECT_THAT(RunBody(copy(8), 0, kShort, kShort).findings, IsEmpty());
  EXPECT_THAT(RunBody(copy(9), 0, kShort, kShort).findings, SizeIs(1));
}

TEST(AsyncCopyTest, UnwrittenBytesMayBeCopiedAndNotUsed) {
  // Of the source, all but the last 8 bytes of thread 63 are written.
  const std::string copied = absl::StrCat(kCopy, kCommit, kWait);
  EXPECT_THAT(RunBody(copied, 0, kThreads * 16 - 8).findings, IsEmpty());
  const std::vector<Finding> findings =
      RunBody(copied + "ld.shared.b32 %r2, [%s+8];\nsetp.lt.s32 %p1, %r2, 0;\n@%p1 bra L;\nL:", 0,
              kThreads * 16 - 8)
          .findings;
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kUninitialized);
  const std::vector<Finding> whole =
      RunBody(copied +
                  "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%s];\nsetp.lt.s32 %p1, %r5, 0;\n"
                  "@%p1 bra L;\nL:",
              0, kThreads * 16 - 8)
          .findings;
  ASSERT_THAT(whole, SizeIs(1));
  EXPECT_THAT(whole[0].ToString(),
              AllOf(HasSubstr("read of 16 bytes at byte 1008 of 1024 of \"in\": byte 8 of them has "
                              "never been written"),
                    HasSubstr("cp.async")));
}

TEST(AsyncCopyTest, CountsItsSectorsAndBankConflicts) {
  const Done done = RunBody(absl::StrCat(kCopy, kCommit, kWait));
  for (const auto& each : done.counts.instructions) {
    if (each.global.requests == 0) continue;
    EXPECT_EQ(each.global.requests, 2);
    EXPECT_EQ(each.global.sectors, kThreads * 16 / 32);
    EXPECT_EQ(each.shared.bytes, kThreads * 16);
    EXPECT_EQ(each.shared.bank_conflicts, 0);
  }
}

TEST(AsyncCopyTest, OtherFormsAreErrors) {
  using enum absl::StatusCode;
  const auto error = [](absl::string_view body) {
    return PtxDevice::Create(KernelOf(body)).status();
  };
  EXPECT_THAT(error("cp.async.cg.shared.global [%s], [%g], 8;"),
              StatusIs(kInvalidArgument, HasSubstr("operands that cp.async.cg")));
  EXPECT_THAT(error("cp.async.ca.shared.global [%s], [%g], 12;"),
              StatusIs(kInvalidArgument, HasSubstr("operands that cp.async.ca")));
  EXPECT_THAT(error("cp.async.bulk.commit_group;"),
              StatusIs(kUnimplemented, HasSubstr("does not know .bulk")));
}

}  // namespace
}  // namespace brigade::emulator
