#ifndef BRIGADE_DEVICE_OPERATION_H_
#define BRIGADE_DEVICE_OPERATION_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::device {

// Bytes that an operation reads or writes. An operation that reads and writes the same bytes says
// Writes. Empty ones are ignored.
struct Access {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool write = false;
};

inline Access Reads(const void* data, int64_t bytes) { return {data, bytes, false}; }
inline Access Writes(void* data, int64_t bytes) { return {data, bytes, true}; }

// What enqueued work is called and touches. Work that touches nothing says Reads(nullptr, 0): the
// race checker tells, once, of work that says nothing at all, since it cannot see its races.
//
// Lifetime     Views: both must live until the call that takes the operation returns. Written in
//              place they do: stream.Enqueue({"adam", {Reads(g, bytes), Writes(p, bytes)}}, ...).
struct Operation {
  absl::string_view name;
  absl::Span<const Access> accesses = {};
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_OPERATION_H_
