// Damaged PTX is an error, or runs to an end: whatever stands in the text, nothing crashes.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/sanitizer.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

#ifndef BRIGADE_MUTATIONS
#define BRIGADE_MUTATIONS 4'000
#endif
// Of each file.
constexpr int kMutations = testing::kSanitizer ? BRIGADE_MUTATIONS / 4 : BRIGADE_MUTATIONS;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string Mutate(const std::vector<std::string>& lines) {
    std::vector<std::string> damaged = lines;
    const int faults = 1 + Below(3);
    for (int i = 0; i < faults; ++i) Damage(damaged);
    return absl::StrJoin(damaged, "\n");
  }
  int Below(size_t end) { return static_cast<int>(random_() % std::max<size_t>(end, 1)); }

 private:
  std::string& Any(std::vector<std::string>& lines) {
    return lines[static_cast<size_t>(Below(lines.size()))];
  }
  void Damage(std::vector<std::string>& lines) {
    std::string& line = Any(lines);
    const auto at = static_cast<size_t>(Below(line.size() + 1));
    constexpr const char* kWords[] = {"0",      "-1",   "4294967295", "18446744073709551615",
                                      "%r1",    "%rd1", "%p1",        "%f1",
                                      "{",      "}",    ";",          ",",
                                      ":",      "[",    "]",          "@",
                                      "!",      "|",    "<",          ">",
                                      "\"",     "/*",   ".b8",        ".reg",
                                      "0f",     "0x",   "_",          "99999999999999999999",
                                      ".align", "$L",   ".loc",       ".shared"};
    switch (Below(8)) {
      case 0:
        line.insert(at, kWords[static_cast<size_t>(Below(std::size(kWords)))]);
        break;
      case 1:
        if (at < line.size()) line[at] = static_cast<char>(Below(256));
        break;
      case 2:
        line.erase(at, 1 + random_() % 4);
        break;
      case 3:
        line = Any(lines);
        break;
      case 4:
        std::swap(line, Any(lines));
        break;
      case 5:
        line.clear();
        break;
      case 6:
        lines.resize(static_cast<size_t>(Below(lines.size())) + 1);
        break;
      default: {
        // Another instruction with the same operands, or other operands.
        std::vector<std::string> words = absl::StrSplit(line, '\t');
        const std::vector<std::string> others = absl::StrSplit(Any(lines), '\t');
        const auto word = static_cast<size_t>(Below(words.size()));
        words[word] = others[static_cast<size_t>(Below(others.size()))];
        line = absl::StrJoin(words, "\t");
      }
    }
  }

  std::mt19937 random_;
};

class MutationTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MutationTest, IsAnErrorOrEnds) {
  const std::string text = FileText(GetParam());
  ASSERT_FALSE(text.empty());
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  Mutator mutator(7);
  int errors = 0, runs = 0, findings = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string damaged = mutator.Mutate(lines);
    auto device = PtxDevice::Create(damaged);
    if (!device.ok()) {
      ++errors;
      const absl::StatusCode code = device.status().code();
      ASSERT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                  code == absl::StatusCode::kUnimplemented ||
                  code == absl::StatusCode::kResourceExhausted)
          << device.status();
      ASSERT_FALSE(device.status().message().empty());
      continue;
    }
    const std::vector<Kernel>& kernels = (*device)->module().kernels;
    if (kernels.empty()) continue;
    const Kernel& kernel = kernels[static_cast<size_t>(mutator.Below(kernels.size()))];
    const uint64_t array = (*device)->Upload(std::vector<float>(256, 1.0f), "array");
    std::vector<uint64_t> parameters(8, array);
    LaunchOptions options;
    options.grid.x = 2;
    options.block.x = 64;
    options.seed = static_cast<uint64_t>(i);
    options.most_instructions = 3'000;
    auto result = (*device)->Run(kernel.name, parameters, options);
    if (!result.ok()) continue;
    ++runs;
    for (const Finding& finding : result->findings) {
      ++findings;
      ASSERT_FALSE(finding.ToString().empty());
    }
  }
  // The mutations reach the parser, the kernels, and what is checked in them.
  EXPECT_GT(errors, kMutations / 10);
  EXPECT_GT(runs, kMutations / 10);
  EXPECT_GT(findings, 10);
}

INSTANTIATE_TEST_SUITE_P(
    Files, MutationTest,
    ::testing::Values("kernels/amax/_nvcc/amax_cuda/amax_cuda.ptx",
                      "tests/emulator/ptx/_nvcc/broken_kernels/broken_kernels.ptx",
                      "kernels/step_control/_nvcc/step_control_cuda/step_control_cuda.ptx"),
    [](const auto& info) { return absl::StrCat("File", info.index); });

}  // namespace
}  // namespace brigade::emulator
