#ifndef BRIGADE_DEVICE_COUNTED_H_
#define BRIGADE_DEVICE_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace brigade::device {

// "1 layer", "4 layers", "2 micro-batches".
inline std::string Counted(int64_t number, absl::string_view noun) {
  const char* const plural = absl::EndsWith(noun, "s") || absl::EndsWith(noun, "ch") ? "es" : "s";
  return absl::StrCat(number, " ", noun, number == 1 ? "" : plural);
}

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_COUNTED_H_
