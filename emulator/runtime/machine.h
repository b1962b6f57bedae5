#ifndef BRIGADE_EMULATOR_RUNTIME_MACHINE_H_
#define BRIGADE_EMULATOR_RUNTIME_MACHINE_H_

// The state behind the runtime's functions: devices, streams, events, captures and graphs.
//
// Threads      All of it is read and written under Machine::mutex, which Api() takes for a call;
//              only Completion has a mutex of its own. A stream's work runs on a thread of the
//              stream, without the mutex.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/runtime/control.h"

namespace brigade::emulator {

struct Call;
struct Capture;
struct Device;

// Of one operation of a stream.
class Completion {
 public:
  void Complete();
  bool IsComplete() const;
  void Wait() const;
  // Of Complete.
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable device::Mutex mutex_;
  mutable device::CondVar completed_;
  bool is_complete_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point time_ ABSL_GUARDED_BY(mutex_);
};
using CompletionPtr = std::shared_ptr<Completion>;

// What a stream or a node of a graph does.
struct Work {
  enum class Kind : uint8_t { kNothing, kKernel, kLibraryKernel, kCopy, kFill, kHost, kGraph };
  Kind kind = Kind::kNothing;
  // Runs on the stream's thread, in a graph once for each launch. What it returns, but for
  // cudaSuccess, is the device's error from then on.
  std::function<cudaError_t(Device&)> run;
  // A library's kernel that keeps its place among those of its graph.
  bool is_chained = false;
  // It runs on a device that has failed, too.
  bool runs_after_errors = false;
};

struct Operation {
  Work work;
  std::vector<CompletionPtr> after;
  CompletionPtr completion = std::make_shared<Completion>();
};

// A handle's number and device, for messages, and whether it may be used.
struct Handle {
  int number = 0;
  int device = 0;
  bool is_destroyed = false;
};

}  // namespace brigade::emulator

struct CUstream_st : brigade::emulator::Handle {
  static constexpr absl::string_view kKind = "stream";

  // Of the legacy stream, and of streams that it and they wait for.
  bool is_legacy = false;
  bool is_blocking = false;
  unsigned flags = 0;

  std::deque<brigade::emulator::Operation> queue;
  brigade::device::CondVar changed;
  // Of the operation that was enqueued last.
  brigade::emulator::CompletionPtr last;

  // While it captures; `tail`: the nodes that its next one comes after.
  std::shared_ptr<brigade::emulator::Capture> capture;
  std::vector<size_t> tail;
};

struct CUevent_st : brigade::emulator::Handle {
  static constexpr absl::string_view kKind = "event";

  bool has_time = true;
  // Of the latest record; both null: never recorded.
  brigade::emulator::CompletionPtr record;
  std::shared_ptr<brigade::emulator::Capture> capture;
  // Of the capture.
  std::vector<size_t> nodes;
};

struct CUgraphNode_st {
  brigade::emulator::Work work;
  int device = 0;
  // Earlier nodes of the graph.
  std::vector<size_t> after;
};

struct CUgraph_st : brigade::emulator::Handle {
  static constexpr absl::string_view kKind = "graph";

  std::vector<CUgraphNode_st> nodes;
};

struct CUgraphExec_st : brigade::emulator::Handle {
  static constexpr absl::string_view kKind = "executable graph";

  std::shared_ptr<const std::vector<CUgraphNode_st>> nodes;
  // Of the launch before, which the next one comes after.
  brigade::emulator::CompletionPtr last;
};

namespace brigade::emulator {

// What cudaStreamBeginCapture began.
struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  std::set<CUstream_st*> streams;
  std::vector<CUgraphNode_st> nodes;
  // The call that made it so, and why; empty: it is valid.
  std::string invalid_by;
  bool has_ended = false;
  unsigned long long number = 0;
};

// The handles of a kind that exist, and the last ones that did.
template <typename T>
class Handles {
 public:
  T* Add(std::shared_ptr<T> handle) {
    handle->number = ++made_;
    T* const key = handle.get();
    all_[key] = std::move(handle);
    return key;
  }

  // Null if there never was such a handle, or long ago.
  std::shared_ptr<T> Find(T* handle) const {
    const auto found = all_.find(handle);
    return found == all_.end() ? nullptr : found->second;
  }

  void Destroy(T& handle) {
    handle.is_destroyed = true;
    destroyed_.push_back(&handle);
    if (destroyed_.size() <= kRemembered) return;
    all_.erase(destroyed_.front());
    destroyed_.pop_front();
  }

 private:
  static constexpr size_t kRemembered = 10'000;

  int made_ = 0;
  std::map<T*, std::shared_ptr<T>> all_;
  std::deque<T*> destroyed_;
};

struct FatBinary;

struct Device {
  int ordinal = 0;
  bool has_context = false;
  // The error that a kernel left behind, after which nothing works.
  std::atomic<cudaError_t> error{cudaSuccess};
  std::shared_ptr<CUstream_st> legacy;
  // Those that have a thread: also destroyed ones, until their work is done.
  std::set<std::shared_ptr<CUstream_st>> running;
  std::map<const FatBinary*, LoadedModule> modules;
  // Functions of the host whose kernels are loaded.
  std::set<const void*> kernels;
  // Kernels of libraries that are in streams.
  std::set<CompletionPtr> library_kernels;
  // What cudaFuncSetAttribute allows a kernel's blocks.
  std::map<const Kernel*, int> most_dynamic_shared_bytes;

  // Without the mutex.
  void Run(const Work& work);
};

class Machine {
 public:
  // There is one. It is never destroyed: threads of streams may outlive main().
  static Machine& Get();

  device::Mutex mutex;

  const Options options;
  std::unique_ptr<Memory> memory;
  std::vector<std::unique_ptr<Device>> devices;

  Handles<CUstream_st> streams;
  Handles<CUevent_st> events;
  Handles<CUgraph_st> graphs;
  Handles<CUgraphExec_st> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  unsigned long long captures_made = 0;

  std::map<std::string, int64_t, std::less<>> calls;
  std::vector<Fault> faults;
  bool records_launches = false;
  std::vector<LaunchRecord> launches;

  // Prints it, and keeps it for TakeReports. At any time, with the mutex or without.
  void Add(Report report);
  std::vector<Report> TakeReports();
  // The error for a stream whose work has failed, which is reported.
  cudaError_t Check(const absl::Status& status, absl::string_view what);

  // Puts an operation into a stream's queue, behind what the stream and CUDA's default stream
  // demand.
  void Enqueue(const std::shared_ptr<CUstream_st>& stream, Operation operation);
  // What is in the queue still runs. A capture that it is in becomes invalid.
  void Destroy(const Call& call, CUstream_st& stream);

  Device& DeviceOf(const Handle& handle) const {
    return *devices[static_cast<size_t>(handle.device)];
  }
  // What a wait of the host for all streams of the device, or for the stream, waits for.
  std::vector<CompletionPtr> Pending(const Device& device) const;
  std::vector<CompletionPtr> Pending(const CUstream_st& stream) const;

 private:
  Machine();
  void RunStream(std::shared_ptr<CUstream_st> stream);

  device::Mutex reports_mutex_;
  std::vector<Report> reports_ ABSL_GUARDED_BY(reports_mutex_);
};

// One call of the runtime's interface.
struct Call {
  Machine& machine;
  const char* function;
  // The thread's current one.
  Device& device;
  // Before the call returns, without the mutex.
  std::vector<CompletionPtr> waits_for = {};
  // If not null, the result is its error, after these waits.
  const Device* waits_of = nullptr;

  // Says why on standard error, and returns `error`: what CUDA promises for such a call.
  cudaError_t Refuse(cudaError_t error, absl::string_view what) const;
  // Reports a mistake for which CUDA promises nothing.
  void AddMistake(absl::string_view what) const;

  // The handle, if it may be used; otherwise null, and the mistake is reported.
  std::shared_ptr<CUstream_st> Find(cudaStream_t stream) const;
  std::shared_ptr<CUevent_st> Find(cudaEvent_t event) const;
  std::shared_ptr<CUgraph_st> Find(cudaGraph_t graph) const;
  std::shared_ptr<CUgraphExec_st> Find(cudaGraphExec_t executable) const;

  // Puts work into the stream's queue behind `after`, or into its capture, if it captures.
  // `completion`, if not null, becomes that of the operation, or null in a capture.
  cudaError_t Submit(const std::shared_ptr<CUstream_st>& stream, Work work,
                     CompletionPtr* completion = nullptr,
                     std::vector<CompletionPtr> after = {}) const;
  // Of what this call puts into a stream: by the options' seed, another one for each call; 0 where
  // that is 0.
  uint64_t seed() const;
  // Waits without the mutex, in the midst of a call.
  void WaitNow(const std::vector<CompletionPtr>& completions) const ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // What may disturb a capture: an error, and the captures that it would disturb are invalid.
  cudaError_t CheckUnsafe() const;
};

inline uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

// "stream 3 of device 0", "the legacy stream of device 1".
std::string NameOf(const CUstream_st& stream);
std::string NameOf(const CUevent_st& event);

// What a thread has of its own.
struct Thread {
  // Devices whose contexts are on the driver's stack; the last one is current.
  std::vector<int> contexts;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  // It runs a host function of a stream, which must not call CUDA.
  bool is_in_host_function = false;
  // By device.
  std::map<int, std::shared_ptr<CUstream_st>> streams;

  ~Thread();
  int device() const { return contexts.empty() ? 0 : contexts.back(); }
};
Thread& ThisThread();

enum class Needs : uint8_t { kNothing, kContext };

// Begins a call: counts it, applies an injected fault. With a context: makes the device's, and
// returns the device's error, if it has one.
cudaError_t Begin(const Call& call, Needs needs);

// Runs body(call), a function that returns an error, as a call of the interface.
template <typename Body>
cudaError_t Api(const char* function, Needs needs, const Body& body) {
  Machine& machine = Machine::Get();
  device::MutexLock lock(machine.mutex);
  Thread& thread = ThisThread();
  Call call{machine, function, *machine.devices[static_cast<size_t>(thread.device())]};
  cudaError_t error = Begin(call, needs);
  if (error == cudaSuccess) error = body(call);
  lock.Unlock();
  if (error == cudaSuccess && call.waits_of != nullptr) {
    for (const CompletionPtr& completion : call.waits_for) completion->Wait();
    error = call.waits_of->error;
  }
  if (error != cudaSuccess) thread.last_error = error;
  return error;
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_MACHINE_H_
