// Operations that many threads do at one place: whatever their order, the result is that of some
// order, and what they return are the steps to it.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
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
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

constexpr int kBlocks = 3, kThreads = 70;
constexpr size_t kAll = kBlocks * kThreads;

// Thread i does `op` on the one word with its own index (and `more`), and stores what it returns.
struct Done {
  uint64_t word = 0;
  std::vector<uint64_t> returned;
  std::vector<Finding> findings;
};
Done Do(const std::string& op, int bytes, uint64_t initial, const std::string& more = "",
        int host_threads = 1, uint64_t seed = 0) {
  const std::string b = absl::StrCat(".b", 8 * bytes);
  const std::string source = bytes == 8 ? "%d4" : "%r3", result = bytes == 8 ? "%d5" : "%r4";
  auto device = PtxDevice::Create(absl::StrCat(
      kPtxHead,
      ".entry k(.param .u64 word, .param .u64 out)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n",
      "ld.param.u64 %d1, [word];\nld.param.u64 %d2, [out];\nmov.u32 %r0, %tid.x;\n",
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %r0;\n",
      "cvt.u64.u32 %d4, %r3;\nmul.wide.u32 %d3, %r3, ", bytes, ";\nadd.s64 %d2, %d2, %d3;\n",
      "atom.global.", op, " ", result, ", [%d1], ", source, more, ";\nst.global", b, " [%d2], ",
      result, ";\nret;\n}\n"));
  EXPECT_OK(device);
  if (!device.ok()) return {};
  const uint64_t word = (*device)->Upload(std::vector<uint64_t>{initial}, "word");
  const uint64_t out =
      (*device)->Upload(std::vector<uint8_t>(kAll * static_cast<size_t>(bytes)), "out");
  LaunchOptions options;
  options.grid.x = kBlocks;
  options.block.x = kThreads;
  options.threads = host_threads;
  options.seed = seed;
  auto result_of = (*device)->Run("k", {word, out}, options);
  EXPECT_OK(result_of);
  Done done;
  if (!result_of.ok()) return done;
  done.findings = result_of->findings;
  done.word = (*device)->Download<uint64_t>(word, 1)[0];
  const auto raw = (*device)->Download<uint8_t>(out, kAll * static_cast<size_t>(bytes));
  for (size_t i = 0; i < kAll; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, raw.data() + i * static_cast<size_t>(bytes), static_cast<size_t>(bytes));
    done.returned.push_back(value);
  }
  return done;
}

// From the value that was there first, along what each thread found and made of it, every thread
// is met once.
void ExpectSomeOrder(const Done& done, uint64_t initial,
                     const std::function<uint64_t(uint64_t old, uint64_t i)>& next) {
  EXPECT_THAT(done.findings, IsEmpty());
  std::vector<bool> met(kAll);
  uint64_t value = initial;
  for (size_t step = 0; step < kAll; ++step) {
    size_t i = 0;
    // Threads that change nothing come before one that changes the value.
    size_t found = kAll;
    for (; i < kAll; ++i) {
      if (met[i] || done.returned[i] != value) continue;
      found = i;
      if (next(value, i) == value) break;
    }
    ASSERT_LT(found, kAll) << "after " << step << " steps nobody found " << value;
    met[found] = true;
    value = next(value, found);
  }
  EXPECT_EQ(done.word, value);
}

TEST(AtomicsTest, AreThoseOfSomeOrder) {
  for (const int host_threads : {1, 3}) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const auto with = [&](const char* op, int bytes, uint64_t initial) {
        SCOPED_TRACE(op);
        return Do(op, bytes, initial, "", host_threads, seed);
      };
      ExpectSomeOrder(with("add.u32", 4, 5), 5,
                      [](uint64_t old, uint64_t i) { return (old + i) & 0xffffffff; });
      ExpectSomeOrder(with("add.u64", 8, ~uint64_t{0} - 3), ~uint64_t{0} - 3,
                      [](uint64_t old, uint64_t i) { return old + i; });
      ExpectSomeOrder(with("max.u32", 4, 3), 3,
                      [](uint64_t old, uint64_t i) { return std::max(old, i); });
      ExpectSomeOrder(with("min.u64", 8, 100), 100,
                      [](uint64_t old, uint64_t i) { return std::min(old, i); });
      ExpectSomeOrder(with("or.b32", 4, 0), 0, [](uint64_t old, uint64_t i) { return old | i; });
      ExpectSomeOrder(with("and.b64", 8, 0xff), 0xff,
                      [](uint64_t old, uint64_t i) { return old & i; });
      ExpectSomeOrder(with("exch.b32", 4, 1000), 1000, [](uint64_t, uint64_t i) { return i; });
    }
  }
}

TEST(AtomicsTest, CompareAndSwap) {
  // One thread finds its own index there and writes 7000.
  const Done one = Do("cas.b32", 4, 42, ", 7000");
  EXPECT_EQ(one.word, 7000u);
  EXPECT_EQ(std::count(one.returned.begin(), one.returned.end(), 42u) +
                std::count(one.returned.begin(), one.returned.end(), 7000u),
            static_cast<std::ptrdiff_t>(kAll));
  EXPECT_EQ(one.returned[42], 42u);
}

TEST(AtomicsTest, SignedAndFloatingPointNumbers) {
  const auto run = [](absl::string_view body) {
    auto device = PtxDevice::Create(
        absl::StrCat(kPtxHead, ".entry k(.param .u64 p)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n",
                     "ld.param.u64 %d1, [p];\nmov.u32 %r1, %laneid;\n", body, "\nret;\n}\n"));
    EXPECT_OK(device);
    const uint64_t p = (*device)->Upload(std::vector<uint32_t>{0, 0}, "p");
    LaunchOptions options;
    options.block.x = 32;
    const auto result = (*device)->Run("k", {p}, options);
    EXPECT_OK(result);
    EXPECT_THAT(result->findings, IsEmpty());
    return (*device)->Download<uint32_t>(p, 2);
  };
  // Of -16 to 15.
  EXPECT_THAT(run("add.s32 %r1, %r1, -16;\nred.global.min.s32 [%d1], %r1;\n"
                  "red.global.max.s32 [%d1+4], %r1;"),
              ElementsAre(static_cast<uint32_t>(-16), 15));
  EXPECT_THAT(run("cvt.rn.f32.u32 %r1, %r1;\nred.global.add.f32 [%d1], %r1;"),
              ElementsAre(std::bit_cast<uint32_t>(496.0f), 0));
  EXPECT_THAT(run("cvt.rn.f64.u32 %d2, %r1;\nred.relaxed.gpu.global.add.f64 [%d1], %d2;"),
              ElementsAre(0, std::bit_cast<uint64_t>(496.0) >> 32));
}

// A block of 70 threads; p has a word of each.
std::vector<uint32_t> RunBlock(absl::string_view body, std::vector<Finding>* findings = nullptr) {
  auto device = PtxDevice::Create(absl::StrCat(
      kPtxHead,
      ".entry k(.param .u64 p)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n.reg .pred %p<4>;\n",
      ".shared .align 4 .b8 s[64];\nld.param.u64 %d1, [p];\nmov.u32 %r0, %tid.x;\n",
      "mul.wide.u32 %d2, %r0, 4;\nadd.s64 %d1, %d1, %d2;\n", body,
      "\nst.global.u32 [%d1], %r3;\nret;\n}\n"));
  EXPECT_OK(device);
  const uint64_t p = (*device)->Upload(std::vector<uint32_t>(kThreads), "p");
  LaunchOptions options;
  options.block.x = kThreads;
  const auto result = (*device)->Run("k", {p}, options);
  EXPECT_OK(result);
  if (findings != nullptr) {
    *findings = result->findings;
  } else {
    EXPECT_THAT(result->findings, IsEmpty());
  }
  return (*device)->Download<uint32_t>(p, kThreads);
}

constexpr absl::string_view kCount =
    "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r1, 0;\n@%p1 st.shared.u32 [s], %r1;\nbar.sync 0;\n"
    "mov.u32 %r2, 1;\nred.shared.add.u32 [s], %r2;\n";

TEST(AtomicsTest, CountUpAndDownToABound) {
  constexpr absl::string_view kStart =
      "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r1, 2;\n@%p1 st.shared.u32 [s], %r1;\nbar.sync 0;\n";
  // From 2 to 6, then 0; and from 2 to 0, then 6.
  std::vector<uint32_t> up, down;
  for (uint32_t i = 0; i < kThreads; ++i) {
    up.push_back((i + 2) % 7);
    down.push_back((9 - i % 7) % 7);
  }
  EXPECT_THAT(RunBlock(absl::StrCat(kStart, "atom.shared.inc.u32 %r3, [s], 6;")),
              UnorderedElementsAreArray(up));
  EXPECT_THAT(RunBlock(absl::StrCat(kStart, "atom.shared.dec.u32 %r3, [s], 6;")),
              UnorderedElementsAreArray(down));
}

TEST(AtomicsTest, OfSharedMemoryAreOrderedByBarriers) {
  EXPECT_THAT(RunBlock(absl::StrCat(kCount, "bar.sync 0;\nld.shared.u32 %r3, [s];")),
              Each(uint32_t{kThreads}));
  // Without the barrier a plain read meets them.
  std::vector<Finding> findings;
  RunBlock(absl::StrCat(kCount, "ld.shared.u32 %r3, [s];"), &findings);
  ASSERT_THAT(findings, Not(IsEmpty()));
  EXPECT_THAT(findings, Each(Field(&Finding::kind, FindingKind::kRaceInBlock)));
}

TEST(AtomicsTest, ABarrierMayVote) {
  const auto vote = [](const char* op, int of) {
    return RunBlock(absl::StrCat("setp.lt.u32 %p1, %r0, ", of, ";\nbar.red.", op,
                                 ".pred %p2, 0, %p1;\nselp.b32 %r3, 1, 0, %p2;"));
  };
  EXPECT_THAT(vote("or", 0), Each(0u));
  EXPECT_THAT(vote("or", 1), Each(1u));
  EXPECT_THAT(vote("and", kThreads - 1), Each(0u));
  EXPECT_THAT(vote("and", kThreads), Each(1u));
  // Each barrier counts anew.
  EXPECT_THAT(RunBlock("setp.lt.u32 %p1, %r0, 5;\nbar.red.or.pred %p2, 0, %p1;\n"
                       "setp.lt.u32 %p1, %r0, 0;\nbar.red.or.pred %p2, 0, %p1;\n"
                       "selp.b32 %r3, 1, 0, %p2;"),
              Each(0u));
}

TEST(AtomicsTest, FencesAndSleepChangeNothing) {
  EXPECT_THAT(RunBlock("membar.cta;\nmembar.gl;\nfence.acq_rel.gpu;\nnanosleep.u32 100;\n"
                       "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n"
                       "prefetch.global.L2 [%d1];\nmov.u32 %r3, 9;"),
              Each(9u));
}

TEST(AtomicsTest, MasksAndReversedBits) {
  EXPECT_THAT(RunBlock("mov.u32 %r3, 12;\nbrev.b32 %r3, %r3;"), Each(0x30000000u));
  EXPECT_THAT(RunBlock("mov.u32 %r1, 4;\nmov.u32 %r2, 3;\nbmsk.clamp.b32 %r3, %r1, %r2;"),
              Each(0x70u));
  EXPECT_THAT(RunBlock("mov.u32 %r1, 30;\nmov.u32 %r2, 40;\nbmsk.clamp.b32 %r3, %r1, %r2;"),
              Each(0xc0000000u));
  EXPECT_THAT(RunBlock("mov.u32 %r1, 33;\nmov.u32 %r2, 2;\nbmsk.wrap.b32 %r3, %r1, %r2;"),
              Each(0x6u));
}

}  // namespace
}  // namespace brigade::emulator
