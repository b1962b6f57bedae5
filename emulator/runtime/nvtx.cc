// Names of memory, as programs give them through NVTX: the runtime is the tool that listens, unless
// the environment names another one.

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExtMem.h>

#include <cstdlib>

#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

void NameRegions(nvtxDomainHandle_t, const nvtxMemRegionsNameBatch_t* batch) {
  Memory& memory = *Machine::Get().memory;
  const char* const regions = reinterpret_cast<const char*>(batch->regionElements);
  for (size_t i = 0; i < batch->regionCount; ++i) {
    const auto& region =
        *reinterpret_cast<const nvtxMemRegionNameDesc_t*>(regions + i * batch->regionElementSize);
    if (region.regionRefType != NVTX_MEM_REGION_REF_TYPE_POINTER ||
        region.nameType != NVTX_MESSAGE_TYPE_ASCII) {
      continue;
    }
    memory.Name(AddressOf(region.region.pointer), region.name.ascii);
  }
}

// Where NVTX in the program looks for the tool: this library, by the name that is loaded already.
__attribute__((constructor)) void Listen() {
  setenv("NVTX_INJECTION64_PATH", "libcudart.so.13", /*replace=*/0);
}

}  // namespace
}  // namespace brigade::emulator

// NVTX calls it for each of its modules; 0: nothing of the module is wanted.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_MODULEID_MEM || module->segmentsCount != 1 ||
      module->segments->slotCount <= NVTX3EXT_CBID_nvtxMemRegionsName) {
    return 0;
  }
  module->segments->functionSlots[NVTX3EXT_CBID_nvtxMemRegionsName] =
      reinterpret_cast<intptr_t>(&brigade::emulator::NameRegions);
  return 1;
}
