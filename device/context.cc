#include "brigade/device/context.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/cpu/cpu_backend.h"
#include "brigade/device/internal/context_state.h"
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
        CheckNotNegative("host_memory_limit_bytes", options.host_memory_limit_bytes),
        CheckNotNegative("random_delay.max_delay_us", options.random_delay.max_delay_us)}) {
    if (!checked.ok()) return checked;
  }
  const double link = options.link_bytes_per_second;
  if (!(link >= 0) || (link > 0 && options.device.kind != DeviceKind::kCpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ContextOptions::link_bytes_per_second is ", link,
                     link > 0 ? "; a GPU has a link of its own" : ", which is no rate"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<internal::Backend>> CreateBackend(internal::ContextState& state,
                                                                 const ContextOptions& options) {
  if (options.device.kind == DeviceKind::kCpu) {
    return internal::CreateCpuBackend(state.pool, options);
  }
#if BRIGADE_CUDA
  return internal::CreateCudaBackend(options.device.ordinal);
#else
  return absl::UnavailableError(absl::StrCat(options.device.ToString(), ": built without CUDA"));
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Context>> Context::Create(ContextOptions options) {
  BRIGADE_RETURN_IF_ERROR(Validate(options));
  if (options.name.empty()) options.name = options.device.ToString();
  RaceChecker* checker = nullptr;
  if (options.checks.has_value() ? *options.checks : ChecksByDefault()) {
    checker = options.race_checker != nullptr ? options.race_checker : &RaceChecker::Default();
  }
  int threads = options.compute_threads;
  if (threads == 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // The compute threads are the CPU's; a GPU brings its own.
  if (options.device.kind != DeviceKind::kCpu) threads = 1;

  auto state = std::make_shared<internal::ContextState>(options, checker, threads);
  BRIGADE_ASSIGN_OR_RETURN(state->backend, CreateBackend(*state, options));
  return std::unique_ptr<Context>(new Context(std::move(state)));
}

Context::Context(std::shared_ptr<internal::ContextState> state) : state_(std::move(state)) {}

Context::~Context() = default;

Device Context::device() const { return state_->device; }
absl::string_view Context::name() const { return state_->name; }
int Context::compute_threads() const { return state_->pool.threads(); }
MemoryStats& Context::memory_stats() { return state_->memory_stats; }
const MemoryStats& Context::memory_stats() const { return state_->memory_stats; }
MemoryStats& Context::host_memory_stats() { return state_->host_memory_stats; }
const MemoryStats& Context::host_memory_stats() const { return state_->host_memory_stats; }
int64_t Context::memory_limit_bytes(Tier tier) const { return state_->LimitOf(tier); }
int64_t Context::host_waits() const { return state_->host_waits(); }
RaceChecker* Context::race_checker() const { return state_->checker; }

internal::TraceBuffer* Context::CreateTraceBuffer(absl::string_view stream) {
  return state_->tracer == nullptr ? nullptr : &state_->tracer->AddStream(state_->name, stream);
}

absl::StatusOr<std::unique_ptr<Stream>> Context::CreateStream(absl::string_view name) {
  BRIGADE_ASSIGN_OR_RETURN(auto stream_state,
                           state_->backend->CreateStream(internal::StreamLabel(name, state_->name),
                                                         CreateTraceBuffer(name)));
  RaceChecker::ActorId actor = 0;
  if (state_->checker != nullptr) actor = state_->checker->AddStream(name, state_->name);
  return std::unique_ptr<Stream>(
      new Stream(state_, std::move(stream_state), std::string(name), /*owned=*/true, actor));
}

absl::StatusOr<std::unique_ptr<Stream>> Context::BorrowStream(void* cuda_stream,
                                                              absl::string_view name) {
  BRIGADE_ASSIGN_OR_RETURN(
      auto stream_state,
      state_->backend->BorrowStream(cuda_stream, internal::StreamLabel(name, state_->name),
                                    CreateTraceBuffer(name)));
  RaceChecker::ActorId actor = 0;
  if (state_->checker != nullptr) {
    actor =
        state_->checker->AddBorrowedStream(name, state_->name, state_->device.ordinal, cuda_stream);
  }
  return std::unique_ptr<Stream>(
      new Stream(state_, std::move(stream_state), std::string(name), /*owned=*/false, actor));
}

absl::StatusOr<std::unique_ptr<Context>> Context::CreateHostContext(int compute_threads) const {
  return Create({.compute_threads = compute_threads,
                 .name = absl::StrCat(state_->name, ", host"),
                 .checks = state_->checker != nullptr,
                 .race_checker = state_->checker,
                 .tracer = state_->tracer});
}

absl::StatusOr<std::unique_ptr<Event>> Context::CreateEvent(absl::string_view name) {
  BRIGADE_ASSIGN_OR_RETURN(auto event_state, state_->backend->CreateEvent());
  return std::unique_ptr<Event>(new Event(state_, std::move(event_state), std::string(name)));
}

absl::Status Context::CheckBytes(int64_t bytes, absl::string_view name) const {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", state_->name, "\": buffer \"", name, "\" of ", bytes, " bytes"));
}

absl::StatusOr<Buffer> Context::Allocate(int64_t bytes, Purpose purpose, absl::string_view name) {
  BRIGADE_RETURN_IF_ERROR(CheckBytes(bytes, name));
  BRIGADE_ASSIGN_OR_RETURN(auto data, state_->Allocate(bytes, Tier::kDevice, purpose, name));
  return Buffer(state_, data, bytes, name, purpose, Buffer::Kind::kDevice);
}

absl::StatusOr<Buffer> Context::AllocateHost(int64_t bytes, Purpose purpose,
                                             absl::string_view name) {
  BRIGADE_RETURN_IF_ERROR(CheckBytes(bytes, name));
  BRIGADE_ASSIGN_OR_RETURN(auto data, state_->Allocate(bytes, Tier::kHost, purpose, name));
  return Buffer(state_, data, bytes, name, purpose, Buffer::Kind::kHost);
}

absl::StatusOr<Buffer> Context::Borrow(void* data, int64_t bytes, absl::string_view name) {
  if (bytes < 0 || (bytes > 0 && data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", state_->name, "\": borrowed buffer \"",
                                                   name, "\" of ", bytes, " bytes at ",
                                                   data == nullptr ? "null" : "an address"));
  }
  AddressRegistry::Global().Add(data, bytes, state_->device, /*owned=*/false);
  if (state_->checker != nullptr) state_->checker->AddMemory(data, bytes, name, /*owned=*/false);
  return Buffer(state_, data, bytes, name, Purpose::kScratch, Buffer::Kind::kBorrowed);
}

}  // namespace brigade::device
