#include "brigade/checkpoint/weight_files.h"

#include <cstddef>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

constexpr char kOneFileName[] = "model.safetensors";

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(PrintablePath(path), ": ", status.message()));
}

// What a folder has of the three: the path of a file, or of a checkpoint.
absl::StatusOr<std::string> PathInFolder(device::SystemCalls& system, const std::string& folder,
                                         const std::vector<std::string>& names) {
  const bool one = absl::c_linear_search(names, kOneFileName);
  const bool index = absl::c_linear_search(names, kWeightIndexName);
  if (one != index) return absl::StrCat(folder, "/", one ? kOneFileName : kWeightIndexName);
  if (one) {
    return absl::InvalidArgumentError(absl::StrCat(PrintablePath(folder), " has ", kOneFileName,
                                                   " and ", kWeightIndexName,
                                                   ": name one of them"));
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto steps, ListCheckpoints(system, folder));
  if (!steps.empty()) return CheckpointPath(folder, steps.back());
  return absl::NotFoundError(absl::StrCat(PrintablePath(folder), " has neither ", kOneFileName,
                                          " nor ", kWeightIndexName, ", and no checkpoint"));
}

}  // namespace

absl::StatusOr<WeightFiles> WeightFiles::Open(const std::string& path,
                                              device::SystemCalls& system) {
  WeightFiles files;
  std::string file = path;
  bool is_checkpoint = false;
  if (std::vector<std::string> names; system.List(path, names) == 0) {
    is_checkpoint = absl::c_linear_search(names, kManifestName);
    if (!is_checkpoint) {
      BRIGADE_ASSIGN_OR_RETURN(file, PathInFolder(system, path, names));
      is_checkpoint = !absl::EndsWith(file, kOneFileName) && !absl::EndsWith(file, ".json");
    }
  }
  if (is_checkpoint) {
    BRIGADE_RETURN_IF_ERROR(files.OpenCheckpoint(system, file));
  } else if (absl::EndsWith(file, ".json")) {
    BRIGADE_RETURN_IF_ERROR(files.OpenFilesOf(system, file));
  } else {
    BRIGADE_ASSIGN_OR_RETURN(const auto header, files.OpenFile(system, file));
    files.AddTensors(0, header);
  }
  for (size_t t = 0; t < files.tensors_.size(); ++t) files.by_name_[files.tensors_[t].name] = t;
  return files;
}

absl::StatusOr<SafetensorsHeader> WeightFiles::OpenFile(device::SystemCalls& system,
                                                        const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(auto file, RandomAccessFile::Open(system, path));
  absl::Status read;
  const auto read_at = [&](int64_t offset, int64_t bytes, void* to) {
    return read = file.Read(to, bytes, offset);
  };
  absl::StatusOr<SafetensorsHeader> header =
      ReadHeader(static_cast<uint64_t>(file.size()), read_at);
  BRIGADE_RETURN_IF_ERROR(read);
  if (!header.ok()) return Named(path, header.status());
  files_.push_back({.path = path, .bytes = file.size(), .metadata = header->metadata});
  open_.push_back(std::move(file));
  return header;
}

absl::Status WeightFiles::OpenFilesOf(device::SystemCalls& system, const std::string& index_path) {
  BRIGADE_ASSIGN_OR_RETURN(const auto file, RandomAccessFile::Open(system, index_path));
  if (file.size() > static_cast<int64_t>(kMostWeightIndexBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(PrintablePath(index_path), " has ", file.size(), " bytes, too many"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  BRIGADE_RETURN_IF_ERROR(file.Read(text.data(), file.size(), 0));
  const absl::StatusOr<WeightIndex> index = ParseWeightIndex(text);
  if (!index.ok()) return Named(index_path, index.status());

  std::map<std::string, SafetensorsHeader> headers;
  for (const auto& entry : index->file_of) headers[entry.second];
  std::map<std::string, const SafetensorsHeader*> by_file;
  const size_t slash = index_path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : index_path.substr(0, slash + 1);
  for (auto& [name, header] : headers) {
    BRIGADE_ASSIGN_OR_RETURN(header, OpenFile(system, folder + name));
    by_file[name] = &header;
  }
  const absl::Status checked = CheckWeightIndex(*index, by_file);
  if (!checked.ok()) return Named(index_path, checked);
  int opened = 0;
  for (const auto& each : headers) AddTensors(opened++, each.second);
  return absl::OkStatus();
}

absl::Status WeightFiles::OpenCheckpoint(device::SystemCalls& system, const std::string& folder) {
  BRIGADE_ASSIGN_OR_RETURN(auto opened, CheckpointReader::Open(system, folder));
  checkpoint_ = std::make_unique<Checkpoint>(std::move(opened));
  device::MutexLock lock(checkpoint_->mutex);
  CheckpointReader& reader = checkpoint_->reader;
  BRIGADE_ASSIGN_OR_RETURN(const auto headers, reader.ReadHeaders());
  BRIGADE_ASSIGN_OR_RETURN(const WeightIndex index, reader.ReadIndex());
  for (size_t f = 0; f < headers.size(); ++f) {
    const Manifest::File& file = reader.manifest().files[f];
    SafetensorsHeader header = headers[f];
    // Moments have the names of their weights, in files of their own.
    std::erase_if(header.tensors, [&](const TensorInfo& tensor) {
      const auto found = index.file_of.find(tensor.name);
      return found == index.file_of.end() || found->second != file.name;
    });
    if (header.tensors.empty()) continue;
    AddTensors(static_cast<int>(files_.size()), header);
    files_.push_back({.path = absl::StrCat(folder, "/", file.name),
                      .bytes = file.bytes,
                      .metadata = header.metadata});
    checkpoint_->numbers.push_back(static_cast<int>(f));
  }
  return absl::OkStatus();
}

void WeightFiles::AddTensors(int file, const SafetensorsHeader& header) {
  for (const TensorInfo& tensor : header.tensors) {
    tensors_.push_back({.name = tensor.name,
                        .type = tensor.type,
                        .shape = tensor.shape,
                        .file = file,
                        .offset = static_cast<int64_t>(header.data_begin + tensor.begin),
                        .bytes = static_cast<int64_t>(tensor.end - tensor.begin)});
  }
}

const WeightFiles::Tensor* WeightFiles::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

absl::Status WeightFiles::Read(const Tensor& tensor, int64_t offset, int64_t bytes,
                               void* to) const {
  const auto file = static_cast<size_t>(tensor.file);
  if (checkpoint_ == nullptr) return open_[file].Read(to, bytes, tensor.offset + offset);
  device::MutexLock lock(checkpoint_->mutex);
  return checkpoint_->reader.Read(checkpoint_->numbers[file], tensor.offset + offset, bytes, to);
}

}  // namespace brigade::checkpoint
