// An operation on a stream of the CPU.
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

int main() {
  using brigade::device::Context;
  using brigade::device::Stream;
  const absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return 1;
  const absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return 1;
  int value = 0;
  absl::Status status = (*stream)->Enqueue(
      {"set", {brigade::device::Writes(&value, sizeof(value))}}, [&](brigade::device::ThreadPool&) {
        value = 7;
        return absl::OkStatus();
      });
  status.Update((*stream)->Synchronize());
  std::printf("%d, %s\n", value, status.ToString().c_str());
  return status.ok() && value == 7 ? 0 : 1;
}
