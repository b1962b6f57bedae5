#include "brigade/emulator/runtime/host_code.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/emulator/runtime/fat_binary.h"

namespace brigade::emulator {

// A fat binary that host code has registered.
struct FatBinary {
  const void* wrapper = nullptr;
  // Read when the first kernel of it is used.
  std::shared_ptr<const Module> module;
};

namespace {

struct HostFunction {
  FatBinary* binary = nullptr;
  std::string name;
};

// What host code has registered, before main() as a rule: then there is no machine yet, which a
// process that forks must not share with its children.
class HostCode {
 public:
  static HostCode& Get() {
    static HostCode& code = *new HostCode;
    return code;
  }

  FatBinary* AddBinary(const void* wrapper) {
    const device::MutexLock lock(mutex_);
    binaries_.push_back(std::make_unique<FatBinary>());
    binaries_.back()->wrapper = wrapper;
    return binaries_.back().get();
  }

  void Add(const void* host, HostFunction function) {
    const device::MutexLock lock(mutex_);
    functions_[host] = std::move(function);
  }
  void Add(const void* host, HostVariable variable) {
    const device::MutexLock lock(mutex_);
    variables_[host] = std::move(variable);
  }

  // Kernels of it may still run: it stays.
  void Forget(const FatBinary* binary) {
    const device::MutexLock lock(mutex_);
    const auto is_of_it = [&](const auto& each) { return each.second.binary == binary; };
    std::erase_if(functions_, is_of_it);
    std::erase_if(variables_, is_of_it);
  }

  std::optional<HostFunction> FindFunction(const void* host) {
    const device::MutexLock lock(mutex_);
    const auto found = functions_.find(host);
    return found == functions_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<HostVariable> FindVariable(const void* host) {
    const device::MutexLock lock(mutex_);
    const auto found = variables_.find(host);
    return found == variables_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  device::Mutex mutex_;
  std::vector<std::unique_ptr<FatBinary>> binaries_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, HostFunction> functions_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, HostVariable> variables_ ABSL_GUARDED_BY(mutex_);
};

// The binary on the call's device.
cudaError_t Load(Call& call, FatBinary& binary, const LoadedModule*& loaded) {
  const auto found = call.device.modules.find(&binary);
  if (found != call.device.modules.end()) {
    loaded = &found->second;
    return cudaSuccess;
  }
  if (binary.module == nullptr) {
    const auto ptx = PtxOf(binary.wrapper);
    if (!ptx.ok()) {
      return call.Refuse(cudaErrorNoKernelImageForDevice, ptx.status().message());
    }
    auto module = Parse(*ptx, "PTX", UnknownKernels::kKeep);
    if (!module.ok()) return call.Refuse(cudaErrorInvalidPtx, module.status().message());
    binary.module = *std::move(module);
  }
  auto made = LoadedModule::Create(binary.module, *call.machine.memory, call.device.ordinal);
  if (!made.ok()) return call.Refuse(cudaErrorMemoryAllocation, made.status().message());
  loaded = &call.device.modules.emplace(&binary, *std::move(made)).first->second;
  return cudaSuccess;
}

}  // namespace

cudaError_t FindKernel(Call& call, const void* function, LoadedKernel& kernel) {
  const std::optional<HostFunction> host = HostCode::Get().FindFunction(function);
  if (!host.has_value()) {
    return call.Refuse(cudaErrorInvalidDeviceFunction,
                       absl::StrFormat("%p stands for no kernel", function));
  }
  if (const cudaError_t error = Load(call, *host->binary, kernel.module)) return error;
  kernel.kernel = kernel.module->module().Find(host->name);
  if (kernel.kernel == nullptr) {
    return call.Refuse(cudaErrorInvalidDeviceFunction,
                       absl::StrCat("no kernel \"", host->name, "\" in its PTX"));
  }
  if (const absl::Status& unknown = kernel.kernel->unknown; !unknown.ok()) {
    return call.Refuse(cudaErrorInvalidPtx, unknown.message());
  }
  if (call.device.kernels.insert(function).second) {
    const auto& running = call.device.library_kernels;
    call.WaitNow({running.begin(), running.end()});
  }
  return cudaSuccess;
}

cudaError_t FindVariable(Call& call, const void* symbol, HostVariable& variable,
                         uint64_t& address) {
  const std::optional<HostVariable> found = HostCode::Get().FindVariable(symbol);
  if (!found.has_value()) return cudaErrorInvalidSymbol;
  variable = *found;
  const LoadedModule* loaded = nullptr;
  if (const cudaError_t error = Load(call, *variable.binary, loaded)) return error;
  const auto& variables = loaded->module().variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].name != variable.name) continue;
    address = loaded->variables()[i];
    return cudaSuccess;
  }
  return call.Refuse(cudaErrorInvalidSymbol,
                     absl::StrCat("no variable \"", variable.name, "\" in its PTX"));
}

}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

// What nvcc's host code calls before main(). Source: crt/host_runtime.h.

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(HostCode::Get().AddBinary(wrapper));
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  HostCode::Get().Forget(reinterpret_cast<const FatBinary*>(handle));
}

char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** handle, const char* function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  HostCode::Get().Add(function, HostFunction{reinterpret_cast<FatBinary*>(handle), name});
}

void __cudaRegisterVar(void** handle, char* variable, char*, const char* name, int, size_t bytes,
                       int, int) {
  HostCode::Get().Add(variable, HostVariable{reinterpret_cast<FatBinary*>(handle), name, bytes});
}

}  // extern "C"
