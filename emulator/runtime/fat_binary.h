#ifndef BRIGADE_EMULATOR_RUNTIME_FAT_BINARY_H_
#define BRIGADE_EMULATOR_RUNTIME_FAT_BINARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace brigade::emulator {

// The PTX that nvcc put into an object, as host code registers it (__fatBinC_Wrapper_t of
// fatbinary_section.h): of the highest architecture, if there are several.
//
// Errors       FailedPrecondition, with nvcc's flag to use, if there is no PTX in it or only
//              compressed PTX; InvalidArgument if it is no fat binary.
// Source       The layout is not documented; it is that of CUDA 13, whose nvcc the test runs.
absl::StatusOr<std::string> PtxOf(const void* wrapper);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_FAT_BINARY_H_
