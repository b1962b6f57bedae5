#ifndef BRIGADE_COLLECTIVES_COMPRESSED_CODEC_CALL_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_CODEC_CALL_H_

// What collectives in fewer bytes have in common: checks, and memory for what crosses the wire.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// A multiple of 64 bytes, at which the parts of scratch begin.
constexpr int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A capacity, in elements of one rank's array of a group of `ranks`: InvalidArgument unless what
// all ranks have fits in memory.
absl::Status CheckCapacity(const char* operation, int64_t max_count, int ranks);

// InvalidArgument for a count that is not 0 to the capacity, and for a stream on another device
// than the communicator's context.
absl::Status CheckCountAndStream(const char* operation, int64_t count, int64_t capacity,
                                 const device::Context& context, const device::Stream& stream);

// An input and an output of a call, in elements of one type.
struct CodecArrays {
  const void* input;
  int64_t input_elements;
  void* output;
  int64_t output_elements;
  precision::DType dtype;
  // Whether one is the other, or a part of it, as the call allows.
  bool in_place;
};

// All that this rank can know to be wrong with a call: once its first step has run, the others rely
// on the rest. InvalidArgument naming argument and value.
absl::Status CheckCodecCall(const char* operation, int64_t count, int64_t capacity,
                            const CodecArrays& arrays, const device::Context& context,
                            const device::Stream& stream);

// Memory for messages, known to the communicators whose calls read and write it.
class MessageBuffer {
 public:
  static absl::StatusOr<MessageBuffer> Create(device::Context& context, int64_t bytes,
                                              absl::string_view name,
                                              absl::Span<Communicator* const> communicators);

  uint8_t* at(int64_t offset) const { return memory_.as<uint8_t>().data() + offset; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  device::Buffer memory_;
  // Last: they end before the memory does.
  std::vector<Registration> registrations_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_CODEC_CALL_H_
