#include "brigade/monitor/json_lines.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::monitor {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::unique_ptr<JsonLines>> JsonLines::Create(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(device::AppendFile file, device::AppendFile::Open(path));
  return std::unique_ptr<JsonLines>(new JsonLines(std::move(file)));
}

std::string JsonLines::name() const { return device::Printable(file_.path(), 400); }

absl::Status JsonLines::Start(const Position& from) {
  const bool is_first = !has_started_;
  has_started_ = true;
  return file_.KeepLines([&](absl::string_view line) {
    using Fate = device::AppendFile::Fate;
    if (from.step == 0) return Fate::kCutOff;
    const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
      return Fate::kDamaged;
    }
    const bool is_step = json.contains("seconds") && json["seconds"].is_number();
    if (json["step"].get<int64_t>() > from.step - (is_step ? 0 : 1)) return Fate::kCutOff;
    for (const auto& [key, value] : json.items()) {
      if (is_first && is_step && value.is_number()) before_[key] = value.get<double>();
    }
    return Fate::kKept;
  });
}

absl::Status JsonLines::Write(const Record& record) {
  Json line = {{"step", record.at.step}};
  for (const Value& value : record.values) {
    if (value.key.empty()) continue;
    if (value.kind == Value::Kind::kFlag) {
      line[value.key] = value.value != 0;
    } else {
      const auto before = before_.find(value.key);
      const bool adds = value.kind == Value::Kind::kSinceStart && before != before_.end();
      line[value.key] = value.value + (adds ? before->second : 0);
    }
  }
  if (line.size() == 1) return absl::OkStatus();
  return file_.Append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

absl::Status JsonLines::Finish() { return file_.Close(); }

}  // namespace brigade::monitor
