#ifndef BRIGADE_KERNELS_INTERNAL_CONTRIBUTIONS_H_
#define BRIGADE_KERNELS_INTERNAL_CONTRIBUTIONS_H_

// Checks of operations that add the messages of several ranks, which lie at equal distances.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::kernels {

// InvalidArgument for no ranks, a stride that is no multiple of `alignment`, more messages than an
// address space, or a factor that is not finite.
inline absl::Status CheckContributions(absl::string_view operation, int64_t ranks, int64_t stride,
                                       int64_t alignment, float factor) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what...));
  };
  if (ranks < 1) return refuse("ranks is ", ranks, ", must be at least 1");
  if (!std::isfinite(factor)) return refuse("factor is ", factor, ", must be finite");
  if (ranks == 1) return absl::OkStatus();
  if (stride < 0 || stride % alignment != 0) {
    return refuse("stride is ", stride, ", must be a multiple of ", alignment);
  }
  if (static_cast<uint64_t>(ranks) > kAddressSpace / std::max<uint64_t>(stride, 1)) {
    return refuse(ranks, " ranks at a stride of ", stride, " exceed any address space");
  }
  return absl::OkStatus();
}

// Adds the messages of each segment as role 0, and what target(segment) returns, a pointer and its
// elements, as role 1. Rank by rank, so that addresses ascend where those of each rank do.
// InvalidArgument for a stride that is less than message_bytes(segment).
template <typename Segment, typename MessageBytes, typename Target>
absl::Status AddContributions(absl::string_view operation, absl::Span<const Segment> segments,
                              int64_t ranks, int64_t stride, ListArguments& arguments,
                              const MessageBytes& message_bytes, const Target& target) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      if (rank == 0) {
        const auto [data, elements] = target(segments[i]);
        BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, index, data, elements));
      }
      const int64_t bytes = message_bytes(segments[i]);
      if (ranks > 1 && stride < bytes) {
        return absl::InvalidArgumentError(absl::StrCat(operation, ": stride is ", stride,
                                                       ", but a message of segment ", i, " has ",
                                                       bytes, " bytes"));
      }
      const char* messages = static_cast<const char*>(segments[i].messages);
      if (messages != nullptr) messages += rank * stride;
      BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, index, messages, bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_CONTRIBUTIONS_H_
