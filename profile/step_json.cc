// What ranks tell each other of a step.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "brigade/profile/collective_calls.h"
#include "brigade/profile/step_profile.h"

namespace brigade::profile {
namespace {

using Json = nlohmann::json;

Json OfFlops(const Flops& flops) {
  return {flops.products, flops.attention, flops.scores, flops.norms, flops.pointwise};
}

bool AreNumbers(const Json& json, size_t count) {
  if (!json.is_array() || json.size() != count) return false;
  for (const Json& each : json) {
    if (!each.is_number()) return false;
  }
  return true;
}

bool Read(const Json& json, Flops& flops) {
  if (!AreNumbers(json, 5)) return false;
  flops = {json[0], json[1], json[2], json[3], json[4]};
  return true;
}

bool Read(const Json& json, UnitSize& unit) {
  if (!json.is_array() || json.size() != 2 + kPasses || !json[0].is_string() ||
      !json[1].is_number_integer()) {
    return false;
  }
  unit.name = json[0];
  unit.parameters = json[1];
  for (size_t pass = 0; pass < kPasses; ++pass) {
    if (!Read(json[2 + pass], unit.flops[pass])) return false;
  }
  return true;
}

bool Read(const Json& json, Row& row) {
  if (!json.is_array() || json.size() != 9 || !json[0].is_string() || !json[4].is_string() ||
      !AreNumbers(json[8], kLimits)) {
    return false;
  }
  for (const size_t i : {1, 2, 3, 5, 6, 7}) {
    if (!json[i].is_number()) return false;
  }
  const int pass = json[2], kind = json[3];
  if (pass < 0 || pass > static_cast<int>(Pass::kNone) || kind < 0 ||
      kind > static_cast<int>(Kind::kIdle)) {
    return false;
  }
  row = {.stream = json[0],
         .place = {json[1], static_cast<Pass>(pass)},
         .kind = static_cast<Kind>(kind),
         .name = json[4],
         .calls = json[5],
         .seconds = json[6],
         .bytes = json[7]};
  for (size_t i = 0; i < kLimits; ++i) row.limits[i] = json[8][i];
  return true;
}

bool Read(const Json& json, Sent& sent) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_string() || !json[1].is_number()) {
    return false;
  }
  sent = {json[0], json[1]};
  return true;
}

bool Read(const Json& json, CollectiveCalls& calls) {
  if (!json.is_array() || json.size() != 6 || !json[0].is_string() || !json[1].is_string() ||
      !json[2].is_number_integer()) {
    return false;
  }
  for (const size_t i : {3, 4, 5}) {
    if (!json[i].is_number()) return false;
  }
  calls = {.stream = json[0],
           .name = json[1],
           .calls = json[2],
           .seconds = json[3],
           .waiting_seconds = json[4],
           .sent_bytes = json[5]};
  return true;
}

bool Read(const Json& json, std::map<std::string, double>& rates) {
  if (!json.is_object()) return false;
  for (const auto& [name, rate] : json.items()) {
    if (!rate.is_number()) return false;
    rates[name] = rate;
  }
  return true;
}

template <typename T>
bool ReadAll(const Json& json, std::vector<T>& all) {
  if (!json.is_array()) return false;
  for (const Json& each : json) {
    if (!Read(each, all.emplace_back())) return false;
  }
  return true;
}

}  // namespace

std::string ToJson(const RankStep& step) {
  Json units = Json::array(), rows = Json::array(), sent = Json::array();
  for (const UnitSize& unit : step.units) {
    Json json = {unit.name, unit.parameters};
    for (const Flops& flops : unit.flops) json.push_back(OfFlops(flops));
    units.push_back(std::move(json));
  }
  for (const Row& row : step.rows) {
    rows.push_back({row.stream, row.place.unit, static_cast<int>(row.place.pass),
                    static_cast<int>(row.kind), row.name, row.calls, row.seconds, row.bytes,
                    Json(row.limits)});
  }
  for (const Sent& each : step.sent) sent.push_back({each.to, each.bytes});
  Json calls = Json::array();
  for (const CollectiveCalls& each : step.calls) {
    calls.push_back(
        {each.stream, each.name, each.calls, each.seconds, each.waiting_seconds, each.sent_bytes});
  }
  const Ceilings& c = step.ceilings;
  const Json json = {
      {"seconds", step.seconds},
      {"units", std::move(units)},
      {"rows", std::move(rows)},
      {"main", step.main},
      {"sent", std::move(sent)},
      {"calls", std::move(calls)},
      {"ceilings", {c.flops_per_second, c.memory_bytes_per_second, c.network_bytes_per_second}},
      {"collectives", Json(c.collective_bytes_per_second)},
      {"source", c.source},
      {"dropped", step.dropped}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<RankStep> RankStepFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const absl::Status wrong = absl::InvalidArgumentError("what a rank has told is no profile");
  if (!json.is_object()) return wrong;
  for (const char* const key : {"seconds", "units", "rows", "main", "sent", "calls", "ceilings",
                                "collectives", "source", "dropped"}) {
    if (!json.contains(key)) return wrong;
  }
  RankStep step;
  if (!json["seconds"].is_number() || !json["main"].is_string() || !json["source"].is_string() ||
      !json["dropped"].is_number_integer() || !AreNumbers(json["ceilings"], 3) ||
      !ReadAll(json["units"], step.units) || !ReadAll(json["rows"], step.rows) ||
      !ReadAll(json["sent"], step.sent) || !ReadAll(json["calls"], step.calls) ||
      !Read(json["collectives"], step.ceilings.collective_bytes_per_second)) {
    return wrong;
  }
  step.seconds = json["seconds"];
  step.main = json["main"];
  step.dropped = json["dropped"];
  step.ceilings.flops_per_second = json["ceilings"][0];
  step.ceilings.memory_bytes_per_second = json["ceilings"][1];
  step.ceilings.network_bytes_per_second = json["ceilings"][2];
  step.ceilings.source = json["source"];
  return step;
}

}  // namespace brigade::profile
