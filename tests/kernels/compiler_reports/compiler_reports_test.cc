// What nvcc and ptxas say of the kernels: no spills, at most 64 registers, 16-byte accesses (8 of
// 16-bit arrays beside arrays of float), no atomics. tests/kernels/counters counts what they do.

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

// The report on the launcher of `kernel`, which lies in `folder`.
std::string ReadIn(const std::string& folder, const std::string& kernel,
                   const std::string& extension) {
  const std::string path = folder + "/_nvcc/" + kernel + "_cuda/" + kernel + "_cuda" + extension;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path << " is not among the test's files";
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Read(const std::string& kernel, const std::string& extension) {
  return ReadIn("kernels/" + kernel, kernel, extension);
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Resources {
  int registers = -1;
  int spilled_bytes = -1;
};

// ptxas's report by mangled kernel name.
std::map<std::string, Resources> ResourcesOf(const std::string& kernel) {
  std::map<std::string, Resources> all;
  std::istringstream report(Read(kernel, ".resources.txt"));
  std::string name;
  std::smatch match;
  for (std::string line; std::getline(report, line);) {
    if (std::regex_search(line, match, std::regex("entry function '([^']+)'"))) name = match[1];
    if (std::regex_search(line, match, std::regex("([0-9]+) bytes spill stores, ([0-9]+)"))) {
      all[name].spilled_bytes = std::stoi(match[1]) + std::stoi(match[2]);
    }
    if (std::regex_search(line, match, std::regex("Used ([0-9]+) registers"))) {
      all[name].registers = std::stoi(match[1]);
    }
  }
  return all;
}

// The PTX of each of `kernels` kernels by mangled name.
std::map<std::string, std::string> PtxOf(const std::string& kernel, size_t kernels) {
  std::map<std::string, std::string> all;
  std::istringstream ptx(Read(kernel, ".ptx"));
  std::string name;
  std::smatch match;
  for (std::string line; std::getline(ptx, line);) {
    if (line.find(".entry") != std::string::npos &&
        std::regex_search(line, match, std::regex("\\.entry ([A-Za-z0-9_]+)"))) {
      name = match[1];
    }
    if (!name.empty()) all[name] += line + "\n";
    if (line == "}") name.clear();
  }
  EXPECT_EQ(all.size(), kernels);
  return all;
}

int Loads16(const std::string& ptx) {
  return Count(ptx, "ld.global.v4.") + Count(ptx, "ld.global.nc.v4.");
}

int Loads8(const std::string& ptx) {
  return Count(ptx, "ld.global.v2.") + Count(ptx, "ld.global.nc.v2.");
}

// Those whose names contain `other` may have the registers, and spill the bytes, of `most`.
void ExpectNoSpillsAnd64Registers(const std::string& kernel, size_t kernels,
                                  const std::string& other = "", const Resources& most = {}) {
  const auto all = ResourcesOf(kernel);
  EXPECT_EQ(all.size(), kernels);
  for (const auto& [name, resources] : all) {
    const bool is_other = !other.empty() && name.find(other) != std::string::npos;
    EXPECT_LE(resources.spilled_bytes, is_other ? most.spilled_bytes : 0) << name;
    EXPECT_GT(resources.registers, 0) << name;
    EXPECT_LE(resources.registers, is_other ? most.registers : 64) << name;
  }
}

// Each kernel of a list stands for short lists and for long ones.

TEST(CompilerReportsTest, AdamKeepsToItsRegistersAndMoves16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("adam", 18);
  for (const auto& [name, ptx] : PtxOf("adam", 18)) {
    // For each kind of weight decay: two groups each of param, m, v and the gradient.
    EXPECT_GE(Loads16(ptx), 2 * 6) << name;
    EXPECT_GE(Loads16(ptx) + Loads8(ptx), 2 * 8) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 2 * 6) << name;
  }
}

TEST(CompilerReportsTest, Adam8KeepsToItsRegistersAndMoves16BytesAtOnce) {
  // All of them.
  ExpectNoSpillsAnd64Registers("adam8", 18, "Adam8Kernel", {.registers = 80, .spilled_bytes = 0});
  for (const auto& [name, ptx] : PtxOf("adam8", 18)) {
    // For each kind of weight decay: two groups of param, of whose codes 4 bytes are moved at once.
    EXPECT_GE(Loads16(ptx), 2 * 2) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 2 * 2) << name;
  }
}

TEST(CompilerReportsTest, SgdKeepsToItsRegistersAndMoves16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("sgd", 18);
  for (const auto& [name, ptx] : PtxOf("sgd", 18)) {
    EXPECT_GE(Loads16(ptx), 4) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 4) << name;
  }
}

TEST(CompilerReportsTest, LionKeepsToItsRegistersAndMoves16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("lion", 18);
  for (const auto& [name, ptx] : PtxOf("lion", 18)) {
    EXPECT_GE(Loads16(ptx), 4) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 4) << name;
  }
}

TEST(CompilerReportsTest, AdafactorKeepsToItsRegisters) {
  // Sums and updates of three types, parameters of nine pairs, factors, means and numbers.
  ExpectNoSpillsAnd64Registers("adafactor", 36);
}

TEST(CompilerReportsTest, MuonKeepsToItsRegisters) {
  // Momenta of three types, parameters of three copies, sums, products and what moves matrices.
  ExpectNoSpillsAnd64Registers("muon", 20, "ProductKernel", {.registers = 80, .spilled_bytes = 0});
}

TEST(CompilerReportsTest, GradCheckKeepsToItsRegistersAndLoads16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("grad_check", 8);
  for (const auto& [name, ptx] : PtxOf("grad_check", 8)) {
    if (name.find("TileSums") == std::string::npos) continue;
    EXPECT_GE(Loads16(ptx), 4) << name;
  }
}

TEST(CompilerReportsTest, DigestKeepsToItsRegistersAndLoads16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("digest", 2);
  for (const auto& [name, ptx] : PtxOf("digest", 2)) EXPECT_GE(Loads16(ptx), 4) << name;
}

TEST(CompilerReportsTest, CastMoves16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("cast", 36);
  for (const auto& [name, ptx] : PtxOf("cast", 36)) {
    EXPECT_GE(Loads16(ptx) + Loads8(ptx), 1) << name;
    EXPECT_GE(Count(ptx, "st.global.v4.") + Count(ptx, "st.global.v2."), 1) << name;
    EXPECT_GE(Loads16(ptx) + Count(ptx, "st.global.v4."), 1) << name;
  }
}

TEST(CompilerReportsTest, ReduceKeepsToItsRegistersAndMoves16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("reduce", 42);
  for (const auto& [name, ptx] : PtxOf("reduce", 42)) {
    EXPECT_GE(Loads16(ptx) + Loads8(ptx), 2) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 1) << name;
  }
}

TEST(CompilerReportsTest, AmaxLoads16BytesAtOnce) {
  ExpectNoSpillsAnd64Registers("amax", 4);
  for (const auto& [name, ptx] : PtxOf("amax", 4)) {
    if (name.find("FinishKernel") != std::string::npos) continue;
    EXPECT_GE(Loads16(ptx), 2) << name;
  }
}

TEST(CompilerReportsTest, BlockQuantMoves16BytesOfFloatsAtOnce) {
  ExpectNoSpillsAnd64Registers("block_quant", 24);
  for (const auto& [name, ptx] : PtxOf("block_quant", 24)) {
    const bool is_float = name.find("KernelIf") != std::string::npos;
    const bool quantizes = name.find("14QuantizeKernel") != std::string::npos;
    const int wide = quantizes ? Loads16(ptx) : Count(ptx, "st.global.v4.");
    const int groups = quantizes ? Loads8(ptx) : Count(ptx, "st.global.v2.");
    EXPECT_GE(is_float ? wide : groups, 2) << name;
  }
}

TEST(CompilerReportsTest, DequantReduceKeepsToItsRegisters) {
  // Sums of int4 codes spill a few bytes; docs/performance.md has their speed.
  ExpectNoSpillsAnd64Registers("dequant_reduce", 20, "QuantFormatE1EL",
                               {.registers = 64, .spilled_bytes = 24});
}

TEST(CompilerReportsTest, LocoQuantMoves16BytesOfFloatsAtOnce) {
  ExpectNoSpillsAnd64Registers("loco_quant", 12);
  for (const auto& [name, ptx] : PtxOf("loco_quant", 12)) {
    const bool is_float = name.find("KernelIf") != std::string::npos;
    EXPECT_GE(is_float ? Loads16(ptx) : Loads8(ptx), 2) << name;
  }
}

TEST(CompilerReportsTest, SignPackMoves16BytesOfFloatsAtOnce) {
  ExpectNoSpillsAnd64Registers("sign_pack", 19);
  for (const auto& [name, ptx] : PtxOf("sign_pack", 19)) {
    if (name.find("14SignPackKernel") == std::string::npos) continue;
    EXPECT_GE(Loads16(ptx), 2) << name;
    EXPECT_GE(Count(ptx, "st.global.v4."), 2) << name;
  }
}

TEST(CompilerReportsTest, OrthogonalizeKeepsToItsRegisters) {
  // Rows have two parts of M in flight: three blocks an SM, not four, are faster.
  ExpectNoSpillsAnd64Registers("orthogonalize", 10, "LowRankRowsKernel",
                               {.registers = 80, .spilled_bytes = 0});
}

TEST(CompilerReportsTest, LambKeepsToItsRegisters) { ExpectNoSpillsAnd64Registers("lamb", 16); }

TEST(CompilerReportsTest, OneBitLambAndZeroOneAdamKeepToTheirRegisters) {
  ExpectNoSpillsAnd64Registers("one_bit_lamb", 20);
  ExpectNoSpillsAnd64Registers("zero_one_adam", 7);
}

TEST(CompilerReportsTest, TopKKeepsToItsRegistersAndAddsIntegersAlone) {
  ExpectNoSpillsAnd64Registers("top_k", 24);
  for (const auto& [name, ptx] : PtxOf("top_k", 24)) {
    for (const char* forbidden : {"add.f32", "add.f64", "ld.local", "st.local"}) {
      EXPECT_EQ(Count(ptx, forbidden), 0) << name << " has " << forbidden;
    }
  }
}

TEST(CompilerReportsTest, NoKernelUsesAtomicsOrLocalMemory) {
  const auto expect_none = [](const std::string& folder, const std::string& kernel) {
    const std::string ptx = ReadIn(folder, kernel, ".ptx");
    EXPECT_GT(Count(ptx, ".entry"), 0) << kernel;
    for (const char* forbidden : {"atom.", "red.global", "red.shared", "ld.local", "st.local"}) {
      EXPECT_EQ(Count(ptx, forbidden), 0) << kernel << " has " << forbidden;
    }
  };
  for (const std::string kernel :
       {"adam", "adam8", "amax", "block_quant", "dequant_reduce", "sgd", "sign_pack", "grad_check",
        "lamb", "lion", "loco_quant", "one_bit_lamb", "orthogonalize", "reduce", "step_control",
        "cast", "fill", "zero_one_adam"}) {
    expect_none("kernels/" + kernel, kernel);
  }
  expect_none("collectives/compressed", "amax_scale");
}

}  // namespace
}  // namespace brigade::kernels
