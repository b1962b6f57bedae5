#ifndef BRIGADE_DEVICE_EDIT_DISTANCE_H_
#define BRIGADE_DEVICE_EDIT_DISTANCE_H_

#include "absl/strings/string_view.h"

namespace brigade::device {

// How many letters must be changed, added or left out to make one name of the other: for errors
// that say which name is near. Levenshtein's, ignoring case, of the first 64 bytes, long enough for
// any name that is meant.
int EditDistance(absl::string_view a, absl::string_view b);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_EDIT_DISTANCE_H_
