#ifndef BRIGADE_DEVICE_USER_PATHS_H_
#define BRIGADE_DEVICE_USER_PATHS_H_

// Paths as users mean them, from wherever Bazel has moved the process.

#include <string>

namespace brigade::device {

// A path of the user's, from where the user stands, although `bazel run` moves the process.
std::string FromUsersFolder(const std::string& path);

// A file of the repository that the program's target names as `data`, from wherever the program was
// started: the path itself if it leads there from the working directory, as under `bazel run`, else
// what lies in the runfiles beside the program; if it is not there either, the path itself.
std::string DataFile(const std::string& path);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_USER_PATHS_H_
