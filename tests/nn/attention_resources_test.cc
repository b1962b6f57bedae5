// What ptxas says of the kernels of tiled attention: no spills, and registers for as many blocks on
// a multiprocessor as their launch bounds ask for.

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "gtest/gtest.h"

namespace brigade::nn {
namespace {

struct Resources {
  int spilled_bytes = -1;
  int registers = -1;
};

// Of each kernel of a file, by its mangled name and the architecture.
std::map<std::string, Resources> ResourcesOf(const std::string& file) {
  const std::string path = "nn/_nvcc/attention_cuda/" + file + ".resources.txt";
  std::ifstream report(path);
  EXPECT_TRUE(report.good()) << path << " is not among the test's files";
  std::map<std::string, Resources> all;
  std::string name;
  std::smatch match;
  for (std::string line; std::getline(report, line);) {
    if (std::regex_search(line, match, std::regex("entry function '([^']+)' for '([^']+)'"))) {
      name = match[1].str() + " " + match[2].str();
    }
    if (std::regex_search(line, match, std::regex("([0-9]+) bytes spill stores, ([0-9]+)"))) {
      all[name].spilled_bytes = std::stoi(match[1]) + std::stoi(match[2]);
    }
    if (std::regex_search(line, match, std::regex("Used ([0-9]+) registers"))) {
      all[name].registers = std::stoi(match[1]);
    }
  }
  return all;
}

// `kernels` for each architecture.
void ExpectNoSpills(const std::string& file, size_t kernels) {
  const auto all = ResourcesOf(file);
  EXPECT_GT(all.size(), 0u);
  EXPECT_EQ(all.size() % kernels, 0u);
  for (const auto& [name, resources] : all) {
    // Their last template argument. Of keys of heads 128 wide, 20 bytes each way.
    const bool has_segments = name.find("Lb1EEEv") != std::string::npos;
    EXPECT_LE(resources.spilled_bytes, has_segments ? 40 : 0) << name;
    EXPECT_GE(resources.spilled_bytes, 0) << name;
    EXPECT_GT(resources.registers, 0) << name;
    EXPECT_LE(resources.registers, 255) << name;
  }
}

// Two types and four widths of heads, of whole attention, with segments and without, and of a
// block; in the backward pass twice, and the sums of each type.
TEST(AttentionResourcesTest, NothingIsSpilled) {
  ExpectNoSpills("attention_cuda", 24);
  ExpectNoSpills("attention_backward_cuda", 50);
}

}  // namespace
}  // namespace brigade::nn
