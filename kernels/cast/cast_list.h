#ifndef BRIGADE_KERNELS_CAST_CAST_LIST_H_
#define BRIGADE_KERNELS_CAST_CAST_LIST_H_

#include "brigade/kernels/cast/cast.h"

namespace brigade::kernels {

// Cast under another name: for operations that are a cast with a layout of their own (flatten).
// Messages and the race checker call operation and arrays by these names.
struct CastNames {
  const char* operation;
  const char* source;
  const char* target;
};
absl::Status CastList(const CastNames& names, absl::Span<const CastSegment> segments,
                      const CastOptions& options, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_LIST_H_
