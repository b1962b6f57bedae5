#ifndef BRIGADE_DEVICE_PRINTABLE_H_
#define BRIGADE_DEVICE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::device {

// What came from outside, fit for a message: at most `most` bytes of it, of at least 8, and none
// that a terminal obeys: those that are no printable ASCII as \x1b. Messages have at most 2,000
// bytes; by default this leaves room for the words around it.
std::string Printable(absl::string_view text, size_t most = 1800);

// The same between quotation marks, for a name amid a sentence.
std::string Quoted(absl::string_view text, size_t most = 200);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_PRINTABLE_H_
