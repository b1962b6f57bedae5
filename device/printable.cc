#include "brigade/device/printable.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::device {

std::string Printable(absl::string_view text, size_t most) {
  std::string printable;
  for (const char c : text) {
    if (printable.size() > most - 8) return printable + "...";
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      printable += c;
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return printable;
}

std::string Quoted(absl::string_view text, size_t most) {
  return absl::StrCat("\"", Printable(text, most), "\"");
}

}  // namespace brigade::device
