#include "brigade/tests/kernels/counters/counted_launch.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr uint8_t kPattern = 0xa5;

std::string Demangle(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text == nullptr ? name : text;
  std::free(text);
  return result;
}

}  // namespace

CountedKernels::CountedKernels(const std::string& operation)
    : memory_(emulator::Memory::Create(int64_t{1} << 28).value()) {
  const std::string file = operation + "_cuda";
  const std::string path = "kernels/" + operation + "/_nvcc/" + file + "/" + file + ".ptx";
  std::ifstream stream(path);
  const std::string text = {std::istreambuf_iterator<char>(stream), {}};
  loaded_ = emulator::LoadedModule::Create(emulator::Parse(text, path).value(), *memory_).value();
}

void* CountedKernels::Allocate(const std::string& name, int64_t bytes, int64_t shift) {
  const uint64_t begin = memory_->Allocate(shift + bytes, name).value();
  const std::vector<uint8_t> before(static_cast<size_t>(shift), kPattern);
  EXPECT_TRUE(memory_->Write(begin, before.data(), shift).ok());
  arrays_.push_back({begin, bytes, begin + static_cast<uint64_t>(shift)});
  return reinterpret_cast<void*>(arrays_.back().data);
}

void CountedKernels::Write(const void* array, const void* from, int64_t bytes) {
  const absl::Status written = memory_->Write(reinterpret_cast<uint64_t>(array), from, bytes);
  EXPECT_TRUE(written.ok()) << written;
}

void CountedKernels::Read(const void* array, void* to, int64_t bytes) const {
  const absl::Status read = memory_->Read(reinterpret_cast<uint64_t>(array), to, bytes);
  EXPECT_TRUE(read.ok()) << read;
}

bool CountedKernels::SurroundingsAreIntact() const {
  // Behind an array its allocation ends: a write there is a finding.
  return std::all_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    std::vector<uint8_t> before(static_cast<size_t>(array.data - array.begin));
    Read(reinterpret_cast<const void*>(array.begin), before.data(),
         static_cast<int64_t>(before.size()));
    return std::count(before.begin(), before.end(), kPattern) ==
           static_cast<std::ptrdiff_t>(before.size());
  });
}

const emulator::Kernel& CountedKernels::Find(const std::string& name) const {
  static const emulator::Kernel kNone;
  for (const emulator::Kernel& kernel : loaded_.module().kernels) {
    if (Demangle(kernel.name).find("::" + name + "(") != std::string::npos) return kernel;
  }
  ADD_FAILURE() << loaded_.module().file << " has no kernel " << name;
  return kNone;
}

void CountedKernels::Put(const emulator::Kernel& kernel, size_t index, const void* from,
                         size_t bytes, std::vector<uint8_t>& to) {
  ASSERT_LT(index, kernel.parameters.size());
  const emulator::Parameter& parameter = kernel.parameters[index];
  ASSERT_EQ(static_cast<int64_t>(bytes), parameter.bytes) << kernel.name << ", " << parameter.name;
  std::memcpy(to.data() + parameter.offset, from, bytes);
}

Counted CountedKernels::Run(const emulator::Kernel& kernel, const std::vector<uint8_t>& parameters,
                            int64_t elements, int64_t blocks, int threads) {
  emulator::LaunchOptions options;
  options.grid.x = static_cast<int>(blocks);
  options.block.x = threads;
  const auto result = emulator::Launch(loaded_, kernel, parameters, options);
  Counted counted;
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return counted;
  }
  const emulator::LaunchCounts& counts = result->counts;
  counted.elements = elements;
  counted.loads = counts.GlobalLoads(kernel);
  counted.wide_loads = counts.GlobalLoads(kernel, 16);
  counted.group_loads = counts.GlobalLoads(kernel, 8);
  counted.group_loads += counted.wide_loads;
  counted.stores = counts.GlobalStores(kernel);
  counted.wide_stores = counts.GlobalStores(kernel, 16);
  counted.group_stores = counts.GlobalStores(kernel, 8);
  counted.group_stores += counted.wide_stores;
  counted.instructions = counts.executed();
  for (const auto& instruction : counts.instructions) {
    counted.bank_conflicts += instruction.shared.bank_conflicts;
  }
  for (const auto& finding : result->findings) counted.findings.push_back(finding.ToString());
  return counted;
}

}  // namespace brigade::kernels
