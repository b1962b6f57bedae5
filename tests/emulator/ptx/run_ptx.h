#ifndef BRIGADE_TESTS_EMULATOR_PTX_RUN_PTX_H_
#define BRIGADE_TESTS_EMULATOR_PTX_RUN_PTX_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"
#include "gtest/gtest.h"

namespace brigade::emulator {

inline std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What stands at the beginning of PTX.
inline constexpr absl::string_view kPtxHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

// A device with one module, whose kernels take pointers and numbers of 8 bytes.
class PtxDevice {
 public:
  static absl::StatusOr<std::unique_ptr<PtxDevice>> Create(absl::string_view text,
                                                           absl::string_view file = "test.ptx") {
    auto device = std::unique_ptr<PtxDevice>(new PtxDevice);
    BRIGADE_ASSIGN_OR_RETURN(auto module, Parse(text, file));
    BRIGADE_ASSIGN_OR_RETURN(device->memory_, Memory::Create(int64_t{1} << 28));
    BRIGADE_ASSIGN_OR_RETURN(device->loaded_, LoadedModule::Create(module, *device->memory_));
    return device;
  }

  Memory& memory() { return *memory_; }
  const Module& module() const { return loaded_.module(); }

  // A new array of the device.
  template <typename T>
  uint64_t Upload(const std::vector<T>& values, absl::string_view name) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    const uint64_t address = memory_->Allocate(bytes, name).value();
    EXPECT_TRUE(memory_->Write(address, values.data(), bytes).ok());
    return address;
  }
  template <typename T>
  std::vector<T> Download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    const absl::Status read =
        memory_->Read(address, values.data(), static_cast<int64_t>(count * sizeof(T)));
    EXPECT_TRUE(read.ok()) << read;
    return values;
  }

  absl::StatusOr<LaunchResult> Run(absl::string_view kernel,
                                   const std::vector<uint64_t>& parameters,
                                   const LaunchOptions& options) {
    const Kernel* const found = module().Find(kernel);
    if (found == nullptr) return absl::NotFoundError(kernel);
    std::vector<uint8_t> bytes(static_cast<size_t>(found->parameter_bytes));
    for (size_t i = 0; i < parameters.size() && i < found->parameters.size(); ++i) {
      const Parameter& parameter = found->parameters[i];
      std::memcpy(bytes.data() + parameter.offset, &parameters[i],
                  static_cast<size_t>(std::min<int64_t>(parameter.bytes, sizeof(uint64_t))));
    }
    return Launch(loaded_, *found, bytes, options);
  }

 private:
  PtxDevice() = default;

  std::unique_ptr<Memory> memory_;
  LoadedModule loaded_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_PTX_RUN_PTX_H_
