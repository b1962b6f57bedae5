// mma and ldmatrix beside the tables of the PTX ISA.

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kLaneCount = 32;

// A kernel of one warp whose lane i has word i, i + 32, ... of the first array in %s0, %s1, ...,
// runs `body`, and stores %d0, %d1, ... to the second array in the same way.
std::string KernelOf(int sources, int results, absl::string_view body) {
  std::string text(kPtxHead);
  absl::StrAppend(&text, ".visible .entry op(.param .u64 in, .param .u64 out)\n{\n",
                  ".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<9>, %s<16>, %d<9>;\n",
                  ".reg .b64 %a<9>;\n.shared .align 16 .b8 tile[1024];\n",
                  "mov.u32 %r0, %tid.x;\nmul.wide.u32 %a2, %r0, 4;\n",
                  "ld.param.u64 %a0, [in];\nadd.s64 %a0, %a0, %a2;\n",
                  "ld.param.u64 %a1, [out];\nadd.s64 %a1, %a1, %a2;\n");
  for (int i = 0; i < sources; ++i) {
    absl::StrAppend(&text, "ld.global.b32 %s", i, ", [%a0+", 4 * kLaneCount * i, "];\n");
  }
  absl::StrAppend(&text, body, "\n");
  for (int i = 0; i < results; ++i) {
    absl::StrAppend(&text, "st.global.b32 [%a1+", 4 * kLaneCount * i, "], %d", i, ";\n");
  }
  return text + "ret;\n}\n";
}

struct Done {
  std::vector<Finding> findings;
  std::vector<uint32_t> out;
  LaunchCounts counts;
};

Done RunWarp(int results, absl::string_view body, const std::vector<uint32_t>& in,
             int threads = kLaneCount) {
  const std::string text = KernelOf(static_cast<int>(in.size()) / kLaneCount, results, body);
  auto device = PtxDevice::Create(text);
  EXPECT_OK(device) << text;
  if (!device.ok()) return {};
  const uint64_t from = (*device)->Upload(in, "in");
  const auto size = static_cast<size_t>(results * kLaneCount);
  const uint64_t to = (*device)->Upload(std::vector<uint32_t>(size), "out");
  LaunchOptions options;
  options.block.x = threads;
  auto result = (*device)->Run("op", {from, to}, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  return {result->findings, (*device)->Download<uint32_t>(to, size), result->counts};
}

std::string Registers(char name, int first, int count) {
  std::vector<std::string> names;
  for (int i = first; i < first + count; ++i)
    names.push_back(absl::StrCat("%", std::string(1, name), i));
  return absl::StrCat("{", absl::StrJoin(names, ", "), "}");
}

// Where element `i` of a lane's fragment is, as "Matrix Fragments" of the PTX ISA writes it.
struct Position {
  int row, column;
};
using Layout = std::function<Position(int lane, int i)>;

struct Shape {
  const char* name;
  const char* type;
  int depth;
  int elements_of_a, elements_of_b;
  Layout a, b;
  // In a register, and their bits.
  int per_register;
  // A number of the type that is near a random one, and its value.
  std::function<uint32_t(float)> round;
  std::function<double(uint32_t)> value;
};

Position OfC(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

std::vector<Shape> Shapes() {
  const Layout a16 = [](int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    const bool is_upper = (0 <= i && i < 2) || (4 <= i && i < 6);
    return Position{is_upper ? group : group + 8, thread * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
  };
  const Layout b16 = [](int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return Position{thread * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
  };
  const Layout a8 = [](int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return Position{i < 2 ? group : group + 8, thread * 2 + (i & 1)};
  };
  const Layout b8 = [](int lane, int i) { return Position{lane % 4 * 2 + i, lane >> 2}; };
  // Of tf32.
  const Layout a8_wide = [](int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return Position{i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4};
  };
  const Layout b8_wide = [](int lane, int i) {
    return Position{i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2};
  };
  const Layout a4_wide = [](int lane, int i) {
    return Position{i == 0 ? lane >> 2 : (lane >> 2) + 8, lane % 4};
  };
  const Layout b4_wide = [](int lane, int) { return Position{lane % 4, lane >> 2}; };
  const auto to_half = [](float x) { return uint32_t{FloatToHalf(x, Rounding::kNearest)}; };
  const auto of_half = [](uint32_t x) { return double{HalfToFloat(static_cast<uint16_t>(x))}; };
  const auto to_bf16 = [](float x) { return uint32_t{FloatToBFloat16(x, Rounding::kNearest)}; };
  const auto of_bf16 = [](uint32_t x) { return double{BFloat16ToFloat(static_cast<uint16_t>(x))}; };
  const auto to_tf32 = [](float x) { return std::bit_cast<uint32_t>(x); };
  const auto of_tf32 = [](uint32_t x) { return double{std::bit_cast<float>(x >> 13 << 13)}; };
  return {
      {"m16n8k16", "f16", 16, 8, 4, a16, b16, 2, to_half, of_half},
      {"m16n8k8", "f16", 8, 4, 2, a8, b8, 2, to_half, of_half},
      {"m16n8k16", "bf16", 16, 8, 4, a16, b16, 2, to_bf16, of_bf16},
      {"m16n8k8", "bf16", 8, 4, 2, a8, b8, 2, to_bf16, of_bf16},
      {"m16n8k8", "tf32", 8, 4, 2, a8_wide, b8_wide, 1, to_tf32, of_tf32},
      {"m16n8k4", "tf32", 4, 2, 1, a4_wide, b4_wide, 1, to_tf32, of_tf32},
  };
}

std::string Mma(const Shape& shape) {
  const int a = shape.elements_of_a / shape.per_register;
  const int b = shape.elements_of_b / shape.per_register;
  return absl::StrCat("mma.sync.aligned.", shape.name, ".row.col.f32.", shape.type, ".", shape.type,
                      ".f32 ", Registers('d', 0, 4), ", ", Registers('s', 0, a), ", ",
                      Registers('s', a, b), ", ", Registers('s', a + b, 4), ";");
}

TEST(MmaTest, FragmentsAreWhereThePtxIsaSays) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(absl::StrCat(shape.name, " ", shape.type));
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const int of_a = shape.elements_of_a / shape.per_register;
    const int of_b = shape.elements_of_b / shape.per_register;
    std::vector<uint32_t> in(static_cast<size_t>((of_a + of_b + 4) * kLaneCount));
    std::vector<std::vector<double>> a(16, std::vector<double>(16)), b(16, std::vector<double>(8)),
        c(16, std::vector<double>(8));
    const auto fill = [&](int first, int elements, const Layout& layout, auto& matrix) {
      const int bits = 32 / shape.per_register;
      for (int lane = 0; lane < kLaneCount; ++lane) {
        for (int i = 0; i < elements; ++i) {
          const uint32_t number = shape.round(normal(random));
          const auto [row, column] = layout(lane, i);
          matrix[static_cast<size_t>(row)][static_cast<size_t>(column)] = shape.value(number);
          const int word = first + i / shape.per_register;
          in[static_cast<size_t>(word * kLaneCount + lane)] |= number
                                                               << (i % shape.per_register * bits);
        }
      }
    };
    fill(0, shape.elements_of_a, shape.a, a);
    fill(of_a, shape.elements_of_b, shape.b, b);
    for (int lane = 0; lane < kLaneCount; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const float number = normal(random);
        const auto [row, column] = OfC(lane, i);
        c[static_cast<size_t>(row)][static_cast<size_t>(column)] = number;
        in[static_cast<size_t>((of_a + of_b + i) * kLaneCount + lane)] =
            std::bit_cast<uint32_t>(number);
      }
    }
    const Done done = RunWarp(4, Mma(shape), in);
    EXPECT_THAT(done.findings, IsEmpty());
    ASSERT_THAT(done.out, SizeIs(4 * kLaneCount));
    for (int lane = 0; lane < kLaneCount; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = OfC(lane, i);
        const auto r = static_cast<size_t>(row), n = static_cast<size_t>(column);
        double sum = c[r][n];
        for (size_t k = 0; k < static_cast<size_t>(shape.depth); ++k) sum += a[r][k] * b[k][n];
        ASSERT_EQ(std::bit_cast<float>(done.out[static_cast<size_t>(i * kLaneCount + lane)]),
                  static_cast<float>(sum))
            << "row " << row << " column " << column;
      }
    }
  }
}

TEST(MmaTest, ProductsAreExactAndRoundedOnce) {
  // 1 + 16 * 2^-26 rounds to 1 + 2^-22; each product alone would be lost. Subnormal numbers count.
  const Shape shape = Shapes()[0];
  std::vector<uint32_t> in(10 * kLaneCount, 0x00010001);  // 2^-24 each, of fp16
  const uint32_t two_to_minus_2 = shape.round(0.25f);
  for (size_t i = 4 * kLaneCount; i < 6 * kLaneCount; ++i) in[i] = two_to_minus_2 * 0x10001;
  for (size_t i = 6 * kLaneCount; i < 10 * kLaneCount; ++i) in[i] = 0x3f800000;
  const Done done = RunWarp(4, Mma(shape), in);
  for (const uint32_t bits : done.out) ASSERT_EQ(bits, 0x3f800002u);
  // A NaN anywhere is the one NaN.
  in[0] = 0x7e007e00;
  EXPECT_EQ(RunWarp(4, Mma(shape), in).out[0], 0x7fffffffu);
}

TEST(MmaTest, NeedsAllLanesOfTheWarp) {
  const Shape shape = Shapes()[0];
  const std::vector<uint32_t> in(10 * kLaneCount, 0);
  const auto finding = [&](absl::string_view before, absl::string_view after, int threads) {
    const std::vector<Finding> findings =
        RunWarp(4, absl::StrCat(before, Mma(shape), after), in, threads).findings;
    EXPECT_THAT(findings, SizeIs(1));
    if (findings.empty()) return std::string();
    EXPECT_EQ(findings[0].kind, FindingKind::kBarrier);
    return findings[0].ToString();
  };
  // Those for which the guard is false wait at the block's barrier, or have left.
  EXPECT_THAT(finding("setp.lt.u32 %p1, %r0, 16;\n@%p1 ", "\nbar.sync 0;", 32),
              AllOf(HasSubstr("the mask is ffffffff, here are ffff"),
                    HasSubstr("mma.sync.aligned.m16n8k16")));
  EXPECT_THAT(finding("setp.ge.u32 %p1, %r0, 16;\n@%p1 ret;\n", "", 32),
              AllOf(HasSubstr("needs all lanes of the warp; here are ffff"),
                    HasSubstr("mma.sync.aligned.m16n8k16")));
  EXPECT_THAT(finding("", "", 24), HasSubstr("needs all lanes of the warp; here are ffffff"));
  // Lanes that were elsewhere may come later.
  EXPECT_THAT(RunWarp(4,
                      absl::StrCat("setp.lt.u32 %p1, %r0, 7;\n@%p1 bra L;\nmov.u32 %r1, 1;\nL:\n",
                                   Mma(shape)),
                      in)
                  .findings,
              IsEmpty());
}

TEST(MmaTest, OtherShapesAndOperandsAreErrors) {
  const auto error = [](absl::string_view body) {
    return PtxDevice::Create(KernelOf(10, 4, body)).status();
  };
  using enum absl::StatusCode;
  EXPECT_THAT(error("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3}, "
                    "{%s0,%s1,%s2,%s3}, {%s4,%s5}, {%s6,%s7,%s8,%s9};"),
              StatusIs(kUnimplemented, HasSubstr("the emulator does not know mma")));
  EXPECT_THAT(error("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d0,%d1}, "
                    "{%s0,%s1,%s2,%s3}, {%s4,%s5}, {%s6,%s7};"),
              StatusIs(kUnimplemented, HasSubstr("the emulator does not know")));
  EXPECT_THAT(error("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3}, "
                    "{%s0,%s1,%s2,%s3}, {%s4,%s5}, {%s6,%s7,%s8,%s9};"),
              StatusIs(kInvalidArgument, HasSubstr("operands that mma")));
}

// Words of shared memory hold 16-bit elements 0, 1, 2, ...; %r1 is `address` of the lane.
std::string LoadMatrices(const std::string& op, int matrices, absl::string_view address) {
  return absl::StrCat("mov.u32 %r2, tile;\nmad.lo.u32 %r3, %r0, 32, %r2;\n",
                      "st.shared.v4.b32 [%r3], {%s0, %s1, %s2, %s3};\n",
                      "st.shared.v4.b32 [%r3+16], {%s4, %s5, %s6, %s7};\nbar.sync 0;\n", address,
                      "\n", op, " ", Registers('d', 0, matrices), ", [%r1];");
}
std::vector<uint32_t> Elements() {
  std::vector<uint32_t> in(8 * kLaneCount);
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t first = lane * 16 + 2 * i;
      in[i * kLaneCount + lane] = first | (first + 1) << 16;
    }
  }
  return in;
}

TEST(LdmatrixTest, LanesGetWhatThePtxIsaSays) {
  // Lane l points to row (5 l + 3) % 32 of 64: rows are not in order, nor side by side.
  constexpr absl::string_view kAddress =
      "mad.lo.u32 %r1, %r0, 5, 3;\nand.b32 %r1, %r1, 31;\nmad.lo.u32 %r1, %r1, 32, %r2;";
  const auto row_of = [](int lane) { return (5 * lane + 3) % 32 * 2; };
  for (const int matrices : {1, 2, 4}) {
    for (const bool is_transposed : {false, true}) {
      const std::string op = absl::StrCat("ldmatrix.sync.aligned.m8n8.x", matrices,
                                          is_transposed ? ".trans" : "", ".shared.b16");
      SCOPED_TRACE(op);
      const Done done = RunWarp(matrices, LoadMatrices(op, matrices, kAddress), Elements());
      EXPECT_THAT(done.findings, IsEmpty());
      for (int m = 0; m < matrices; ++m) {
        for (int lane = 0; lane < kLaneCount; ++lane) {
          const auto element = [&](int row, int column) {
            if (is_transposed) std::swap(row, column);
            return static_cast<uint32_t>(row_of(8 * m + row) * 8 + column);
          };
          const uint32_t first = element(lane / 4, lane % 4 * 2);
          const uint32_t second = element(lane / 4, lane % 4 * 2 + 1);
          ASSERT_EQ(done.out[static_cast<size_t>(m * kLaneCount + lane)], first | second << 16)
              << "matrix " << m << " lane " << lane;
        }
      }
    }
  }
}

TEST(LdmatrixTest, CountsBankConflicts) {
  const auto conflicts = [](int stride) {
    const Done done = RunWarp(
        4,
        LoadMatrices("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 4,
                     absl::StrCat("and.b32 %r1, %r0, 7;\nmad.lo.u32 %r1, %r1, ", stride, ", %r2;")),
        Elements());
    EXPECT_THAT(done.findings, IsEmpty());
    int64_t sum = 0;
    for (const auto& each : done.counts.instructions) sum += each.shared.bank_conflicts;
    return sum;
  };
  // What the stores cost is the same; rows of 16 and of 48 bytes are free, of 32 by twos, and rows
  // of 128 bytes are all in the same banks.
  EXPECT_EQ(conflicts(48), conflicts(16));
  EXPECT_EQ(conflicts(32) - conflicts(16), 4 * 1);
  EXPECT_EQ(conflicts(128) - conflicts(16), 4 * 7);
}

TEST(LdmatrixTest, IsCheckedLikeALoad) {
  const auto finding = [](const std::string& body) {
    const std::vector<Finding> findings = RunWarp(4, body, Elements()).findings;
    EXPECT_THAT(findings, SizeIs(1));
    return findings.empty() ? Finding{} : findings[0];
  };
  const std::string x4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
  Finding found = finding(LoadMatrices(x4, 4, "mad.lo.u32 %r1, %r0, 24, %r2;"));
  EXPECT_EQ(found.kind, FindingKind::kMisaligned);
  EXPECT_THAT(found.what, HasSubstr("read of 16 bytes at byte 24 of 1024 of shared \"tile\""));
  found = finding(LoadMatrices(x4, 4, "mad.lo.u32 %r1, %r0, 48, %r2;"));
  EXPECT_EQ(found.kind, FindingKind::kOutOfBounds);
  EXPECT_THAT(found.ToString(), HasSubstr("ldmatrix"));
  // Of x1, only the first 8 lanes have addresses.
  const Done done = RunWarp(
      1,
      LoadMatrices("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, "mad.lo.u32 %r1, %r0, 48, %r2;"),
      Elements());
  EXPECT_THAT(done.findings, IsEmpty());
  // Lanes leave.
  found = finding(LoadMatrices(x4, 4, "mov.u32 %r1, %r2;\nsetp.eq.u32 %p1, %r0, 3;\n@%p1 ret;"));
  EXPECT_EQ(found.kind, FindingKind::kBarrier);
  EXPECT_THAT(found.ToString(), HasSubstr("ldmatrix"));
}

TEST(LdmatrixTest, AnElementIsReadByTheLaneThatGetsIt) {
  // Each lane writes the row that it points to, and no barrier follows: others get its elements.
  const std::string without_barrier =
      "mov.u32 %r2, tile;\nmad.lo.u32 %r1, %r0, 16, %r2;\n"
      "st.shared.v4.b32 [%r1], {%s0, %s1, %s2, %s3};\n";
  const std::string load =
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d0, %d1, %d2, %d3}, [%r1];\n";
  std::vector<Finding> findings = RunWarp(4, without_barrier + load, Elements()).findings;
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kRaceInBlock);
  EXPECT_THAT(findings[0].ToString(),
              AllOf(HasSubstr("no barrier is between"), HasSubstr("ldmatrix")));
  const std::string barrier = "bar.warp.sync 0xffffffff;\n";
  EXPECT_THAT(RunWarp(4, without_barrier + barrier + load, Elements()).findings, IsEmpty());
  // And the other way round.
  findings =
      RunWarp(4, without_barrier + barrier + load + "st.shared.v4.b32 [%r1], {%s0, %s1, %s2, %s3};",
              Elements())
          .findings;
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kRaceInBlock);
}

TEST(LdmatrixTest, UnwrittenBytesGoWhereTheElementsGo) {
  // Row 1 of the matrix is not written: lanes 4 to 7 have it, or every lane in its upper half.
  const auto findings = [](absl::string_view suffix, absl::string_view use) {
    return RunWarp(1,
                   absl::StrCat("mov.u32 %r2, tile;\nmad.lo.u32 %r1, %r0, 16, %r2;\n",
                                "setp.ne.u32 %p1, %r0, 1;\n",
                                "@%p1 st.shared.v4.b32 [%r1], {%s0, %s1, %s2, %s3};\n",
                                "bar.sync 0;\nldmatrix.sync.aligned.m8n8.x1", suffix,
                                ".shared.b16 {%d0}, [%r1];\n", use, "\nmov.u32 %d0, 0;"),
                   Elements())
        .findings;
  };
  constexpr absl::string_view kOthers =
      "shr.u32 %r4, %r0, 2;\nsetp.ne.u32 %p2, %r4, 1;\n"
      "@%p2 setp.lt.u32 %p3, %d0, 0x80000000;\n@!%p2 setp.eq.u32 %p3, 1, 1;\n@%p3 mov.u32 %r5, 1;";
  constexpr absl::string_view kAll = "setp.lt.u32 %p3, %d0, 0x80000000;\n@%p3 mov.u32 %r5, 1;";
  constexpr absl::string_view kLower =
      "and.b32 %r4, %d0, 0xffff;\nsetp.lt.u32 %p3, %r4, 0x8000;\nsetp.gt.u32 %p2, %r0, 3;\n"
      "@%p3 mov.u32 %r5, 1;";
  EXPECT_THAT(findings("", kOthers), IsEmpty());
  EXPECT_THAT(findings("", kAll), SizeIs(1));
  EXPECT_THAT(findings(".trans", kAll), SizeIs(1));
  // In the transposed matrix lanes have rows 2 j and 2 j + 1: the lower half of the first is row 0.
  EXPECT_THAT(findings(".trans", kLower), IsEmpty());
}

}  // namespace
}  // namespace brigade::emulator
