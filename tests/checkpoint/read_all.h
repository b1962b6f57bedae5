#ifndef BRIGADE_TESTS_CHECKPOINT_READ_ALL_H_
#define BRIGADE_TESTS_CHECKPOINT_READ_ALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint::testing {

// The content of a file.
inline absl::StatusOr<std::string> ReadAll(device::SystemCalls& system, const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(const auto file, RandomAccessFile::Open(system, path));
  std::string content(static_cast<size_t>(file.size()), '\0');
  BRIGADE_RETURN_IF_ERROR(file.Read(content.data(), file.size(), 0));
  return content;
}

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_READ_ALL_H_
