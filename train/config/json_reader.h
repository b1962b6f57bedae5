#ifndef BRIGADE_TRAIN_CONFIG_JSON_READER_H_
#define BRIGADE_TRAIN_CONFIG_JSON_READER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"
#include "nlohmann/json.hpp"

// JSON objects with known keys, read into variables. A table says of each key its name, what it may
// hold (json_values.h), where that goes, what it means, and whether it is supported. All refusals,
// the advice in them, and the page that describes the keys (key_page.h) come from the table.
namespace brigade::train {

using Json = nlohmann::json;

// What becomes of a value.
struct Verdict {
  enum class Kind : uint8_t {
    kTaken,
    // Accepted, but nothing follows from it: `text` says why.
    kNoEffect,
    // `text`: what it must be instead ("true or false").
    kWrong,
    // Of something that is not supported: `text` says what there is instead, or nothing.
    kNotSupported,
  };
  Kind kind = Kind::kTaken;
  std::string text = {};
};

// What a key may hold.
struct Value {
  // Takes a value, and may write it into its variable.
  std::function<Verdict(const Json& value)> read = nullptr;
  // The words for that: "a whole number, 1 or more".
  std::string type = {};
  // What counts where the key is not given, as JSON, or in words; empty: there is no default.
  std::string otherwise = {};
  // For the page, where what it may hold says what it means: "without effect: ...".
  std::string remark = {};
  // False of what is not supported, or only where it is off.
  bool is_supported = true;
};

// Of the value "auto", with which programs above DeepSpeed leave a key to their own flags.
struct Auto {
  // Our flag that gives the value instead; null: there is none.
  const char* flag = nullptr;
  // What is read in place of "auto", which is then accepted; null: as if the key were not given.
  std::optional<Json> value = {};
};

struct Key {
  const char* name;
  // Empty where `keys` or `types` are given.
  Value value = {};
  // For the page.
  std::string meaning = {};
  // The keys of the object that it holds.
  std::vector<Key> keys = {};
  // It holds {"type": the name of one, "params": {that one's keys}}, and `keys` beside these.
  // Without both it is as good as not given, unless it is required.
  std::vector<Key> types = {};
  // The advice of the error where the key is missing; null: the key is optional.
  const char* required = nullptr;
  // Another name of the key; null: it has one.
  const char* also = nullptr;
  Auto automatic = {};
  // Of an object: where its "enabled" is false nothing else in it is read.
  bool has_switch = false;
};
using Keys = std::vector<Key>;

// A key that is refused, or a flag.
struct Refusal {
  // "fp16.loss_scale", "--lr"; empty of a whole file, and of what several keys and flags say.
  std::string path;
  // The path, its value, and what it must be, what it contradicts, or the nearest key.
  std::string text;
  // Of what is not supported.
  bool not_supported = false;
  // What is not known either: of a key that there is not the path of the key that is most likely
  // meant, of a type its params.
  std::string hidden = {};
};

// Keys of an object are read in alphabetical order, whatever their order in the file, and an object
// inside in the place of its key. What an object lacks comes behind what it has.
struct Reading {
  // All of them.
  std::vector<Refusal> refusals;
  // Of each key that was accepted and has no effect: its path, its value and why.
  std::vector<std::string> without_effect;
};

// Reads `object`, which may have these keys and no others. Of keys that are refused targets keep
// what they have. In names of types upper and lower case are the same. `null` is as good as
// nothing.
Reading ReadObject(const Json& object, const Keys& keys);

// The value of "fp16.loss_scale" in an object; null where it is not given, or is null.
const Json* Find(const Json& object, absl::string_view path);

// Whether one of these keys, flags and objects, with blanks between, is not known: it is refused,
// or an object around it, or is hidden by a refusal. Of an object keys inside may be refused: that
// it is given is known. A refusal without a path hides nothing.
bool AnyRefused(absl::string_view paths, const std::vector<Refusal>& refusals);

// OK of none. Unimplemented if all are of what is not supported, else InvalidArgument; the text of
// one, or a line for each after their number.
absl::Status StatusOf(const std::vector<Refusal>& refusals);

// The path "fp16.loss_scale" of one key in the object at "fp16", fit to be printed.
std::string PathOf(absl::string_view path, absl::string_view name);

// "PATH is VALUE, but WHY". Value and reason may hold a name of a file, of any bytes.
std::string ButText(absl::string_view path, const Json& value, absl::string_view why);

// The value as refusals show it: without controls, and cut where it is long.
std::string ShortJson(const Json& value);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_JSON_READER_H_
