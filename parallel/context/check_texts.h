#ifndef BRIGADE_PARALLEL_CONTEXT_CHECK_TEXTS_H_
#define BRIGADE_PARALLEL_CONTEXT_CHECK_TEXTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::parallel {

// InvalidArgument naming both numbers unless a batch has 0 to `most` texts, for which the Create of
// an attention has made memory.
inline absl::Status CheckTexts(absl::string_view attention, int64_t texts, int64_t most) {
  if (texts >= 0 && texts <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(attention, ": a batch of ", texts, " texts of at most ", most));
}

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_CHECK_TEXTS_H_
