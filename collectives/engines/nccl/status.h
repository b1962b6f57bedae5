#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_STATUS_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/engines/nccl/api.h"

namespace brigade::collectives {

// The one place where NCCL's errors become statuses: `ncclAllReduce: ncclSystemError (unhandled
// system error): what NCCL says beside`. `comm` may be null.
//
// Codes        A failed system call or a lost peer: Unavailable. Bad arguments: InvalidArgument. A
//              wrong moment or mixed-up calls: FailedPrecondition. Not taken yet: DeadlineExceeded.
//              CUDA's errors and all else: Internal.
absl::Status NcclStatus(const NcclApi& api, NcclResult result, absl::string_view function,
                        NcclComm comm);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_STATUS_H_
