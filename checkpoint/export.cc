#include "brigade/checkpoint/export.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

using precision::DType;

// A name, and one beside it that is hidden and new.
struct OutPath {
  explicit OutPath(const std::string& out) {
    const size_t last = out.find_last_not_of('/');
    path = out.substr(0, last == std::string::npos ? 1 : last + 1);
    const size_t slash = path.rfind('/');
    const std::string before = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    folder = before.empty() ? "." : before;
    std::random_device random;
    part = absl::StrFormat("%s.%s.part-%08x%08x", before, path.substr(before.size()), random(),
                           random());
  }
  std::string path, folder, part;
};

// OK if there is nothing, or a file that may be replaced.
absl::Status CheckFree(device::SystemCalls& system, const std::string& path, bool force) {
  const absl::Status opened = RandomAccessFile::Open(system, path).status();
  if (absl::IsNotFound(opened)) return absl::OkStatus();
  if (!opened.ok() && !absl::IsInvalidArgument(opened)) return opened;
  if (force) return opened;
  return absl::AlreadyExistsError(absl::StrCat(PrintablePath(path), " is there already"));
}

// A parameter in the checkpoint.
struct Source {
  TensorInfo tensor = {};
  DType dtype = DType::kFloat32;
  DType written_as = DType::kFloat32;
  // Of the manifest; bytes in it.
  int file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

// The tensors of the files that the index names.
absl::StatusOr<std::vector<Source>> FindParameters(CheckpointReader& reader,
                                                   std::optional<DType> dtype) {
  const Manifest& manifest = reader.manifest();
  BRIGADE_ASSIGN_OR_RETURN(const auto headers, reader.ReadHeaders());
  BRIGADE_ASSIGN_OR_RETURN(const WeightIndex index, reader.ReadIndex());
  std::map<std::string, const SafetensorsHeader*> named;
  for (size_t f = 0; f < headers.size(); ++f) named[manifest.files[f].name] = &headers[f];
  std::map<std::string, const SafetensorsHeader*> files;
  for (const auto& entry : index.file_of) {
    if (named.count(entry.second) != 0) files[entry.second] = named[entry.second];
  }
  BRIGADE_RETURN_IF_ERROR(CheckWeightIndex(index, files));

  std::vector<Source> sources;
  for (size_t f = 0; f < headers.size(); ++f) {
    if (files.count(manifest.files[f].name) == 0) continue;
    for (size_t t = 0; t < headers[f].tensors.size(); ++t) {
      const TensorInfo& tensor = headers[f].tensors[t];
      const std::optional<DType> type = DTypeOf(tensor.type);
      if (!type.has_value() || !precision::IsTrainingFormat(*type)) {
        return absl::InvalidArgumentError(
            absl::StrCat(device::Quoted(tensor.name), " is ", tensor.type, ", no parameter"));
      }
      sources.push_back({.tensor = tensor,
                         .dtype = *type,
                         .written_as = dtype.value_or(*type),
                         .file = static_cast<int>(f),
                         .offset = static_cast<int64_t>(headers[f].data_begin + tensor.begin),
                         .bytes = static_cast<int64_t>(tensor.end - tensor.begin),
                         .crc32c = manifest.files[f].tensors[t].crc32c});
    }
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    return precision::SizeOf(a.written_as) > precision::SizeOf(b.written_as);
  });
  return sources;
}

// The elements in another type.
std::string Convert(absl::string_view bytes, DType from, DType to) {
  std::string converted(bytes.size() / static_cast<size_t>(precision::SizeOf(from)) *
                            static_cast<size_t>(precision::SizeOf(to)),
                        '\0');
  precision::VisitFloat(from, [&](auto in) {
    precision::VisitFloat(to, [&](auto out) {
      for (size_t i = 0; i < bytes.size() / sizeof(in); ++i) {
        std::memcpy(&in, bytes.data() + i * sizeof(in), sizeof(in));
        out = static_cast<decltype(out)>(static_cast<float>(in));
        std::memcpy(converted.data() + i * sizeof(out), &out, sizeof(out));
      }
    });
  });
  return converted;
}

// Each tensor behind the one before it, from `at` on.
absl::Status WriteTensors(CheckpointReader& reader, const std::vector<Source>& sources, int64_t at,
                          int64_t chunk_bytes, const WritableFile& file) {
  std::vector<ReadRange> ranges;
  for (const Source& source : sources) {
    ranges.push_back({.source = source.file, .offset = source.offset, .bytes = source.bytes});
  }
  uint32_t sum = 0;
  return ReadAhead(
      ranges, chunk_bytes,
      [&](const ReadRange& part, char* to) {
        return reader.Read(part.source, part.offset, part.bytes, to);
      },
      [&](const ReadChunk& chunk) -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(chunk.bytes.status());
        const absl::string_view bytes = *chunk.bytes;
        const Source& source = sources[chunk.range];
        sum = device::Crc32c(bytes, chunk.offset == 0 ? 0 : sum);
        if (chunk.offset + static_cast<int64_t>(bytes.size()) == source.bytes &&
            sum != source.crc32c) {
          const Manifest::File& in = reader.manifest().files[static_cast<size_t>(source.file)];
          return absl::DataLossError(
              SumError(absl::StrCat(PrintablePath(absl::StrCat(reader.folder(), "/", in.name)),
                                    " is damaged: tensor ", device::Quoted(source.tensor.name)),
                       sum, source.crc32c));
        }
        const int64_t begin = at;
        if (source.written_as == source.dtype) {
          at += static_cast<int64_t>(bytes.size());
          return file.Write(bytes, begin);
        }
        const std::string converted = Convert(bytes, source.dtype, source.written_as);
        at += static_cast<int64_t>(converted.size());
        return file.Write(converted, begin);
      });
}

// A file of the manifest, whole.
absl::Status CopyFile(CheckpointReader& reader, int index, int64_t chunk_bytes,
                      const WritableFile& to) {
  const Manifest::File& file = reader.manifest().files[static_cast<size_t>(index)];
  uint32_t sum = 0;
  BRIGADE_RETURN_IF_ERROR(ReadAhead(
      {{.source = index, .bytes = file.bytes}}, chunk_bytes,
      [&](const ReadRange& part, char* at) {
        return reader.Read(part.source, part.offset, part.bytes, at);
      },
      [&](const ReadChunk& chunk) -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(chunk.bytes.status());
        sum = device::Crc32c(*chunk.bytes, sum);
        return to.Write(*chunk.bytes, chunk.offset);
      }));
  if (sum == file.crc32c) return absl::OkStatus();
  return absl::DataLossError(SumError(
      absl::StrCat(PrintablePath(absl::StrCat(reader.folder(), "/", file.name)), " is damaged: it"),
      sum, file.crc32c));
}

}  // namespace

absl::StatusOr<ExportReport> ExportParameters(const std::string& folder, const std::string& out,
                                              const ExportOptions& options,
                                              device::SystemCalls& system) {
  const OutPath to(out);
  BRIGADE_ASSIGN_OR_RETURN(auto reader, CheckpointReader::Open(system, folder));
  BRIGADE_RETURN_IF_ERROR(CheckFree(system, to.path, options.force));
  BRIGADE_ASSIGN_OR_RETURN(const auto sources, FindParameters(reader, options.dtype));
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  for (const Source& source : sources) {
    TensorInfo& tensor = tensors.emplace_back(source.tensor);
    tensor.type = std::string(TypeName(source.written_as));
    bytes += source.bytes / precision::SizeOf(source.dtype) * precision::SizeOf(source.written_as);
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::string header, MakeHeader(tensors, {{"format", "pt"}}));
  const auto header_bytes = static_cast<int64_t>(header.size());
  bytes += header_bytes;
  absl::Cleanup remove = [&] { system.Unlink(to.part); };
  {
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system, to.part, bytes));
    BRIGADE_RETURN_IF_ERROR(file.Write(header, 0));
    BRIGADE_RETURN_IF_ERROR(WriteTensors(reader, sources, header_bytes, options.chunk_bytes, file));
    BRIGADE_RETURN_IF_ERROR(file.Finish());
  }
  const int renamed =
      options.force ? system.Rename(to.part, to.path) : system.RenameToNew(to.part, to.path);
  if (renamed != 0) return Failed("rename to", to.path);
  std::move(remove).Cancel();
  BRIGADE_RETURN_IF_ERROR(SyncFolder(system, to.folder));
  return ExportReport{.files = 1, .tensors = static_cast<int>(sources.size()), .bytes = bytes};
}

absl::StatusOr<ExportReport> ExportFolder(const std::string& folder, const std::string& out,
                                          int64_t chunk_bytes, device::SystemCalls& system) {
  const OutPath to(out);
  BRIGADE_ASSIGN_OR_RETURN(auto reader, CheckpointReader::Open(system, folder));
  BRIGADE_RETURN_IF_ERROR(reader.ReadHeaders().status());
  if (std::vector<std::string> names; system.List(to.path, names) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(PrintablePath(to.path), " is there already"));
  }
  BRIGADE_RETURN_IF_ERROR(CheckFree(system, to.path, /*force=*/false));
  if (system.MakeFolder(to.part, 0777) != 0) return Failed("make", to.part);
  absl::Cleanup remove = [&] { RemoveFolderWithFiles(system, to.part).IgnoreError(); };
  Manifest manifest = reader.manifest();
  ExportReport report = {.files = static_cast<int>(manifest.files.size())};
  const auto path_of = [&](absl::string_view name) { return absl::StrCat(to.part, "/", name); };
  for (int f = 0; f < report.files; ++f) {
    const Manifest::File& file = manifest.files[static_cast<size_t>(f)];
    BRIGADE_ASSIGN_OR_RETURN(auto copy,
                             WritableFile::Create(system, path_of(file.name), file.bytes));
    BRIGADE_RETURN_IF_ERROR(CopyFile(reader, f, chunk_bytes, copy));
    BRIGADE_RETURN_IF_ERROR(copy.Finish());
    report.tensors += static_cast<int>(file.tensors.size());
    report.bytes += file.bytes;
  }
  manifest.pieces.clear();
  BRIGADE_ASSIGN_OR_RETURN(const std::string text, ManifestText(manifest));
  {
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system, path_of(kManifestName),
                                                             static_cast<int64_t>(text.size())));
    BRIGADE_RETURN_IF_ERROR(file.Write(text, 0));
    BRIGADE_RETURN_IF_ERROR(file.Finish());
  }
  // The names of all files, before the folder has its own.
  BRIGADE_RETURN_IF_ERROR(SyncFolder(system, to.part));
  if (system.RenameToNew(to.part, to.path) != 0) return Failed("rename to", to.path);
  std::move(remove).Cancel();
  BRIGADE_RETURN_IF_ERROR(SyncFolder(system, to.folder));
  return report;
}

}  // namespace brigade::checkpoint
