#include "brigade/digests/digest_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/digests/copies.h"
#include "brigade/kernels/digest/digest_cpu.h"

namespace brigade::digests {

using Json = nlohmann::ordered_json;
using kernels::TensorDigest;

namespace {

constexpr int kVersion = 1;
// Whose bytes can be counted.
constexpr int64_t kMostElements = int64_t{1} << 57;

Json HeaderOf(const DigestHeader& header) {
  Json tensors = Json::array();
  for (const TensorName& tensor : header.tensors) {
    tensors.push_back({{"unit", tensor.unit}, {"name", tensor.name}, {"shape", tensor.shape}});
  }
  return {{"brigade_digests", kVersion}, {"run", header.run}, {"tensors", std::move(tensors)}};
}

// Of what is no UTF-8 a file of JSON lines can hold nothing.
absl::Status CheckUtf8(const std::string& path, const std::string& text) {
  const absl::Status status = checkpoint::JsonString(text).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
}

std::optional<DigestHeader> ParseHeader(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("brigade_digests", Json()) != kVersion ||
      !json.contains("run") || !json["run"].is_string() || !json.contains("tensors") ||
      !json["tensors"].is_array()) {
    return std::nullopt;
  }
  DigestHeader header = {.tensors = {}, .run = json["run"].get<std::string>()};
  for (const Json& each : json["tensors"]) {
    if (!each.is_object() || !each.contains("unit") || !each["unit"].is_string() ||
        !each.contains("name") || !each["name"].is_string() || !each.contains("shape") ||
        !each["shape"].is_array()) {
      return std::nullopt;
    }
    TensorName tensor = {each["unit"], each["name"], {}, 1};
    for (const Json& extent : each["shape"]) {
      if (!extent.is_number_integer() || extent.get<int64_t>() < 0) return std::nullopt;
      tensor.shape.push_back(extent.get<int64_t>());
      if (__builtin_mul_overflow(tensor.size, extent.get<int64_t>(), &tensor.size)) {
        return std::nullopt;
      }
    }
    if (tensor.size > kMostElements) return std::nullopt;
    header.tensors.push_back(std::move(tensor));
  }
  return header;
}

std::optional<TensorDigest> ParseHex(const Json& json) {
  if (!json.is_string()) return std::nullopt;
  const std::string text = json.get<std::string>();
  TensorDigest digest;
  if (text.size() != 32 || !absl::SimpleHexAtoi(text.substr(0, 16), &digest.words[0]) ||
      !absl::SimpleHexAtoi(text.substr(16), &digest.words[1])) {
    return std::nullopt;
  }
  return digest;
}

bool IsOfUnit(const Json& json, const std::vector<TensorDigest>& tensors) {
  const TensorDigest digest = DigestOfUnit(tensors);
  const std::optional<TensorDigest> told = ParseHex(json);
  return told.has_value() && told->words[0] == digest.words[0] && told->words[1] == digest.words[1];
}

// How many lines Write makes of a step.
size_t LinesOfStep(const std::vector<TensorName>& tensors) {
  size_t lines = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (t == 0 || tensors[t].unit != tensors[t - 1].unit) ++lines;
  }
  return lines;
}

// The steps of a file, line by line.
class StepLines {
 public:
  explicit StepLines(const std::map<std::string, size_t>& numbers) : numbers_(numbers) {}

  // What is wrong with a unit's line, or null.
  const char* Add(const std::string& line) {
    const char* const none = "this is no line of digests";
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() ||
        !json.contains("skipped") || !json["skipped"].is_boolean() || !json.contains("tensors") ||
        !json["tensors"].is_object()) {
      return none;
    }
    const auto step = json["step"].get<int64_t>();
    if (step < 1 || (!steps_.empty() && step < steps_.back().step)) return none;
    if (steps_.empty() || steps_.back().step != step) {
      if (!is_whole()) return "the step before this line lacks tensors";
      steps_.push_back({.step = step,
                        .skipped = json["skipped"].get<bool>(),
                        .gradients = std::vector<TensorDigest>(numbers_.size()),
                        .weights = std::vector<TensorDigest>(numbers_.size())});
      seen_.assign(numbers_.size(), false);
      missing_ = numbers_.size();
    }
    StepRecord& record = steps_.back();
    if (record.skipped != json["skipped"].get<bool>()) return none;
    std::vector<TensorDigest> gradients_of_unit, weights_of_unit;
    for (const auto& [name, pair] : json["tensors"].items()) {
      const auto number = numbers_.find(name);
      if (number == numbers_.end() || !pair.is_array() || pair.size() != 2) return none;
      const size_t t = number->second;
      if (seen_[t]) return "the step has a tensor of this line twice";
      seen_[t] = true;
      --missing_;
      const std::optional<TensorDigest> weights = ParseHex(pair[1]);
      if (!weights.has_value()) return none;
      record.weights[t] = *weights;
      weights_of_unit.push_back(*weights);
      if (pair[0].is_null()) {
        record.gradients.clear();
        continue;
      }
      const std::optional<TensorDigest> gradients = ParseHex(pair[0]);
      if (!gradients.has_value() || record.gradients.empty()) return none;
      record.gradients[t] = *gradients;
      gradients_of_unit.push_back(*gradients);
    }
    // Else a file that has changed would look like a training that has.
    if (IsOfUnit(json.value("weights", Json()), weights_of_unit) &&
        (gradients_of_unit.empty() ||
         IsOfUnit(json.value("gradients", Json()), gradients_of_unit))) {
      return nullptr;
    }
    return "the unit's digest is not that of its tensors: the file has changed";
  }

  // But a last one of which tensors are missing, as of a run that was killed.
  std::vector<StepRecord> Take() {
    if (!is_whole()) steps_.pop_back();
    return std::move(steps_);
  }

 private:
  // The last step has all tensors, or there is none.
  bool is_whole() const { return missing_ == 0; }

  const std::map<std::string, size_t>& numbers_;
  std::vector<StepRecord> steps_;
  // Of the last step, by tensor.
  std::vector<bool> seen_;
  size_t missing_ = 0;
};

}  // namespace

TensorDigest DigestOfUnit(const std::vector<TensorDigest>& tensors) {
  const auto bytes = static_cast<int64_t>(tensors.size() * sizeof(TensorDigest));
  return kernels::DigestRange({tensors.data(), bytes, 0, 0, 0, 0}, 0, bytes);
}

absl::StatusOr<std::unique_ptr<DigestFile>> DigestFile::Create(const std::string& path,
                                                               const DigestHeader& header,
                                                               int64_t done) {
  for (const TensorName& tensor : header.tensors) {
    for (const std::string& name : {tensor.unit, tensor.name}) {
      BRIGADE_RETURN_IF_ERROR(CheckUtf8(path, name));
    }
  }
  BRIGADE_RETURN_IF_ERROR(CheckUtf8(path, header.run));
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const opened, device::OpenForUpdate(path));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closed(opened, &std::fclose);
  int64_t kept = 0;
  if (done > 0) {
    // Of a run that was killed the last step may have some of its lines.
    const size_t lines_of_step = LinesOfStep(header.tensors);
    size_t lines = 0;
    int64_t last_step = 0;
    BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      if (begin == 0) {
        const std::optional<DigestHeader> there = ParseHeader(line);
        if (!there.has_value() || HeaderOf(*there)["tensors"] != HeaderOf(header)["tensors"]) {
          return absl::InvalidArgumentError(
              absl::StrCat(path, " has no digests of this model, to go on with"));
        }
      } else {
        const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() ||
            json["step"].get<int64_t>() > done) {
          break;
        }
        const auto step = json["step"].get<int64_t>();
        lines = step == last_step ? lines + 1 : 1;
        last_step = step;
        if (lines < lines_of_step) continue;
      }
      kept = static_cast<int64_t>(end) + 1;
    }
  }
  if (ftruncate(fileno(opened), kept) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot go on with ", path));
  }
  BRIGADE_ASSIGN_OR_RETURN(device::AppendFile file, device::AppendFile::Open(path));
  if (kept == 0) BRIGADE_RETURN_IF_ERROR(file.Append(HeaderOf(header).dump() + "\n"));
  return std::unique_ptr<DigestFile>(new DigestFile(header, std::move(file)));
}

absl::Status DigestFile::Write(const StepRecord& record) {
  const std::vector<TensorName>& tensors = header_.tensors;
  std::string lines;
  for (size_t first = 0, end = 0; first < tensors.size(); first = end) {
    std::vector<TensorDigest> gradients, weights;
    Json pairs = Json::object();
    for (end = first; end < tensors.size() && tensors[end].unit == tensors[first].unit; ++end) {
      weights.push_back(record.weights[end]);
      Json pair = {nullptr, ToHex(record.weights[end])};
      if (!record.gradients.empty()) {
        gradients.push_back(record.gradients[end]);
        pair[0] = ToHex(record.gradients[end]);
      }
      pairs[tensors[end].name] = std::move(pair);
    }
    Json line = {{"step", record.step},
                 {"unit", tensors[first].unit},
                 {"skipped", record.skipped},
                 {"gradients", nullptr},
                 {"weights", ToHex(DigestOfUnit(weights))},
                 {"tensors", std::move(pairs)}};
    if (!gradients.empty()) line["gradients"] = ToHex(DigestOfUnit(gradients));
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  return file_.Append(lines);
}

absl::StatusOr<DigestLog> ReadDigests(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path));
  DigestLog log;
  std::map<std::string, size_t> numbers;
  StepLines steps(numbers);
  size_t count = 0, begin = 0;
  // Of long trainings files are large: no line is there twice. What is behind the last end of a
  // line is nothing, or a line that is cut off.
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++count;
    const std::string line = text.substr(begin, end - begin);
    const auto wrong = [&](const char* what) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", count, ": ", what));
    };
    if (count == 1) {
      std::optional<DigestHeader> header = ParseHeader(line);
      if (!header.has_value()) return wrong("this is no file of digests");
      log.header = *std::move(header);
      for (size_t t = 0; t < log.header.tensors.size(); ++t) {
        if (!numbers.emplace(log.header.tensors[t].name, t).second) {
          return wrong("two tensors have one name");
        }
      }
    } else if (const char* const what = steps.Add(line); what != nullptr) {
      return wrong(what);
    }
  }
  if (count == 0) return absl::InvalidArgumentError(path + ": this is no file of digests");
  log.steps = steps.Take();
  return log;
}

}  // namespace brigade::digests
