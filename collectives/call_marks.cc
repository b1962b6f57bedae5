#include "brigade/collectives/call_marks.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/operation.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::collectives {
namespace {

constexpr absl::string_view kCall = "call ";
constexpr absl::string_view kSends = " sends ";
constexpr absl::string_view kEnd = "end of call";

// The contexts whose calls are marked. A process has few, most of the time none.
struct Marked {
  std::atomic<int> count = 0;
  device::Mutex mutex;
  std::vector<const device::Context*> contexts ABSL_GUARDED_BY(mutex);
};

Marked& Contexts() {
  // Calls may come as long as the process lives.
  static Marked& marked = *new Marked;
  return marked;
}

absl::Status Mark(absl::string_view name, device::Stream& stream) {
  const device::Access nothing = device::Reads(nullptr, 0);
  const device::Operation operation = {name, absl::MakeConstSpan(&nothing, 1)};
  if (stream.device().kind == device::DeviceKind::kCpu) {
    return stream.Enqueue(operation, [](device::ThreadPool&) { return absl::OkStatus(); });
  }
  return stream.Launch(operation, [](void*) { return absl::OkStatus(); });
}

int64_t SentBytes(const CollectiveSignature& signature, int rank, int size) {
  if (signature.kind == CollectiveKind::kBarrier) return 0;
  if (signature.kind != CollectiveKind::kSend) return WireBytes(signature, rank, size);
  return rank == signature.root ? signature.count * precision::SizeOf(signature.dtype) : 0;
}

}  // namespace

MarkedCalls::MarkedCalls(const device::Context& context) : context_(context) {
  Marked& marked = Contexts();
  device::MutexLock lock(marked.mutex);
  marked.contexts.push_back(&context_);
  marked.count.fetch_add(1, std::memory_order_relaxed);
}

MarkedCalls::~MarkedCalls() {
  Marked& marked = Contexts();
  device::MutexLock lock(marked.mutex);
  marked.contexts.erase(std::find(marked.contexts.begin(), marked.contexts.end(), &context_));
  marked.count.fetch_sub(1, std::memory_order_relaxed);
}

bool MarkedCalls::Contain(const device::Context& context) {
  Marked& marked = Contexts();
  if (marked.count.load(std::memory_order_relaxed) == 0) return false;
  device::MutexLock lock(marked.mutex);
  return std::find(marked.contexts.begin(), marked.contexts.end(), &context) !=
         marked.contexts.end();
}

absl::Status MarkCall(const CollectiveSignature& signature, int rank, int size,
                      device::Stream& stream) {
  return Mark(absl::StrCat(kCall, Name(signature.kind), kSends, SentBytes(signature, rank, size)),
              stream);
}

absl::Status MarkEndOfCall(device::Stream& stream) { return Mark(kEnd, stream); }

std::optional<CallMark> CallMarkOf(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kCall)) return std::nullopt;
  const size_t at = name.find(kSends);
  CallMark mark;
  if (at == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(at + kSends.size()), &mark.sent_bytes)) {
    return std::nullopt;
  }
  mark.name = name.substr(0, at);
  return mark;
}

bool IsEndOfCall(absl::string_view name) { return name == kEnd; }

}  // namespace brigade::collectives
