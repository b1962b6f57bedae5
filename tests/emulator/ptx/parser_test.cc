#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Kernel1(absl::string_view body) {
  return absl::StrCat(kPtxHead, ".entry k(.param .u64 p)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n",
                      ".reg .pred %p<4>;\n", body, "\n}\n");
}

TEST(ParserTest, ReadsParametersMemoryAndLines) {
  const auto module = Parse(
      absl::StrCat(
          kPtxHead, ".file 1 \"a/b.cu\"\n", ".global .align 4 .b8 table[8] = {1, 2, 3, 4};\n",
          ".extern .shared .align 16 .b8 dynamic[];\n",
          ".visible .entry first(\n.param .u32 a,\n.param .align 8 .b8 b[20],\n",
          ".param .u64 c\n)\n.maxntid 256, 1, 1\n.minnctapersm 4\n{\n",
          ".reg .b32 %r<9>;\n.shared .align 8 .b8 fixed[100];\n",
          ".loc 1 77 3, function_name $F, inlined_at 1 99 5\nmov.u32 %r8, %ctaid.x;\nret;\n}\n",
          ".entry second()\n{\nret;\n}\n"),
      "file.ptx");
  ASSERT_OK(module);
  EXPECT_EQ((*module)->files.at(1), "a/b.cu");
  ASSERT_THAT((*module)->variables, SizeIs(1));
  EXPECT_THAT((*module)->variables[0].initial, ElementsAre(1, 2, 3, 4));
  ASSERT_THAT((*module)->kernels, SizeIs(2));
  const Kernel& first = (*module)->kernels[0];
  EXPECT_EQ((*module)->Find("first"), &first);
  EXPECT_EQ((*module)->Find("third"), nullptr);
  ASSERT_THAT(first.parameters, SizeIs(3));
  EXPECT_EQ(first.parameters[1].offset, 8);
  EXPECT_EQ(first.parameters[2].offset, 32);
  EXPECT_EQ(first.parameter_bytes, 40);
  ASSERT_THAT(first.shared, SizeIs(1));
  EXPECT_EQ(first.shared[0].bytes, 100);
  EXPECT_EQ(first.dynamic_shared.offset, 256);
  EXPECT_THAT((*module)->kernels[1].shared, IsEmpty());
  EXPECT_EQ(first.most_threads, 256);
  ASSERT_THAT(first.code, SizeIs(3));  // the end of the text is a ret as well
  EXPECT_EQ(first.code[0].source.line, 77u);
  EXPECT_EQ(first.code[0].caller.line, 99u);
  EXPECT_EQ((*module)->lines[first.code[0].line - 1], "mov.u32 %r8, %ctaid.x;");
  EXPECT_THAT((*module)->kernels[1].parameters, IsEmpty());
}

TEST(ParserTest, NamesWhatItDoesNotKnow) {
  struct Case {
    const char* body;
    const char* what;
  };
  const Case cases[] = {
      {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 %r1, %r2, %r3, %r0;", "mma.sync"},
      {"tanh.approx.bf16x2 %r1, %r2;", "the emulator does not know tanh.approx.bf16x2"},
      {"div.full.f32 %r1, %r2, %r3;", "the emulator does not know .full of div.full.f32"},
      {"add.s32.wide %r1, %r2, %r3;", "the emulator does not know .wide of add.s32.wide"},
      {"atom.global.add.noftz.f16 %r1, [%d1], %r2;", "atom.global.add.noftz.f16"},
      {".callprototype foo;", "does not know '.callprototype' here"},
      {"ld.global.pred %p1, [%d1];", "ld.global.pred"},
      {"bar.sync 1;", "no barrier but 0"},
      {"tex.2d.v4.f32.f32 {%r1, %r2}, [t, {%r1, %r2}];", "does not know tex.2d.v4.f32.f32"},
      {"call.uni (%r1), f, (%r2);", "does not know call.uni"},
      {"mov.u32 %r1, %smid;", "does not know %smid"},
      {"mov.u64 %d1, %clock64;", "does not know %clock64"},
      {"ld.shared::cluster.u32 %r1, [%r2];", "does not know .shared::cluster"},
      {"add.rn.ftz.f64 %d1, %d2, %d3;", "does not know .ftz of add.rn.ftz.f64"},
      {"cvt.rn.sat.f32.f64 %r1, %d1;", "does not know .sat of cvt.rn.sat.f32.f64"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(
        Parse(Kernel1(each.body), "file.ptx").status(),
        StatusIs(absl::StatusCode::kUnimplemented,
                 AllOf(HasSubstr("file.ptx:9: "), HasSubstr(each.what), HasSubstr(each.body))));
  }
}

TEST(ParserTest, KeepsTheOtherKernelsBesideAnUnknownOne) {
  const std::string text =
      absl::StrCat(kPtxHead, ".entry first()\n{\n.reg .b32 %r<4>;\nA: { mov.u32 %r1, 5; bra A; }\n",
                   "sad.u32 %r1, %r2, %r3, %r1;\n}\n.entry second()\n{\nA: bra A;\n}\n");
  EXPECT_THAT(Parse(text, "f"), StatusIs(absl::StatusCode::kUnimplemented));
  const auto module = Parse(text, "f", UnknownKernels::kKeep);
  ASSERT_OK(module);
  EXPECT_OK((*module)->Find("second")->unknown);
  const Kernel& first = *(*module)->Find("first");
  const auto is_unknown = StatusIs(absl::StatusCode::kUnimplemented,
                                   HasSubstr("f:8: the emulator does not know sad.u32"));
  EXPECT_THAT(first.unknown, is_unknown);
  EXPECT_THAT(CheckLaunch(first, {}, {}), is_unknown);
  // What is no PTX is none.
  EXPECT_THAT(
      Parse(absl::StrCat(text, ".entry third()\n{\nmov.u32 5;\n}\n"), "f", UnknownKernels::kKeep),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ParserTest, NamesDirectivesThatItDoesNotKnow) {
  const auto with = [](absl::string_view directive) {
    return Parse(absl::StrCat(kPtxHead, ".entry k()\n", directive, "\n{\nret;\n}\n"), "f").status();
  };
  EXPECT_OK(with(".maxntid 32, 4, 2\n.minnctapersm 2\n.maxnreg 40"));
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  EXPECT_THAT(
      with(".reqnctapercluster 2"),
      StatusIs(kUnknown, HasSubstr("f:5: the emulator does not know '.reqnctapercluster'")));
  EXPECT_THAT(with(".entry other()"), StatusIs(kUnknown, HasSubstr("'.entry' here")));
  EXPECT_THAT(with(".maxntid 1, 1, 1, 1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than three axes")));
}

TEST(ParserTest, NamesWhatIsNoPtx) {
  struct Case {
    const char* body;
    const char* what;
  };
  const Case cases[] = {
      {"add.s64 %d1, %r1, %d2;", "the register %r1 has another size"},
      {"mul.wide.u32 %r1, %r2, %r3;", "the register %r1 has another size"},
      {"shl.b64 %d1, %d2, %d3;", "the register %d3 has another size"},
      {"st.global.u64 [%d1], %r1;", "the register %r1 has another size"},
      {"mov.b64 %d1, {%d2, %d3};", "the register %d2 has another size"},
      {"cvt.u64.u32 %r1, %r2;", "the register %r1 has another size"},
      {"add.s32 %r1, !%r2, %r3;", "operands that add.s32 does not have"},
      {"add.s32 %r1|%p1, %r2, %r3;", "operands that add.s32 does not have"},
      {"add.s32 %r1, %r2;", "operands that add.s32 does not have"},
      {"add.s32 %r1, %r2, %r4;", "operands that add.s32 does not have"},
      {"add.s32 %r1, %r2, %p1;", "operands that add.s32 does not have"},
      {"add.s32 5, %r2, %r1;", "operands that add.s32 does not have"},
      {"ld.global.u32 %r1, %d1;", "operands that ld.global.u32 does not have"},
      {"ld.global.v2.u32 {%r1}, [%d1];", "operands that ld.global.v2.u32 does not have"},
      {"bra nowhere;", "there is no label 'nowhere'"},
      {"@%r1 bra here;", "'%r1' is no predicate"},
      {"add.s32 %r1 %r2;", "',' is missing before '%r2'"},
      {"ld.global.u32 %r1, [%d1+x];", "not an offset: 'x'"},
      {"$A: $A: ret;", "a second label '$A'"},
      {"{ $A: ret; } bra $A;", "there is no label '$A'"},
      {"bra $A; { $A: ret; }", "there is no label '$A'"},
      {".reg .b32 %x<99999999999>;", "not a number from 0"},
      {".shared .b8 s[1000000000];", "not a number from 0"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(
        Parse(Kernel1(each.body), "file.ptx").status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("file.ptx:9: "), HasSubstr(each.what), HasSubstr(each.body))))
        << each.body;
  }
  EXPECT_THAT(Parse(absl::StrCat(kPtxHead, ".entry k()\n{\nret;\n"), "f").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'}' is missing")));
  EXPECT_THAT(Parse("/* comment", "f").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f:1: the comment")));
  EXPECT_THAT(Parse(absl::StrCat(kPtxHead, ".entry k(.param .b8 p[40000])\n{\n}\n"), "f").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameters are too large")));
}

TEST(ParserTest, KnowsTheSharedMemoryOfABlockByItsLongName) {
  EXPECT_OK(Parse(Kernel1("ld.shared::cta.u32 %r1, [%r2];"), "file.ptx"));
}

TEST(ParserTest, InnerNamesHideOuterOnes) {
  auto device = PtxDevice::Create(
      Kernel1("ld.param.u64 %d1, [p];\nmov.u32 %r1, 1;\n{\n.reg .b32 %r1;\nmov.u32 %r1, 2;\n}\n"
              "st.global.u32 [%d1], %r1;\n"));
  ASSERT_OK(device);
  const uint64_t out = (*device)->Upload(std::vector<uint32_t>{0}, "out");
  ASSERT_OK((*device)->Run("k", {out}, {}));
  EXPECT_THAT((*device)->Download<uint32_t>(out, 1), ElementsAre(1));
}

}  // namespace
}  // namespace brigade::emulator
