#include "brigade/collectives/engines/gloo/gloo_engine.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/bootstrap/store.h"
#include "brigade/collectives/engines/gloo/rank_waits.h"
#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {
namespace {

// The ranks of a store that are not known to be gone, whichever group it was that lost them. All
// groups of a rank share its store, so it follows all survivors, not those of one group: ranks
// outside of that must still find it.
class Survivors {
 public:
  explicit Survivors(int size) : ranks_(static_cast<size_t>(size)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  std::vector<int> Without(absl::Span<const int> lost) {
    device::MutexLock lock(mutex_);
    for (const int rank : lost) {
      ranks_.erase(std::remove(ranks_.begin(), ranks_.end(), rank), ranks_.end());
    }
    return ranks_;
  }

 private:
  device::Mutex mutex_;
  std::vector<int> ranks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateGlooEngine(const GlooOptions& options,
                                                         device::Context& context) {
  // Shares nothing: the caller keeps the context.
  return CreateGlooEngine(
      options, std::shared_ptr<device::Context>(std::shared_ptr<device::Context>(), &context));
}

absl::StatusOr<std::unique_ptr<Engine>> CreateGlooEngine(const GlooOptions& options,
                                                         std::shared_ptr<device::Context> context) {
  const auto waits = std::make_shared<internal::RankWaits>();
  BRIGADE_ASSIGN_OR_RETURN(auto transport, CreateGlooTransport(options, waits));
  Regroup regroup = [options, waits, survivors = std::make_shared<Survivors>(options.size)](
                        absl::Span<const int> members, absl::Span<const int> lost,
                        const std::string& label) -> absl::StatusOr<std::unique_ptr<Transport>> {
    GlooOptions part = options;
    part.size = static_cast<int>(members.size());
    part.rank =
        static_cast<int>(std::find(members.begin(), members.end(), options.rank) - members.begin());
    part.name = absl::StrCat("group of ", RankNames(members));
    // Of the members, of which there may be thousands, as much as tells groups apart.
    part.prefix = absl::StrCat(options.prefix, "/", label, ":", RankNames(members), " ",
                               DigestOf(absl::StrJoin(members, ",")));
    part.connect_deadline = device::SteadyTime::Now() + options.connect_timeout;
    if (!lost.empty() && options.store != nullptr) {
      BRIGADE_RETURN_IF_ERROR(options.store->KeepSurvivors(
          survivors->Without(lost), part.connect_deadline - device::SteadyTime::Now()));
    }
    return CreateGlooTransport(part, waits);
  };
  return CreateTransportEngine(std::move(transport), std::move(regroup), std::move(context),
                               {.verify_messages = options.verify_messages});
}

}  // namespace brigade::collectives
