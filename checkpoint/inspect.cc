#include "brigade/checkpoint/inspect.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {
namespace {

std::string Shown(absl::string_view text) { return device::Printable(text, 200); }

void AppendFields(absl::string_view title, const Fields& fields, std::string& text) {
  absl::StrAppend(&text, title, "\n");
  for (const auto& [name, value] : fields) {
    absl::StrAppendFormat(&text, "  %-40s %s\n", Shown(name), Shown(value));
  }
}

void AppendFile(absl::string_view name, int64_t bytes, uint32_t crc32c, std::string& text) {
  absl::StrAppendFormat(&text, "  %-40s %d bytes, crc32c %08x\n", Shown(name), bytes, crc32c);
}

// "[4, 256] bfloat16, ...", as ParameterFields writes it: 1024. A field that is not so counts 0.
int64_t ElementsOf(absl::string_view field) {
  int64_t elements = 1, extent = 0;
  for (const char c : field) {
    if (c >= '0' && c <= '9') {
      if (__builtin_mul_overflow(extent, 10, &extent) ||
          __builtin_add_overflow(extent, c - '0', &extent)) {
        return 0;
      }
    } else if (c == ',' || c == ']') {
      if (__builtin_mul_overflow(elements, extent, &elements)) return 0;
      extent = 0;
      if (c == ']') return elements;
    }
  }
  return 0;
}

int64_t BytesOf(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const Manifest::File& file : manifest.files) bytes += file.bytes;
  return bytes;
}

void AppendCheckpoint(const std::string& folder, const Manifest& manifest, std::string& text) {
  absl::StrAppend(&text, PrintablePath(folder), ": a checkpoint, ",
                  manifest.pieces.empty() ? "in place" : "in piece files", "\n");
  AppendFields("state", manifest.state, text);
  AppendFields("rates", manifest.rates, text);
  AppendFields("options", manifest.options, text);
  AppendFields("training", manifest.training, text);
  AppendFields("parameters", manifest.parameters, text);
  absl::StrAppend(&text, "files\n");
  for (const Manifest::File& file : manifest.files) {
    AppendFile(file.name, file.bytes, file.crc32c, text);
  }
  if (!manifest.pieces.empty()) absl::StrAppend(&text, "piece files, which hold them\n");
  for (const PieceFile& file : manifest.pieces) {
    AppendFile(file.name, file.bytes, file.crc32c, text);
  }
  int64_t elements = 0;
  for (const auto& parameter : manifest.parameters) {
    // Of a checkpoint that is none there may be more than fit.
    if (__builtin_add_overflow(elements, ElementsOf(parameter.second), &elements)) {
      elements = std::numeric_limits<int64_t>::max();
      break;
    }
  }
  absl::StrAppend(&text, "total: ", manifest.parameters.size(), " parameters of ", elements,
                  " elements, ", BytesOf(manifest), " bytes\n");
}

absl::Status AppendRoot(const std::string& root, const std::vector<int64_t>& steps,
                        std::string& text, device::SystemCalls& system) {
  absl::Status first;
  for (const int64_t step : steps) {
    const std::string path = CheckpointPath(root, step);
    const auto reader = CheckpointReader::Open(system, path);
    first.Update(reader.status());
    absl::StrAppend(&text, PrintablePath(path), ": ");
    if (reader.ok()) {
      absl::StrAppend(&text, reader->manifest().parameters.size(), " parameters, ",
                      BytesOf(reader->manifest()), " bytes, ",
                      reader->manifest().pieces.empty() ? "in place" : "in piece files");
    } else {
      absl::StrAppend(&text, "damaged");
    }
    absl::StrAppend(&text, step == steps.back() ? "  <- the newest\n" : "\n");
  }
  return first;
}

void AppendWeights(const WeightFiles& weights, std::string& text) {
  int64_t bytes = 0;
  size_t next = 0;
  for (size_t f = 0; f < weights.files().size(); ++f) {
    const WeightFiles::File& file = weights.files()[f];
    absl::StrAppend(&text, PrintablePath(file.path), ": ", file.bytes, " bytes\n");
    for (const auto& [name, value] : file.metadata) {
      absl::StrAppend(&text, "  ", Shown(name), " = ", Shown(value), "\n");
    }
    for (; next < weights.tensors().size() && weights.tensors()[next].file == static_cast<int>(f);
         ++next) {
      const WeightFiles::Tensor& tensor = weights.tensors()[next];
      absl::StrAppendFormat(&text, "  %-40s %s [%s] %d bytes\n", Shown(tensor.name), tensor.type,
                            absl::StrJoin(tensor.shape, ", "), tensor.bytes);
      bytes += tensor.bytes;
    }
  }
  absl::StrAppend(&text, "total: ", weights.tensors().size(), " tensors, ", bytes, " bytes\n");
}

}  // namespace

absl::Status Inspect(const std::string& path, std::string& text, device::SystemCalls& system) {
  std::vector<std::string> names;
  if (system.List(path, names) == 0) {
    if (absl::c_linear_search(names, kManifestName)) {
      BRIGADE_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(system, path));
      AppendCheckpoint(path, reader.manifest(), text);
      return absl::OkStatus();
    }
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCheckpoints(system, path));
    if (!steps.empty()) return AppendRoot(path, steps, text, system);
  }
  BRIGADE_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(path, system));
  AppendWeights(weights, text);
  return absl::OkStatus();
}

}  // namespace brigade::checkpoint
