// A communicator of one process, which meets itself in a folder.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/init.h"
#include "brigade/device/context.h"

namespace {

using brigade::collectives::Communicator;
using brigade::device::Context;
using brigade::device::Stream;

absl::Status Sum(const std::string& folder, float& value) {
  const absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return context.status();
  const absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return stream.status();
  brigade::collectives::InitOptions options;
  options.backend = brigade::collectives::Backend::kGloo;
  options.rendezvous_folder = folder;
  const absl::StatusOr<std::unique_ptr<Communicator>> world =
      brigade::collectives::Init({}, options, **context);
  if (!world.ok()) return world.status();
  absl::Status status =
      (*world)->AllReduce({&value, 1}, absl::Span<float>(&value, 1), {}, **stream);
  status.Update((*stream)->Synchronize());
  return status;
}

}  // namespace

int main() {
  char folder[] = "/tmp/brigade_consumer_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  float value = 3;
  const absl::Status status = Sum(folder, value);
  std::printf("%g, %s\n", value, status.ToString().c_str());
  return status.ok() && value == 3 ? 0 : 1;
}
