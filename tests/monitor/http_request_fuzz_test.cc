// Requests to the page's server: an input is a head.

#include <string>

#include "absl/strings/string_view.h"
#include "brigade/monitor/dashboard/http_request.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::monitor {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const HttpRequest request =
      ParseRequest(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (request.refusal == nullptr) {
    FUZZ_CHECK(!request.path.empty() && request.path[0] == '/');
    FUZZ_CHECK(request.path.find_first_of(" ?\n") == std::string::npos);
    return 0;
  }
  // Nothing of the request is in what is said to it.
  const std::string head = HeadOf(*request.refusal);
  FUZZ_CHECK(head.find('\0') == std::string::npos && head.size() < 500);
  return 0;
}

}  // namespace brigade::monitor
