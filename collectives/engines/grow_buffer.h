#ifndef BRIGADE_COLLECTIVES_ENGINES_GROW_BUFFER_H_
#define BRIGADE_COLLECTIVES_ENGINES_GROW_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

// Makes `buffer` hold at least `bytes`. It only grows, so that steady state allocates nothing; what
// it held is lost when it does.
inline absl::Status GrowBuffer(int64_t bytes, absl::string_view name, device::Context& context,
                               device::Buffer& buffer) {
  if (buffer.bytes() >= bytes) return absl::OkStatus();
  buffer = device::Buffer();
  BRIGADE_ASSIGN_OR_RETURN(buffer, context.Allocate(bytes, device::Purpose::kCommunication, name));
  return absl::OkStatus();
}

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GROW_BUFFER_H_
