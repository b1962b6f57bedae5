#include "brigade/recompute/operation.h"

#include "absl/strings/str_cat.h"

namespace brigade::recompute {

std::string ToString(const Operation& operation) {
  const int stage = operation.stage;
  switch (operation.action) {
    case Action::kForward:
      return absl::StrCat("forward ", stage, operation.far_end ? " far" : "");
    case Action::kForwardKeep:
      return absl::StrCat("keep ", stage);
    case Action::kForwardSave:
      return absl::StrCat("save ", stage, " option ", operation.option);
    case Action::kBackward:
      return absl::StrCat("backward ", stage, " option ", operation.option);
    case Action::kDrop:
      return absl::StrCat("drop ", stage);
    case Action::kWrite:
      return absl::StrCat("write ", stage);
    case Action::kRead:
      return absl::StrCat("read ", stage);
    case Action::kFetch:
      return absl::StrCat("fetch ", stage);
  }
  return "";
}

}  // namespace brigade::recompute
