#include "brigade/profile/collective_calls.h"

#include <algorithm>
#include <optional>

#include "brigade/collectives/call_marks.h"

namespace brigade::profile {
namespace {

using device::TracedOperation;

constexpr double kSecond = 1e-9;

double SecondsOf(int64_t ns) { return kSecond * static_cast<double>(ns); }

}  // namespace

void AddCalls(const CollectiveCalls& calls, std::vector<CollectiveCalls>& all) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const CollectiveCalls& each) {
    return each.stream == calls.stream && each.name == calls.name;
  });
  if (at == all.end()) {
    all.push_back(calls);
    return;
  }
  at->calls += calls.calls;
  at->seconds += calls.seconds;
  at->waiting_seconds += calls.waiting_seconds;
  at->sent_bytes += calls.sent_bytes;
}

std::vector<CollectiveCalls> CallsOf(absl::Span<const StreamOperations> streams) {
  std::vector<CollectiveCalls> all;
  for (const StreamOperations& stream : streams) {
    // The call that the stream is in.
    std::optional<CollectiveCalls> call;
    int64_t call_begin_ns = 0;
    for (const TracedOperation& operation : stream.operations) {
      if (const auto mark = collectives::CallMarkOf(operation.name); mark.has_value()) {
        call_begin_ns = operation.end_ns;
        call = CollectiveCalls{.stream = stream.stream,
                               .name = std::string(mark->name),
                               .calls = 1,
                               .sent_bytes = static_cast<double>(mark->sent_bytes)};
      } else if (!call.has_value()) {
        continue;
      } else if (collectives::IsEndOfCall(operation.name)) {
        call->seconds = SecondsOf(std::max<int64_t>(operation.begin_ns - call_begin_ns, 0));
        AddCalls(*call, all);
        call.reset();
      } else if (operation.kind == TracedOperation::Kind::kWait &&
                 operation.name == collectives::kCallBegins) {
        call->waiting_seconds += SecondsOf(operation.end_ns - operation.begin_ns);
      }
    }
  }
  return all;
}

}  // namespace brigade::profile
