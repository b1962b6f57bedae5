#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/weights.h"
#include "nlohmann/json.hpp"

namespace brigade::models {
namespace {

using checkpoint::Failed;
using checkpoint::PrintablePath;
using checkpoint::TensorInfo;
using checkpoint::WritableFile;

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Parameters [first, end) of the spec.
struct FilePlan {
  std::string name = {};
  int first = 0, end = 0;
  int64_t bytes = 0;
};

std::vector<const zero::ParameterSpec*> ParametersOf(const zero::ModelSpec& spec) {
  std::vector<const zero::ParameterSpec*> all;
  for (const zero::UnitSpec& unit : spec) {
    for (const zero::ParameterSpec& parameter : unit.parameters) all.push_back(&parameter);
  }
  return all;
}

std::vector<FilePlan> PlanFiles(const ParameterArrays& arrays, int64_t most) {
  std::vector<FilePlan> files(1);
  for (int p = 0; p < arrays.size(); ++p) {
    const int64_t bytes = arrays.size_of(p) * precision::SizeOf(arrays.dtype());
    if (files.back().bytes > 0 && files.back().bytes + bytes > most) {
      files.push_back({.first = p, .end = p});
    }
    files.back().end = p + 1;
    files.back().bytes += bytes;
  }
  for (size_t f = 0; f < files.size(); ++f) {
    files[f].name = files.size() == 1
                        ? "model.safetensors"
                        : absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, files.size());
  }
  return files;
}

absl::Status WriteText(device::SystemCalls& system, const std::string& path,
                       const std::string& text) {
  BRIGADE_ASSIGN_OR_RETURN(auto file,
                           WritableFile::Create(system, path, static_cast<int64_t>(text.size())));
  BRIGADE_RETURN_IF_ERROR(file.Write(text, 0));
  return file.Finish();
}

// Copies arrays to the host in chunks.
class Writer {
 public:
  Writer(const ParameterArrays& arrays, device::SystemCalls& system, device::Stream& stream,
         const device::Buffer& host)
      : arrays_(arrays), system_(system), stream_(stream), host_(host) {}

  absl::Status Write(const FilePlan& plan, const std::vector<const zero::ParameterSpec*>& specs,
                     const std::string& path) {
    std::vector<TensorInfo> tensors;
    for (int p = plan.first; p < plan.end; ++p) {
      const zero::ParameterSpec& spec = *specs[static_cast<size_t>(p)];
      tensors.push_back({.name = spec.name,
                         .type = std::string(checkpoint::TypeName(arrays_.dtype())),
                         .shape = {spec.shape.begin(), spec.shape.end()}});
    }
    // As transformers wants it.
    BRIGADE_ASSIGN_OR_RETURN(const std::string header,
                             checkpoint::MakeHeader(tensors, {{"format", "pt"}}));
    auto at = static_cast<int64_t>(header.size());
    BRIGADE_ASSIGN_OR_RETURN(auto file, WritableFile::Create(system_, path, at + plan.bytes));
    BRIGADE_RETURN_IF_ERROR(file.Write(header, 0));
    for (int p = plan.first; p < plan.end; ++p) {
      const int64_t bytes = arrays_.size_of(p) * precision::SizeOf(arrays_.dtype());
      for (int64_t done = 0; done < bytes; done += kChunkBytes) {
        const int64_t count = std::min(kChunkBytes, bytes - done);
        BRIGADE_RETURN_IF_ERROR(
            stream_.Copy(host_.data(), static_cast<const char*>(arrays_.weights(p)) + done, count));
        BRIGADE_RETURN_IF_ERROR(stream_.Synchronize());
        BRIGADE_RETURN_IF_ERROR(
            file.Write({static_cast<const char*>(host_.data()), static_cast<size_t>(count)}, at));
        at += count;
      }
    }
    return file.Finish();
  }

 private:
  const ParameterArrays& arrays_;
  device::SystemCalls& system_;
  device::Stream& stream_;
  const device::Buffer& host_;
};

std::string IndexText(const std::vector<FilePlan>& files,
                      const std::vector<const zero::ParameterSpec*>& specs) {
  nlohmann::json map = nlohmann::json::object();
  int64_t total = 0;
  for (const FilePlan& file : files) {
    total += file.bytes;
    for (int p = file.first; p < file.end; ++p)
      map[specs[static_cast<size_t>(p)]->name] = file.name;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

}  // namespace

absl::Status SaveWeights(const std::string& path, const Decoder& model, const ParameterArrays& from,
                         device::Context& context, const SaveWeightsOptions& options,
                         device::SystemCalls& system) {
  if (options.most_file_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("most_file_bytes is ", options.most_file_bytes, "; it must be at least 1"));
  }
  if (!precision::IsTrainingFormat(from.dtype())) {
    return absl::InvalidArgumentError("weights of float64 are for tests, and not saved");
  }
  const auto specs = ParametersOf(model.spec());
  if (static_cast<int>(specs.size()) != from.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays of ", from.size(), " parameters for a model of ", specs.size()));
  }
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder.empty()) return absl::InvalidArgumentError("the folder to write has no name");
  if (std::vector<std::string> names; system.List(folder, names) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(PrintablePath(folder), " is there already"));
  }
  const size_t slash = folder.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : folder.substr(0, slash + 1);
  std::random_device random;
  const std::string part = absl::StrFormat("%s.%s.part-%08x%08x", parent,
                                           folder.substr(parent.size()), random(), random());
  if (system.MakeFolder(part, 0777) != 0) return Failed("make", part);
  absl::Cleanup remove = [&] { checkpoint::RemoveFolderWithFiles(system, part).IgnoreError(); };
  const std::vector<FilePlan> files = PlanFiles(from, options.most_file_bytes);
  const auto path_of = [&](const std::string& name) { return absl::StrCat(part, "/", name); };
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context.CreateStream("save weights"));
  BRIGADE_ASSIGN_OR_RETURN(const auto host,
                           context.AllocateHost(kChunkBytes, device::Purpose::kScratch, "weights"));
  Writer writer(from, system, *stream, host);
  for (const FilePlan& file : files) {
    BRIGADE_RETURN_IF_ERROR(writer.Write(file, specs, path_of(file.name)));
  }
  if (files.size() > 1) {
    BRIGADE_RETURN_IF_ERROR(
        WriteText(system, path_of(checkpoint::kWeightIndexName), IndexText(files, specs)));
  }
  BRIGADE_RETURN_IF_ERROR(WriteText(system, path_of(kConfigName), ConfigJson(model.config())));
  // The names of all files, before the folder has its own.
  BRIGADE_RETURN_IF_ERROR(checkpoint::SyncFolder(system, part));
  if (system.RenameToNew(part, folder) != 0) return Failed("rename to", folder);
  std::move(remove).Cancel();
  return checkpoint::SyncFolder(system, parent.empty() ? "." : parent);
}

}  // namespace brigade::models
