#include "brigade/collectives/engines/nccl/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace brigade::collectives {
namespace {

std::string Name(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "ncclSuccess";
    case NcclResult::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case NcclResult::kSystemError:
      return "ncclSystemError";
    case NcclResult::kInternalError:
      return "ncclInternalError";
    case NcclResult::kInvalidArgument:
      return "ncclInvalidArgument";
    case NcclResult::kInvalidUsage:
      return "ncclInvalidUsage";
    case NcclResult::kRemoteError:
      return "ncclRemoteError";
    case NcclResult::kInProgress:
      return "ncclInProgress";
  }
  return absl::StrCat("result ", static_cast<int>(result));
}

absl::StatusCode CodeOf(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return absl::StatusCode::kOk;
    case NcclResult::kSystemError:
    case NcclResult::kRemoteError:
      return absl::StatusCode::kUnavailable;
    case NcclResult::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case NcclResult::kInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case NcclResult::kInProgress:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status NcclStatus(const NcclApi& api, NcclResult result, absl::string_view function,
                        NcclComm comm) {
  if (result == NcclResult::kSuccess) return absl::OkStatus();
  std::string message =
      absl::StrCat(function, ": ", Name(result), " (", api.get_error_string(result), ")");
  const char* const last = api.get_last_error(comm);
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, ": ", last);
  return absl::Status(CodeOf(result), message);
}

}  // namespace brigade::collectives
