#include "brigade/data/chat_template.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/data/bad_data.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

using Json = nlohmann::json;

ChatTemplate ChatMl() {
  return {.system = {"<|im_start|>system\n", "<|im_end|>\n"},
          .user = {"<|im_start|>user\n", "<|im_end|>\n"},
          .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"}};
}

ChatTemplate Llama3() {
  const auto around = [](absl::string_view role) -> ChatTemplate::Around {
    return {absl::StrCat("<|start_header_id|>", role, "<|end_header_id|>\n\n"), "<|eot_id|>"};
  };
  return {.begin = "<|begin_of_text|>",
          .system = around("system"),
          .user = around("user"),
          .assistant = around("assistant"),
          .trims = true};
}

std::map<std::string, ChatTemplate> Presets() {
  return {{"plain", {.system = {"", "\n"}, .user = {"", "\n"}, .ends_answers = true}},
          {"alpaca",
           {.system = {"", "\n\n"},
            .user = {"### Instruction:\n", "\n\n"},
            .assistant = {"### Response:\n", ""},
            .ends_answers = true}},
          {"chatml", ChatMl()},
          {"llama3", Llama3()}};
}

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

std::string Shown(const Json& value) {
  constexpr size_t kMost = 120;
  return device::Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace), kMost);
}

absl::Status Read(const std::string& key, const Json& value, ChatTemplate& chat) {
  const std::map<std::string, ChatTemplate::Around*> arounds = {
      {"system", &chat.system}, {"user", &chat.user}, {"assistant", &chat.assistant}};
  const std::map<std::string, bool*> flags = {{"ends_answers", &chat.ends_answers},
                                              {"trims", &chat.trims}};
  if (const auto around = arounds.find(key); around != arounds.end()) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_string()) {
      return Invalid(key, " is ", Shown(value), ", not the two strings around a turn");
    }
    *around->second = {value[0].get<std::string>(), value[1].get<std::string>()};
    return absl::OkStatus();
  }
  if (const auto flag = flags.find(key); flag != flags.end()) {
    if (!value.is_boolean()) return Invalid(key, " is ", Shown(value), ", not true or false");
    *flag->second = value.get<bool>();
    return absl::OkStatus();
  }
  if (key != "begin") {
    return Invalid(device::Quoted(key),
                   " is none of begin, system, user, assistant, ends_answers, trims");
  }
  if (!value.is_string()) return Invalid(key, " is ", Shown(value), ", not a string");
  chat.begin = value.get<std::string>();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatRole> ParseChatRole(absl::string_view text) {
  if (text == "system") return ChatRole::kSystem;
  if (text == "user") return ChatRole::kUser;
  if (text == "assistant") return ChatRole::kAssistant;
  return Invalid("the role ", device::Quoted(text, 64), " is none of system, user, assistant");
}

std::vector<std::string> ChatTemplate::PresetNames() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : Presets()) names.push_back(name);
  return names;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view json) {
  BRIGADE_ASSIGN_OR_RETURN(const Json file, checkpoint::ParseJson(json));
  if (!file.is_object()) return Invalid("it is ", Shown(file), ", not an object");
  if (!file.contains("assistant")) return Invalid("there is no key assistant");
  ChatTemplate chat;
  for (const auto& [key, value] : file.items()) BRIGADE_RETURN_IF_ERROR(Read(key, value, chat));
  return chat;
}

absl::StatusOr<ChatTemplate> ChatTemplate::FromNameOrFile(const std::string& name_or_path) {
  std::map<std::string, ChatTemplate> presets = Presets();
  const auto preset = presets.find(name_or_path);
  if (preset != presets.end()) return std::move(preset->second);
  constexpr int64_t kMostBytes = 1 << 20;
  const auto text = device::ReadFile(name_or_path, kMostBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("a chat template is ", absl::StrJoin(PresetNames(), ", "),
                                     " or a file: ", text.status().message()));
  }
  absl::StatusOr<ChatTemplate> chat = Parse(*text);
  if (chat.ok()) return chat;
  return absl::Status(chat.status().code(),
                      absl::StrCat(ShownPath(name_or_path), ": ", chat.status().message()));
}

std::vector<ChatPart> ChatTemplate::Render(const std::vector<Turn>& turns) const {
  std::vector<ChatPart> parts;
  const auto add = [&](absl::string_view text, bool is_template, bool counts) {
    if (!text.empty()) parts.push_back({std::string(text), is_template, counts});
  };
  add(begin, true, false);
  for (const Turn& turn : turns) {
    const Around& around = of(turn.role);
    const bool is_answer = turn.role == ChatRole::kAssistant;
    add(around.before, true, false);
    add(trims ? absl::StripAsciiWhitespace(turn.content) : turn.content, false, is_answer);
    add(around.after, true, is_answer);
    if (is_answer && ends_answers) {
      parts.push_back({.is_template = true, .counts = true, .is_end = true});
    }
  }
  return parts;
}

}  // namespace brigade::data
