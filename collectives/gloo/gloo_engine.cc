#include "brigade/collectives/gloo/gloo_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/messages/message_engine.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

absl::StatusOr<std::unique_ptr<Engine>> NewGlooEngine(const GlooOptions& options,
                                                      device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(transport, CreateGlooTransport(options));
  Regroup regroup = [options](absl::Span<const int> members, const std::string& label,
                              bool failed) -> absl::StatusOr<std::unique_ptr<Transport>> {
    GlooOptions part = options;
    part.size = static_cast<int>(members.size());
    part.rank =
        static_cast<int>(std::find(members.begin(), members.end(), options.rank) - members.begin());
    part.prefix = absl::StrCat(options.prefix, "/", label, ":", absl::StrJoin(members, ","));
    if (failed && options.store != nullptr) {
      BRIGADE_RETURN_IF_ERROR(options.store->KeepSurvivors(members, options.connect_timeout));
    }
    return CreateGlooTransport(part);
  };
  return NewMessageEngine(std::move(transport), std::move(regroup), context);
}

}  // namespace brigade::collectives
