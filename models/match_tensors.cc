// Which tensor of Hugging Face's files is which parameter.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/tensor_values.h"
#include "brigade/models/weights.h"

namespace brigade::models {
namespace {

using checkpoint::PrintablePath;
using checkpoint::WeightFiles;
using device::Quoted;
using Tensor = WeightFiles::Tensor;

constexpr size_t kMostNames = 20;
// A message has 2,000 bytes: what does not fit is counted.
constexpr size_t kMostBytes = 900;
constexpr char kHead[] = "lm_head.weight";

// Things that are wrong alike.
class Faults {
 public:
  explicit Faults(absl::string_view what) : what_(what) {}

  void Add(const std::string& fault) {
    ++count_;
    if (shown_.size() >= kMostNames || bytes_ + fault.size() > kMostBytes) return;
    bytes_ += fault.size();
    shown_.push_back(fault);
  }
  // "2 tensors are missing: "a", "b""; nothing without any.
  void AppendTo(std::vector<std::string>& texts) const {
    if (count_ == 0) return;
    texts.push_back(absl::StrCat(count_, count_ == 1 ? " tensor is " : " tensors are ", what_, ": ",
                                 absl::StrJoin(shown_, ", "),
                                 count_ > shown_.size() ? ", ..." : ""));
  }

 private:
  const std::string what_;
  size_t count_ = 0, bytes_ = 0;
  std::vector<std::string> shown_;
};

bool IsLlama(const Decoder& model) { return model.config().architecture == Architecture::kLlama; }

// What comes before the names of all parameters but the head's.
absl::string_view PrefixOf(const Decoder& model) {
  return IsLlama(model) ? "model." : "transformer.";
}

// Tensors that are no weights: old versions saved them too.
bool IsNoWeight(const Decoder& model, const std::string& name) {
  if (IsLlama(model)) return absl::EndsWith(name, ".rotary_emb.inv_freq");
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias");
}

std::string FileOf(const WeightFiles& files, const Tensor& tensor) {
  return PrintablePath(files.files()[static_cast<size_t>(tensor.file)].path);
}

absl::StatusOr<bool> SameBytes(const WeightFiles& files, const Tensor& a, const Tensor& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<char> of_a(kChunk), of_b(kChunk);
  for (int64_t at = 0; at < a.bytes; at += kChunk) {
    const int64_t bytes = std::min(kChunk, a.bytes - at);
    BRIGADE_RETURN_IF_ERROR(files.Read(a, at, bytes, of_a.data()));
    BRIGADE_RETURN_IF_ERROR(files.Read(b, at, bytes, of_b.data()));
    if (std::memcmp(of_a.data(), of_b.data(), static_cast<size_t>(bytes)) != 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<const Tensor*>> MatchTensors(const WeightFiles& files,
                                                        const Decoder& model) {
  const absl::string_view prefix = PrefixOf(model);
  const bool has_prefix =
      std::any_of(files.tensors().begin(), files.tensors().end(),
                  [&](const Tensor& tensor) { return absl::StartsWith(tensor.name, prefix); });
  Faults missing("missing"), surplus("no parameters"), shapes("of another shape"),
      types("of a type that becomes no weight");
  std::vector<const Tensor*> tensors;
  std::set<const Tensor*> used;
  for (const ParameterRole& role : model.roles()) {
    if (role.is_adapter()) {
      tensors.push_back(nullptr);
      continue;
    }
    const std::string name(has_prefix ? role.name : absl::StripPrefix(role.name, prefix));
    const Tensor* const tensor = files.Find(name);
    tensors.push_back(tensor);
    if (tensor == nullptr) {
      missing.Add(Quoted(name));
      continue;
    }
    used.insert(tensor);
    const std::vector<uint64_t> shape(role.shape.begin(), role.shape.end());
    if (tensor->shape != shape) {
      shapes.Add(absl::StrCat(Quoted(name), " in ", FileOf(files, *tensor), " is [",
                              absl::StrJoin(tensor->shape, ", "), "] and not [",
                              absl::StrJoin(shape, ", "), "]"));
    } else if (!IsFloatType(tensor->type)) {
      types.Add(absl::StrCat(Quoted(name), " in ", FileOf(files, *tensor), " is ", tensor->type));
    }
  }
  for (const Tensor& tensor : files.tensors()) {
    if (used.count(&tensor) != 0 || IsNoWeight(model, tensor.name)) continue;
    if (model.config().tied && tensor.name == kHead && tensors.front() != nullptr) {
      BRIGADE_ASSIGN_OR_RETURN(const bool same, SameBytes(files, tensor, *tensors.front()));
      if (same) continue;
      surplus.Add(absl::StrCat(Quoted(tensor.name), " in ", FileOf(files, tensor),
                               " (the head is tied, and this is not the embedding)"));
      continue;
    }
    surplus.Add(absl::StrCat(Quoted(tensor.name), " in ", FileOf(files, tensor)));
  }
  std::vector<std::string> texts;
  for (const Faults* const faults : {&missing, &surplus, &shapes, &types}) faults->AppendTo(texts);
  if (texts.empty()) return tensors;
  return absl::InvalidArgumentError(absl::StrCat(PrintablePath(files.files().front().path),
                                                 files.files().size() > 1 ? " and others: " : ": ",
                                                 absl::StrJoin(texts, "; ")));
}

}  // namespace brigade::models
