#include "brigade/device/context.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_book.h"
#include "brigade/device/cpu/cpu_backend.h"
#include "brigade/device/internal/core.h"
#include "brigade/device/internal/messages.h"
#include "brigade/device/status_macros.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_backend.h"
#endif

namespace brigade::device {
namespace {

constexpr bool kDebugBuild =
#ifdef NDEBUG
    false;
#else
    true;
#endif

bool ChecksByDefault() {
  const char* const text = std::getenv("BRIGADE_CHECKS");
  return text == nullptr || *text == '\0' ? kDebugBuild : absl::string_view(text) != "0";
}

absl::Status CheckNotNegative(absl::string_view option, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ContextOptions::", option, " is ", value, ", which is negative"));
}

absl::Status Validate(const ContextOptions& options) {
  if (options.device.kind != DeviceKind::kCpu && options.device.kind != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(absl::StrCat("ContextOptions::device.kind is ",
                                                   static_cast<int>(options.device.kind),
                                                   ", which is no DeviceKind"));
  }
  for (const absl::Status& checked :
       {CheckNotNegative("device.ordinal", options.device.ordinal),
        CheckNotNegative("compute_threads", options.compute_threads),
        CheckNotNegative("memory_limit_bytes", options.memory_limit_bytes),
        CheckNotNegative("random_delay.max_delay_us", options.random_delay.max_delay_us)}) {
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<internal::Backend>> NewBackend(internal::Core& core,
                                                              const ContextOptions& options) {
  if (options.device.kind == DeviceKind::kCpu) {
    return internal::NewCpuBackend(core.pool, options.random_delay);
  }
#if BRIGADE_CUDA
  return internal::NewCudaBackend(options.device.ordinal);
#else
  return absl::UnavailableError(absl::StrCat(options.device.ToString(), ": built without CUDA"));
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Context>> Context::Create(ContextOptions options) {
  absl::Status valid = Validate(options);
  if (!valid.ok()) return valid;
  if (options.name.empty()) options.name = options.device.ToString();
  RaceChecker* checker = nullptr;
  if (options.checks.has_value() ? *options.checks : ChecksByDefault()) {
    checker = options.race_checker != nullptr ? options.race_checker : &RaceChecker::Default();
  }
  int threads = options.compute_threads;
  if (threads == 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // The compute threads are the CPU's; a GPU brings its own.
  if (options.device.kind != DeviceKind::kCpu) threads = 1;

  auto core = std::make_shared<internal::Core>(options, checker, threads);
  absl::StatusOr<std::unique_ptr<internal::Backend>> backend = NewBackend(*core, options);
  if (!backend.ok()) return backend.status();
  core->backend = *std::move(backend);
  return std::unique_ptr<Context>(new Context(std::move(core)));
}

Context::Context(std::shared_ptr<internal::Core> core) : core_(std::move(core)) {}

Context::~Context() = default;

Device Context::device() const { return core_->device; }
absl::string_view Context::name() const { return core_->name; }
int Context::compute_threads() const { return core_->pool.threads(); }
Books& Context::books() { return core_->books; }
const Books& Context::books() const { return core_->books; }
int64_t Context::host_waits() const { return core_->host_waits(); }
RaceChecker* Context::race_checker() const { return core_->checker; }

internal::Track* Context::NewTrack(absl::string_view stream) {
  return core_->tracer == nullptr ? nullptr : &core_->tracer->AddStream(core_->name, stream);
}

absl::StatusOr<std::unique_ptr<Stream>> Context::NewStream(absl::string_view name) {
  auto state = core_->backend->NewStream(internal::StreamLabel(name, core_->name), NewTrack(name));
  if (!state.ok()) return state.status();
  RaceChecker::Actor actor = 0;
  if (core_->checker != nullptr) actor = core_->checker->AddStream(name, core_->name);
  return std::unique_ptr<Stream>(
      new Stream(core_, *std::move(state), std::string(name), /*owned=*/true, actor));
}

absl::StatusOr<std::unique_ptr<Stream>> Context::BorrowStream(void* cuda_stream,
                                                              absl::string_view name) {
  auto state = core_->backend->BorrowStream(cuda_stream, internal::StreamLabel(name, core_->name),
                                            NewTrack(name));
  if (!state.ok()) return state.status();
  RaceChecker::Actor actor = 0;
  if (core_->checker != nullptr) {
    actor =
        core_->checker->AddBorrowedStream(name, core_->name, core_->device.ordinal, cuda_stream);
  }
  return std::unique_ptr<Stream>(
      new Stream(core_, *std::move(state), std::string(name), /*owned=*/false, actor));
}

absl::StatusOr<std::unique_ptr<Event>> Context::NewEvent(absl::string_view name) {
  auto state = core_->backend->NewEvent();
  if (!state.ok()) return state.status();
  return std::unique_ptr<Event>(new Event(core_, *std::move(state), std::string(name)));
}

absl::Status Context::CheckBytes(int64_t bytes, absl::string_view name) const {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", core_->name, "\": buffer \"", name, "\" of ", bytes, " bytes"));
}

absl::StatusOr<Buffer> Context::Allocate(int64_t bytes, Purpose purpose, absl::string_view name) {
  BRIGADE_RETURN_IF_ERROR(CheckBytes(bytes, name));
  BRIGADE_ASSIGN_OR_RETURN(data, core_->Allocate(bytes, purpose, name));
  return Buffer(core_, data, bytes, name, purpose, Buffer::Kind::kDevice);
}

absl::StatusOr<Buffer> Context::AllocateHost(int64_t bytes, absl::string_view name) {
  BRIGADE_RETURN_IF_ERROR(CheckBytes(bytes, name));
  BRIGADE_ASSIGN_OR_RETURN(data, core_->Allocate(bytes, internal::kHostMemory, name));
  return Buffer(core_, data, bytes, name, Purpose::kScratch, Buffer::Kind::kHost);
}

absl::StatusOr<Buffer> Context::Borrow(void* data, int64_t bytes, absl::string_view name) {
  if (bytes < 0 || (bytes > 0 && data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", core_->name, "\": borrowed buffer \"",
                                                   name, "\" of ", bytes, " bytes at ",
                                                   data == nullptr ? "null" : "an address"));
  }
  AddressBook::Global().Add(data, bytes, core_->device, /*owned=*/false);
  if (core_->checker != nullptr) core_->checker->AddMemory(data, bytes, name, /*owned=*/false);
  return Buffer(core_, data, bytes, name, Purpose::kScratch, Buffer::Kind::kBorrowed);
}

}  // namespace brigade::device
