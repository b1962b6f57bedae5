#include "brigade/emulator/runtime/machine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/emulator/runtime/capture.h"
#include "brigade/emulator/runtime/counts.h"

namespace brigade::emulator {
namespace {

// About what a GPU takes: who enqueues more waits for room.
constexpr size_t kQueuedOperations = 1024;

[[noreturn]] void Die(absl::string_view why) {
  std::fprintf(stderr, "emulator: %.*s\n", static_cast<int>(why.size()), why.data());
  std::abort();
}

template <typename T>
void ReadVariable(const char* name, T least, T& value) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return;
  T read{};
  if (!absl::SimpleAtoi(text, &read) || read < least) {
    Die(absl::StrCat(name, "=", text, " is no number from ", least, " on"));
  }
  value = read;
}

Options ReadOptions() {
  Options options;
  ReadVariable("BRIGADE_EMULATOR_DEVICES", 0, options.devices);
  ReadVariable("BRIGADE_EMULATOR_DEVICE_BYTES", int64_t{1} << 16, options.device_bytes);
  ReadVariable("BRIGADE_EMULATOR_SEED", uint64_t{0}, options.seed);
  ReadVariable("BRIGADE_EMULATOR_DELAY_US", 0, options.delay_us);
  ReadVariable("BRIGADE_EMULATOR_THREADS", 1, options.threads);
  int counts = 0;
  ReadVariable("BRIGADE_EMULATOR_COUNTS", 0, counts);
  options.counts = counts != 0;
  return options;
}

// When the process ends: a mistake that nobody has looked at is a failure.
void Finish() {
  Machine& machine = Machine::Get();
  if (machine.options.counts) PrintCounts(TakeLaunches());
  const size_t reports = machine.TakeReports().size();
  if (reports == 0) return;
  std::fprintf(stderr, "emulator: %zu reports, see above\n", reports);
  std::fflush(nullptr);
  _exit(EXIT_FAILURE);
}

}  // namespace

void Completion::Complete() {
  const device::MutexLock lock(mutex_);
  is_complete_ = true;
  time_ = std::chrono::steady_clock::now();
  completed_.SignalAll();
}

bool Completion::IsComplete() const {
  const device::MutexLock lock(mutex_);
  return is_complete_;
}

void Completion::Wait() const {
  const device::MutexLock lock(mutex_);
  while (!is_complete_) completed_.Wait(mutex_);
}

std::chrono::steady_clock::time_point Completion::time() const {
  const device::MutexLock lock(mutex_);
  return time_;
}

Machine& Machine::Get() {
  static Machine& machine = *new Machine;
  return machine;
}

Machine::Machine() : options(ReadOptions()) {
  // A machine without devices has nothing but the one that no call reaches.
  const int count = std::max(options.devices, 1);
  auto made = Memory::Create(options.device_bytes, count);
  if (!made.ok()) Die(made.status().message());
  memory = *std::move(made);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    devices.push_back(std::make_unique<Device>());
    Device& device = *devices.back();
    device.ordinal = ordinal;
    device.legacy = std::make_shared<CUstream_st>();
    device.legacy->is_legacy = true;
    device.legacy->device = ordinal;
    streams.Add(device.legacy);
  }
  records_launches = options.counts;
  std::atexit(Finish);
}

void Machine::Add(Report report) {
  std::fprintf(stderr, "emulator: %s\n", report.text.c_str());
  const device::MutexLock lock(reports_mutex_);
  reports_.push_back(std::move(report));
}

std::vector<Report> Machine::TakeReports() {
  const device::MutexLock lock(reports_mutex_);
  return std::exchange(reports_, {});
}

cudaError_t Machine::Check(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return cudaSuccess;
  Add({Report::Kind::kCall, {}, absl::StrCat(what, ": ", status.message())});
  return cudaErrorIllegalAddress;
}

void Device::Run(const Work& work) {
  if (work.run == nullptr || (error != cudaSuccess && !work.runs_after_errors)) return;
  const cudaError_t result = work.run(*this);
  cudaError_t none = cudaSuccess;
  if (result != cudaSuccess) error.compare_exchange_strong(none, result);
}

void Machine::RunStream(std::shared_ptr<CUstream_st> stream) {
  Device& device = DeviceOf(*stream);
  std::minstd_rand random(static_cast<uint32_t>(options.seed * 1'000'003) +
                          static_cast<uint32_t>(stream->number));
  device::MutexLock lock(mutex);
  while (true) {
    while (stream->queue.empty() && !stream->is_destroyed) stream->changed.Wait(mutex);
    if (stream->queue.empty()) break;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.Unlock();
    for (const CompletionPtr& other : operation.after) other->Wait();
    if (options.delay_us > 0 && random() % 3 == 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % static_cast<uint32_t>(options.delay_us + 1)));
    }
    device.Run(operation.work);
    operation.work.run = nullptr;
    operation.completion->Complete();
    lock.Lock();
    device.library_kernels.erase(operation.completion);
  }
  device.running.erase(stream);
}

void Machine::Enqueue(const std::shared_ptr<CUstream_st>& stream, Operation operation) {
  Device& device = DeviceOf(*stream);
  if (stream->is_legacy) {
    for (CompletionPtr& each : Pending(*stream)) operation.after.push_back(std::move(each));
  } else if (stream->is_blocking && device.legacy->last != nullptr) {
    operation.after.push_back(device.legacy->last);
  }
  if (operation.work.kind == Work::Kind::kLibraryKernel) {
    device.library_kernels.insert(operation.completion);
  }
  stream->last = operation.completion;
  stream->queue.push_back(std::move(operation));
  if (device.running.insert(stream).second) {
    std::thread(&Machine::RunStream, this, stream).detach();
  } else {
    stream->changed.Signal();
  }
}

void Machine::Destroy(const Call& call, CUstream_st& stream) {
  if (stream.capture != nullptr) LeaveCapture(call, stream);
  streams.Destroy(stream);
  stream.changed.Signal();
}

std::vector<CompletionPtr> Machine::Pending(const Device& device) const {
  std::vector<CompletionPtr> pending;
  for (const auto& stream : device.running) pending.push_back(stream->last);
  return pending;
}

std::vector<CompletionPtr> Machine::Pending(const CUstream_st& stream) const {
  std::vector<CompletionPtr> pending;
  if (stream.last != nullptr) pending.push_back(stream.last);
  if (!stream.is_legacy) return pending;
  for (const auto& other : DeviceOf(stream).running) {
    if (other->is_blocking) pending.push_back(other->last);
  }
  return pending;
}

std::string NameOf(const CUstream_st& stream) {
  if (stream.is_legacy) return absl::StrCat("the legacy stream of device ", stream.device);
  return absl::StrCat("stream ", stream.number, " of device ", stream.device);
}

std::string NameOf(const CUevent_st& event) {
  return absl::StrCat("event ", event.number, " of device ", event.device);
}

cudaError_t Call::Refuse(cudaError_t error, absl::string_view what) const {
  std::fprintf(stderr, "emulator: note: %s\n",
               absl::StrCat(function, ": ", cudaGetErrorName(error), ": ", what).c_str());
  return error;
}

void Call::AddMistake(absl::string_view what) const {
  machine.Add({Report::Kind::kCall, {}, absl::StrCat(function, ": ", what)});
}

cudaError_t Call::Submit(const std::shared_ptr<CUstream_st>& stream, Work work,
                         CompletionPtr* completion, std::vector<CompletionPtr> after) const {
  if (completion != nullptr) *completion = nullptr;
  while (stream->capture == nullptr && stream->queue.size() >= kQueuedOperations) {
    WaitNow({stream->queue.front().completion});
  }
  if (stream->capture != nullptr) return AddNode(*stream, std::move(work));
  if (stream->is_legacy) {
    if (const cudaError_t error = CheckImplicit(*this, *stream, /*used=*/true)) return error;
  }
  Operation operation;
  operation.work = std::move(work);
  operation.after = std::move(after);
  if (completion != nullptr) *completion = operation.completion;
  machine.Enqueue(stream, std::move(operation));
  return cudaSuccess;
}

uint64_t Call::seed() const {
  const uint64_t seed = machine.options.seed;
  return seed == 0 ? 0 : seed + static_cast<uint64_t>(machine.calls[function]);
}

void Call::WaitNow(const std::vector<CompletionPtr>& completions) const {
  machine.mutex.Unlock();
  for (const CompletionPtr& each : completions) each->Wait();
  machine.mutex.Lock();
}

namespace {

template <typename T>
std::shared_ptr<T> FindHandle(const Call& call, const Handles<T>& handles, T* handle) {
  std::shared_ptr<T> found = handles.Find(handle);
  if (found == nullptr) {
    call.AddMistake(absl::StrFormat("%p is no %s", handle, T::kKind));
    return nullptr;
  }
  if (found->is_destroyed) {
    call.AddMistake(absl::StrCat(T::kKind, " ", found->number, " of device ", found->device,
                                 " has been destroyed"));
    return nullptr;
  }
  return found;
}

}  // namespace

std::shared_ptr<CUstream_st> Call::Find(cudaStream_t stream) const {
  if (stream == nullptr || stream == cudaStreamLegacy) return device.legacy;
  if (stream == cudaStreamPerThread) {
    std::shared_ptr<CUstream_st>& own = ThisThread().streams[device.ordinal];
    if (own == nullptr) {
      own = std::make_shared<CUstream_st>();
      own->device = device.ordinal;
      own->is_blocking = true;
      machine.streams.Add(own);
    }
    return own;
  }
  return FindHandle(*this, machine.streams, stream);
}

std::shared_ptr<CUevent_st> Call::Find(cudaEvent_t event) const {
  return FindHandle(*this, machine.events, event);
}

std::shared_ptr<CUgraph_st> Call::Find(cudaGraph_t graph) const {
  return FindHandle(*this, machine.graphs, graph);
}

std::shared_ptr<CUgraphExec_st> Call::Find(cudaGraphExec_t executable) const {
  return FindHandle(*this, machine.executables, executable);
}

Thread::~Thread() {
  if (streams.empty()) return;
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  for (const auto& [ordinal, stream] : streams) {
    machine.Destroy({machine, "end of a thread", machine.DeviceOf(*stream)}, *stream);
  }
}

Thread& ThisThread() {
  thread_local Thread thread;
  return thread;
}

namespace {

// The fault that has been injected for this call of the function.
cudaError_t TakeFault(Machine& machine, absl::string_view function) {
  cudaError_t error = cudaSuccess;
  std::erase_if(machine.faults, [&](Fault& fault) {
    if (fault.function != function || --fault.nth > 0) return false;
    error = fault.error;
    return true;
  });
  return error;
}

}  // namespace

cudaError_t Begin(const Call& call, Needs needs) {
  ++call.machine.calls[call.function];
  if (const cudaError_t error = TakeFault(call.machine, call.function)) return error;
  if (ThisThread().is_in_host_function) {
    call.AddMistake("a host function of a stream must not call CUDA");
    return cudaErrorNotPermitted;
  }
  if (needs == Needs::kNothing) return cudaSuccess;
  if (call.machine.options.devices == 0) return cudaErrorNoDevice;
  call.device.has_context = true;
  if (std::vector<int>& contexts = ThisThread().contexts; contexts.empty()) {
    contexts.push_back(call.device.ordinal);
  }
  return call.device.error;
}

}  // namespace brigade::emulator
