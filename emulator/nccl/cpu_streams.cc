// EmulatedNccl on the host's own memory and streams.

#include "absl/container/inlined_vector.h"
#include "brigade/device/stream.h"
#include "brigade/emulator/nccl/communicator.h"
#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {
namespace {

class Cpu final : public NcclStreams {
 public:
  absl::Status Enqueue(NcclStream stream, const NcclKernel& kernel,
                       absl::Span<const TransferPart> transfers) override {
    if (NcclState::Get().capturing) return absl::OkStatus();
    absl::InlinedVector<device::Access, kFewTransfers> accesses;
    if (kernel.collective.has_value()) {
      const CollectivePart& part = *kernel.collective;
      const int size = kernel.rank->group->size();
      accesses = {device::Reads(part.input, static_cast<int64_t>(InputBytes(part, size))),
                  device::Writes(part.output, static_cast<int64_t>(OutputBytes(part, size)))};
    }
    for (const TransferPart& part : transfers) {
      accesses.push_back({part.data, static_cast<int64_t>(part.bytes), !part.sends});
    }
    return reinterpret_cast<device::Stream*>(stream)->Enqueue(
        {"nccl", accesses}, transfers,
        [this, kernel](absl::Span<const TransferPart> parts, device::ThreadPool&) {
          return kernel.Run(parts, *this);
        });
  }

  absl::StatusOr<const void*> Readable(const void* address, int64_t) override { return address; }
  absl::StatusOr<void*> Writable(void* address, int64_t) override { return address; }
};

}  // namespace

NcclApi EmulatedNccl::Api() {
  static Cpu streams;
  NcclApi api = NcclFunctions(streams);
  api.is_capturing = [](NcclStream) -> bool { return NcclState::Get().capturing; };
  // The stand-in takes the device::Stream itself, and declares its reads and writes there.
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCpu; };
  api.launch = [](device::Stream& stream, const device::Operation&,
                  absl::FunctionRef<absl::Status(NcclStream stream)> call) {
    return call(reinterpret_cast<NcclStream>(&stream));
  };
  return api;
}

}  // namespace brigade::emulator
