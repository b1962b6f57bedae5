// Bytes that nobody has written: they may be loaded and copied, and not used.

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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A warp runs `body` with %young, 64 bytes of which the first of each 8 is written, and %out. The
// load of the 8 bytes is the line before the body's.
struct Done {
  std::vector<Finding> findings;
  absl::Status read;
  std::vector<uint64_t> out = std::vector<uint64_t>(8);
};
constexpr int kLineOfLoad = 13;
Done RunBody(absl::string_view body) {
  auto device = PtxDevice::Create(absl::StrCat(
      kPtxHead, ".entry k(.param .u64 young, .param .u64 out)\n{\n",
      ".reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .pred %p<9>;\n.reg .b64 %young, %out;\n",
      "ld.param.u64 %young, [young];\nld.param.u64 %out, [out];\n",
      ".shared .align 8 .b8 s[256];\n", "ld.global.u64 %d1, [%young];\n", body, "\nret;\n}\n"));
  EXPECT_OK(device);
  if (!device.ok()) return {};
  const uint64_t young = (*device)->memory().Allocate(64, "young").value();
  const uint64_t out = (*device)->memory().Allocate(64, "out").value();
  for (uint64_t i = 0; i < 64; i += 8) {
    const uint8_t byte = 5;
    EXPECT_OK((*device)->memory().Write(young + i, &byte, 1));
  }
  LaunchOptions options;
  options.block.x = 1;
  auto result = (*device)->Run("k", {young, out}, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  Done done;
  done.findings = result->findings;
  done.read = (*device)->memory().Read(out, done.out.data(), 8);
  return done;
}

constexpr absl::string_view kStore = "st.global.u64 [%out], %d2;";

void ExpectGood(absl::string_view body, uint64_t result) {
  SCOPED_TRACE(body);
  const Done done = RunBody(absl::StrCat(body, "\n", kStore));
  EXPECT_THAT(done.findings, IsEmpty());
  EXPECT_OK(done.read);
  EXPECT_EQ(done.out[0], result);
}

void ExpectUse(absl::string_view body) {
  SCOPED_TRACE(body);
  const std::vector<Finding> findings = RunBody(body).findings;
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kUninitialized);
  EXPECT_EQ(findings[0].line, kLineOfLoad);
  EXPECT_THAT(findings[0].what, AllOf(HasSubstr("read of 8 bytes at byte 0 of 64 of \"young\""),
                                      HasSubstr("byte 1 of them has never been written; line")));
}

TEST(UnwrittenTest, WhatIsLeftOutIsNoMistake) {
  ExpectGood("and.b64 %d2, %d1, 255;", 5);
  ExpectGood("shl.b64 %d2, %d1, 56;\nshr.u64 %d2, %d2, 56;", 5);
  ExpectGood("cvt.u64.u8 %d2, %d1;", 5);
  ExpectGood("bfi.b64 %d2, 77, %d1, 8, 56;", 5 + 77 * 256);
  ExpectGood("mov.b64 {%r1, %r2}, %d1;\nprmt.b32 %r1, %r1, %r2, 0x0000;\ncvt.u64.u32 %d2, %r1;",
             0x05050505);
  ExpectGood(
      "add.u64 %d3, %d1, 1;\nmov.u64 %d4, 9;\nsetp.eq.u32 %p1, 1, 1;\n"
      "selp.b64 %d2, %d4, %d3, %p1;",
      9);
  ExpectGood(
      "setp.eq.u64 %p1, %d1, 5;\nsetp.eq.u32 %p2, 1, 2;\nand.pred %p3, %p1, %p2;\n"
      "mov.u64 %d2, 1;\n@%p3 mov.u64 %d2, 2;",
      1);
  // A register that is written again.
  ExpectGood("mov.u64 %d1, 3;\nmov.u64 %d2, %d1;", 3);
  ExpectGood("ld.param.u64 %d1, [young];\nsub.u64 %d2, %d1, %young;", 0);
}

TEST(UnwrittenTest, PaddingMayBeCopied) {
  const Done done = RunBody("mov.u64 %d2, %d1;\nst.global.u64 [%out], %d2;");
  EXPECT_THAT(done.findings, IsEmpty());
  EXPECT_OK(done.read);
  EXPECT_EQ(done.out[0] & 255, 5u);
  ExpectGood("st.shared.u64 [s], %d1;\nld.shared.u64 %d3, [s];\nand.b64 %d2, %d3, 255;", 5);
}

TEST(UnwrittenTest, UsesAreReportedAtTheLoad) {
  ExpectUse("setp.lt.u64 %p1, %d1, 1000;\n@%p1 st.global.u64 [%out], %d1;");
  ExpectUse(
      "setp.lt.u64 %p1, %d1, 1000;\nxor.pred %p2, %p1, %p1;\nnot.pred %p3, %p1;\n"
      "@%p3 bra E;\nmov.u64 %d2, 1;\nE:");
  ExpectUse("and.b64 %d3, %d1, 0x800;\nadd.u64 %d3, %d3, %out;\n@!%p1 ld.global.u32 %r1, [%d3];");
  ExpectUse("atom.global.exch.b64 %d3, [%out], %d1;");
  ExpectUse(
      "shfl.sync.bfly.b32 %r1|%p1, %r2, 0, 31, 1;\nmov.b64 {%r1, %r2}, %d1;\n"
      "shfl.sync.idx.b32 %r3|%p1, %r2, 0, 31, 1;\nst.global.u32 [%out], %r3;");
  ExpectUse("shr.u64 %d2, %d1, 8;\nmul.lo.u64 %d2, %d2, 1234567891;\nst.global.u32 [%out], %d2;");
  // By each bit alone.
  for (int bit = 8; bit < 64; ++bit) {
    ExpectUse(absl::StrCat("shr.u64 %d2, %d1, ", bit, ";\nand.b64 %d2, %d2, 1;\n",
                           "setp.ne.u64 %p1, %d2, 0;\n@%p1 bra E;\nE:"));
  }
  // Also by way of shared memory.
  ExpectUse(
      "st.shared.u64 [s], %d1;\nld.shared.u64 %d3, [s];\nsetp.lt.u64 %p1, %d3, 1000;\n"
      "@%p1 bra E;\nE:");
}

TEST(UnwrittenTest, TheHostReadsPaddingOfAStructAndNothingElse) {
  auto memory = Memory::Create(1 << 20).value();
  const uint64_t address = memory->Allocate(200, "results").value();
  std::vector<uint8_t> host(200);
  EXPECT_OK(memory->Write(address, host.data(), 4));
  EXPECT_OK(memory->Read(address, host.data(), 8));
  EXPECT_EQ(memory->Read(address, host.data(), 16).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(memory->Write(address + 8, host.data(), 192));
  EXPECT_OK(memory->Read(address, host.data(), 64));
  EXPECT_EQ(memory->Read(address, host.data(), 72).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace brigade::emulator
