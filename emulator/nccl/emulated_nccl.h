#ifndef BRIGADE_EMULATOR_NCCL_EMULATED_NCCL_H_
#define BRIGADE_EMULATOR_NCCL_EMULATED_NCCL_H_

#include <string>
#include <vector>

#include "brigade/collectives/engines/nccl/api.h"

namespace brigade::emulator {

using collectives::NcclApi;
using collectives::NcclComm;
using collectives::NcclConfig;
using collectives::NcclOp;
using collectives::NcclResult;
using collectives::NcclStream;
using collectives::NcclType;
using collectives::NcclUniqueId;

// NCCL's functions on the host's memory, for ranks that are threads with CPU streams. Behaves as
// NCCL does with non-blocking communicators: creation is in progress until all ranks have come;
// every third launch is in progress for a while, and is enqueued only then; kernels wait for ever;
// an abort ends them without an error. There is one for the process, as there is one NCCL.
class EmulatedNccl {
 public:
  enum class Effect : unsigned char {
    kReturns,  // the error
    kHangs,    // in progress for ever
    kLater,    // succeeds, and 20 ms later the communicator has the error
  };

  // What happens to the next call of `function` ("ncclAllReduce"), by the rank or, if that is -1 or
  // the function has no communicator, by any.
  struct Fault {
    std::string function;
    int rank = -1;
    Effect effect = Effect::kReturns;
    NcclResult error = NcclResult::kSystemError;
  };

  static NcclApi Api();

  static void Inject(const Fault& fault);
  static bool FaultHappened();  // all that were injected

  // From now on streams are being captured: what is enqueued is dropped.
  static void SetCapturing(bool capturing);

  static int Calls(const std::string& function);  // since Reset
  static int LiveComms();
  static int LiveRegistrations();
  static int64_t RegisteredBytes(int rank);
  // What a caller must not do: two threads in one communicator, calls while one is in progress or
  // after the end, arguments that are out of range, and what is not supported here.
  static std::vector<std::string> Misuses();

  static void Reset();
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_EMULATED_NCCL_H_
