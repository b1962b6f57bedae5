#include "brigade/digests/tensor_dump.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::digests {
namespace {

constexpr precision::DType kTypes[] = {precision::DType::kFloat32, precision::DType::kFloat16,
                                       precision::DType::kBFloat16};

std::string PathOf(const std::string& folder, const std::string& kind, const std::string& name,
                   precision::DType dtype) {
  return absl::StrCat(folder, "/", kind, "/", name, ".", precision::ShortName(dtype));
}

absl::Status WriteAt(int fd, const char* from, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t written = pwrite(fd, from, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::ErrnoToStatus(written < 0 ? errno : EIO, "cannot write");
    from += written;
    bytes -= written;
    offset += written;
  }
  return absl::OkStatus();
}

// The runs of a piece, each to its place.
absl::Status WritePiece(int fd, const TensorPiece& piece) {
  const int64_t run = piece.run == 0 ? piece.size : piece.run;
  for (int64_t at = 0, to = piece.first; at < piece.size; at += run, to += piece.stride) {
    BRIGADE_RETURN_IF_ERROR(WriteAt(fd, piece.data + at, std::min(run, piece.size - at), to));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TensorDump::Keep(const char* kind, absl::Span<const zero::ObservedArray> arrays,
                              device::Stream& stream) {
  if (!is_first_group_) return absl::OkStatus();
  for (const zero::ObservedArray& array : arrays) {
    const int64_t bytes = array.range.size * precision::SizeOf(array.dtype);
    Kept kept = {kind, array, {}};
    BRIGADE_ASSIGN_OR_RETURN(
        kept.bytes, context_.AllocateHost(bytes, device::Purpose::kScratch, "tensors to dump"));
    BRIGADE_RETURN_IF_ERROR(stream.Copy(kept.bytes.data(), array.data, bytes));
    kept.array.data = kept.bytes.data();
    kept_.push_back(std::move(kept));
  }
  return absl::OkStatus();
}

absl::Status TensorDump::Write() {
  for (const char* const kind : {"gradients", "weights"}) {
    std::error_code error;
    const std::string folder = absl::StrCat(folder_, "/", kind);
    std::filesystem::create_directories(folder, error);
    if (error) {
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", folder));
    }
  }
  absl::Status status;
  for (const Kept& kept : kept_) {
    map_.ForEachPiece(kept.array, [&](const TensorPiece& piece) {
      if (!status.ok() || !map_.counts(piece.tensor)) return;
      const TensorName& tensor = map_.tensors()[static_cast<size_t>(piece.tensor)];
      const std::string path = PathOf(folder_, kept.kind, tensor.name, kept.array.dtype);
      const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
      status = fd < 0 ? absl::ErrnoToStatus(errno, "cannot open") : WritePiece(fd, piece);
      if (fd >= 0 && close(fd) != 0) status.Update(absl::ErrnoToStatus(errno, "cannot close"));
      if (!status.ok()) {
        status = absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
      }
    });
  }
  kept_.clear();
  return status;
}

absl::StatusOr<DumpedTensor> ReadDumped(const std::string& folder, const std::string& kind,
                                        const TensorName& tensor) {
  for (const precision::DType dtype : kTypes) {
    const std::string path = PathOf(folder, kind, tensor.name, dtype);
    std::error_code none;
    if (std::filesystem::status(path, none).type() == std::filesystem::file_type::not_found) {
      continue;
    }
    // Of what cannot be looked at the error comes from here.
    BRIGADE_ASSIGN_OR_RETURN(std::string bytes, device::ReadFile(path));
    const int64_t wanted = tensor.size * precision::SizeOf(dtype);
    if (static_cast<int64_t>(bytes.size()) != wanted) {
      return absl::DataLossError(absl::StrCat(path, " has ", bytes.size(), " bytes, not ", wanted));
    }
    return DumpedTensor{path, dtype, std::move(bytes)};
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no ", PathOf(folder, kind, tensor.name, kTypes[0]), ", nor one of another type"));
}

}  // namespace brigade::digests
