#include "brigade/train/config/json_reader.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/edit_distance.h"
#include "brigade/device/printable.h"

namespace brigade::train {
namespace {

bool IsSupported(const Key& key) { return key.value.is_supported; }

constexpr absl::string_view kSwitch = "enabled";

// The member, unless it is null.
const Json* Member(const Json& object, absl::string_view name) {
  const auto found = object.find(std::string(name));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool IsGiven(const Json& object, const Key& key) {
  return Member(object, key.name) != nullptr ||
         (key.also != nullptr && Member(object, key.also) != nullptr);
}

// Whether its switch says so, in the file or by a flag in place of "auto".
bool IsOff(const Json& object, const Key& section) {
  if (!section.has_switch || !object.is_object()) return false;
  const auto key = std::find_if(section.keys.begin(), section.keys.end(),
                                [](const Key& each) { return each.name == kSwitch; });
  const Json* const said = Member(object, kSwitch);
  if (key == section.keys.end() || said == nullptr) return false;
  return (*said == Json("auto") ? key->automatic.value.value_or(*said) : *said) == Json(false);
}

// Of what is left unread, because another key has said what is wrong.
Value Anything() {
  return {[](const Json&) { return Verdict(); }};
}

// Of all names shown to it, the one nearest to `name`, if any is so near that it is most likely
// meant: the first of equals, supported ones before others, and those beside it before others.
class Nearest {
 public:
  explicit Nearest(absl::string_view name) : name_(name) {}

  void Add(absl::string_view name, absl::string_view path, absl::string_view type,
           bool is_supported, bool is_beside) {
    // Of as many letters one may be wrong.
    const int length = static_cast<int>(name_.size());
    const int limit = is_beside ? (length + 1) / 4 : length / 8;
    const int edits = device::EditDistance(name_, name);
    const int distance = 2 * (edits + !is_beside) + !is_supported;
    if (edits > limit || distance >= distance_) return;
    distance_ = distance;
    nearest_ =
        absl::StrCat(PathOf(path, name), type, is_supported ? "" : ", which is not supported yet");
  }

  // Keys inside others are not beside it.
  void Add(const Keys& keys, absl::string_view path, bool is_beside, absl::string_view type = "") {
    for (const Key& key : keys) {
      Add(key.name, path, type, IsSupported(key), is_beside);
      if (key.also != nullptr) Add(key.also, path, type, IsSupported(key), is_beside);
      if (!key.keys.empty()) Add(key.keys, PathOf(path, key.name), false, type);
      for (const Key& each : key.types) {
        Add(each.keys, PathOf(PathOf(path, key.name), "params"), false,
            absl::StrCat(" of type ", each.name));
      }
    }
  }

  // Empty: none.
  const std::string& nearest() const { return nearest_; }
  std::string Advice(absl::string_view otherwise = "") const {
    return nearest_.empty() ? std::string(otherwise) : absl::StrCat(", the nearest is ", nearest_);
  }

 private:
  const absl::string_view name_;
  int distance_ = std::numeric_limits<int>::max();
  std::string nearest_;
};

class Reader {
 public:
  explicit Reader(const Keys& root) : root_(root) {}

  void Object(absl::string_view path, const Json& object, const Keys& keys) {
    if (!object.is_object()) return Wrong(path, object, "an object");
    // What unknown names are most likely meant to be.
    std::set<std::string> meant;
    for (const auto& [name, value] : object.items()) {
      const auto key = std::find_if(keys.begin(), keys.end(), [&name = name](const Key& each) {
        return each.name == name || (each.also != nullptr && each.also == name);
      });
      const std::string place = PathOf(path, name);
      if (key == keys.end()) {
        meant.insert(Unknown(path, name, value, keys));
      } else if (value.is_null()) {
        continue;
      } else if (name != key->name && Member(object, key->name) != nullptr) {
        Refuse(place, absl::StrCat(place, " is ", ShortJson(value), "; it is another name of ",
                                   PathOf(path, key->name), ", which is given as well"));
      } else {
        ReadValue(place, value, *key);
      }
    }
    for (const Key& key : keys) {
      const std::string place = PathOf(path, key.name);
      if (key.required == nullptr || IsGiven(object, key) || meant.count(place) > 0) continue;
      Refuse(place, absl::StrCat(place, " is not given; ", key.required));
    }
  }

  Reading TakeReading() { return std::move(reading_); }

 private:
  void Refuse(absl::string_view path, std::string text, bool not_supported = false,
              const std::string& hidden = "") {
    reading_.refusals.push_back({std::string(path), std::move(text), not_supported, hidden});
  }

  void Wrong(absl::string_view path, const Json& value, absl::string_view wanted) {
    Refuse(path, absl::StrCat(path.empty() ? "the config" : path, " is ", ShortJson(value),
                              "; it must be ", wanted));
  }

  void ReadValue(absl::string_view path, const Json& value, const Key& key) {
    if (!key.types.empty()) return Typed(path, value, key);
    if (!key.keys.empty()) return IsOff(value, key) ? void() : Object(path, value, key.keys);
    if (value == Json("auto") && key.automatic.value.has_value()) return Filled(path, key);
    const Verdict verdict = key.value.read(value);
    switch (verdict.kind) {
      case Verdict::Kind::kTaken:
        return;
      case Verdict::Kind::kNoEffect:
        reading_.without_effect.push_back(
            absl::StrCat(path, " is ", ShortJson(value), ": ", verdict.text));
        return;
      case Verdict::Kind::kNotSupported:
        return Refuse(path,
                      absl::StrCat(path, " is ", ShortJson(value),
                                   "; DeepSpeed knows it, but it is not supported yet",
                                   verdict.text.empty() ? "" : ": ", verdict.text),
                      true);
      case Verdict::Kind::kWrong:
        if (value == Json("auto")) return Automatic(path, verdict.text, key);
        return Wrong(path, value, verdict.text);
    }
  }

  // "auto" where a flag fills it in.
  void Filled(absl::string_view path, const Key& key) {
    const Json& value = *key.automatic.value;
    if (value.is_null()) return;
    const Verdict verdict = key.value.read(value);
    if (verdict.kind == Verdict::Kind::kTaken) return;
    const char* const flag = key.automatic.flag;
    Refuse(flag, absl::StrCat(flag, " is ", ShortJson(value), ", which ", path,
                              " is, being \"auto\"; it must be ", verdict.text));
  }

  // "auto" where no flag has filled it in.
  void Automatic(absl::string_view path, absl::string_view wanted, const Key& key) {
    const std::string& otherwise = key.value.otherwise;
    const std::string flag =
        key.automatic.flag == nullptr ? "" : absl::StrCat("give ", key.automatic.flag, ", ");
    const std::string omit = otherwise.empty() || key.required != nullptr
                                 ? ""
                                 : absl::StrCat("leave the key out for ", otherwise, ", ");
    const std::string advice = absl::StrCat(flag, omit);
    Refuse(path, absl::StrCat(path, " is \"auto\", which nothing fills in here: ", advice,
                              advice.empty() ? "" : "or ", "write ", wanted));
  }

  void Typed(absl::string_view path, const Json& value, const Key& key) {
    if (!value.is_object()) return Wrong(path, value, "an object");
    Key type = {.name = "type", .value = Anything()};
    Key params = {.name = "params", .value = Anything()};
    const Json* const given = Member(value, "params");
    const bool is_none = key.required == nullptr && Member(value, "type") == nullptr &&
                         (given == nullptr || given->empty());
    const Key* const found = is_none ? nullptr : TypeOf(path, value, key.types);
    if (found == nullptr && !is_none) reading_.refusals.back().hidden = PathOf(path, "params");
    if (found != nullptr) {
      type.value = found->value;
      params.keys = found->keys;
      // Without params those that are required are missing as well.
      if (given == nullptr) ReadValue(PathOf(path, "params"), Json::object(), params);
    }
    Keys keys = key.keys;
    keys.insert(keys.end(), {type, params});
    Object(path, value, keys);
  }

  // Null, and a refusal, where there is none that is supported.
  const Key* TypeOf(absl::string_view path, const Json& value, const Keys& types) {
    const std::string place = PathOf(path, "type");
    const Json* const given = Member(value, "type");
    std::string valid = "one of ";
    for (const Key& each : types) {
      if (!IsSupported(each)) continue;
      absl::StrAppend(&valid, absl::EndsWith(valid, " of ") ? "" : ", ", each.name);
    }
    if (given == nullptr) {
      Refuse(place, absl::StrCat(place, " is not given; it must be ", valid));
      return nullptr;
    }
    if (!given->is_string()) {
      Wrong(place, *given, absl::StrCat("a string, ", valid));
      return nullptr;
    }
    const std::string& name = given->get_ref<const std::string&>();
    const auto type = std::find_if(types.begin(), types.end(), [&](const Key& each) {
      return absl::EqualsIgnoreCase(each.name, name);
    });
    if (type == types.end()) {
      Nearest nearest(name);
      for (const Key& each : types) nearest.Add(each.name, "", "", IsSupported(each), true);
      const std::string advice = nearest.Advice();
      Refuse(place, absl::StrCat(place, " is ", ShortJson(*given), "; there is no such type",
                                 advice, advice.empty() ? ": " : "; ", "it must be ", valid));
      return nullptr;
    }
    if (IsSupported(*type)) return &*type;
    const size_t before = reading_.refusals.size();
    ReadValue(place, *given, {.name = "type", .value = type->value});
    if (reading_.refusals.size() > before) {
      absl::StrAppend(&reading_.refusals.back().text, "; it must be ", valid);
    }
    return nullptr;
  }

  // The key that is nearest, if any is near.
  std::string Unknown(absl::string_view path, const std::string& name, const Json& value,
                      const Keys& keys) {
    Nearest nearest(name);
    nearest.Add(keys, path, true);
    nearest.Add(root_, "", false);
    const std::string place = PathOf(path, name);
    Refuse(
        place,
        absl::StrCat(place, " is ", ShortJson(value), "; there is no such key", nearest.Advice()),
        /*not_supported=*/false, nearest.nearest());
    return nearest.nearest();
  }

  const Keys& root_;
  Reading reading_;
};

std::string Printable(absl::string_view text) {
  constexpr size_t kMost = 170;
  return device::Printable(text, kMost);
}

}  // namespace

Reading ReadObject(const Json& object, const Keys& keys) {
  Reader reader(keys);
  reader.Object("", object, keys);
  return reader.TakeReading();
}

const Json* Find(const Json& object, absl::string_view path) {
  const Json* found = &object;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    if (!found->is_object()) return nullptr;
    found = Member(*found, name);
    if (found == nullptr) return nullptr;
  }
  return found;
}

bool AnyRefused(absl::string_view paths, const std::vector<Refusal>& refusals) {
  const auto is_in = [](absl::string_view path, absl::string_view object) {
    return path == object || absl::StartsWith(path, absl::StrCat(object, "."));
  };
  for (const absl::string_view path : absl::StrSplit(paths, ' ', absl::SkipEmpty())) {
    for (const Refusal& refusal : refusals) {
      if (is_in(path, refusal.path) || is_in(path, refusal.hidden)) return true;
    }
  }
  return false;
}

absl::Status StatusOf(const std::vector<Refusal>& refusals) {
  if (refusals.empty()) return absl::OkStatus();
  const bool none_is_supported =
      std::all_of(refusals.begin(), refusals.end(),
                  [](const Refusal& refusal) { return refusal.not_supported; });
  std::string text = refusals[0].text;
  if (refusals.size() > 1) {
    // A file that is no config at all may have any number of them.
    constexpr size_t kMost = 100;
    size_t flags = 0, keys = 0;
    for (const Refusal& refusal : refusals) {
      // Without a name it may be of both.
      const bool is_flag = absl::StartsWith(refusal.path, "--");
      const bool has_name = refusal.path != "--" && !refusal.path.empty();
      flags += is_flag && has_name;
      keys += !is_flag && has_name;
    }
    text = absl::StrCat(refusals.size(),
                        flags == refusals.size()  ? " flags"
                        : keys == refusals.size() ? " keys"
                                                  : " keys and flags",
                        " are refused:");
    for (size_t i = 0; i < std::min(refusals.size(), kMost); ++i) {
      absl::StrAppend(&text, "\n  ", refusals[i].text);
    }
    if (refusals.size() > kMost) {
      absl::StrAppend(&text, "\n  and ", refusals.size() - kMost, " more");
    }
  }
  return none_is_supported ? absl::UnimplementedError(text) : absl::InvalidArgumentError(text);
}

std::string PathOf(absl::string_view path, absl::string_view name) {
  return absl::StrCat(path, path.empty() ? "" : ".", Printable(name));
}

std::string ButText(absl::string_view path, const Json& value, absl::string_view why) {
  constexpr bool kAscii = true;
  return device::Printable(absl::StrCat(path, " is ", value.dump(-1, ' ', kAscii), ", but ", why));
}

std::string ShortJson(const Json& value) {
  constexpr bool kAscii = true;
  const char* type = value.is_string()   ? ", a string"
                     : value.is_array()  ? ", an array"
                     : value.is_object() ? ", an object"
                                         : "";
  return absl::StrCat(Printable(value.dump(-1, ' ', kAscii)), type);
}

}  // namespace brigade::train
