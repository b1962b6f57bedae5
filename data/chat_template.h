#ifndef BRIGADE_DATA_CHAT_TEMPLATE_H_
#define BRIGADE_DATA_CHAT_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::data {

// Who says something.
enum class ChatRole : uint8_t { kSystem, kUser, kAssistant };

// "system", "user" or "assistant"; InvalidArgument with the choices.
absl::StatusOr<ChatRole> ParseChatRole(absl::string_view text);

struct Turn {
  ChatRole role = ChatRole::kUser;
  std::string content = {};
};

// A piece of a text on which the loss counts or not.
struct ChatPart {
  std::string text = {};
  // From the template: its special tokens are tokens. Else it comes from the data, where they are
  // text.
  bool is_template = false;
  // The model learns to write it.
  bool counts = false;
  // There is no text: the token that ends one stands here, if the tokenizer has it.
  bool is_end = false;

  bool operator==(const ChatPart&) const = default;
};

// How turns become a text. What an assistant says counts, with what ends its turn; what begins it
// does not, because it is given when the model is asked.
struct ChatTemplate {
  struct Around {
    std::string before = {};
    std::string after = {};
  };

  // Before the first turn.
  std::string begin = {};
  Around system = {}, user = {}, assistant = {};
  // The end of a text behind each answer, if the tokenizer has such a token; it counts.
  bool ends_answers = false;
  // Blanks and newlines around what is said are left out.
  bool trims = false;

  // By name: those of PresetNames().
  //   plain     turns as they are, a newline behind prompts, the end of a text behind answers
  //   alpaca    "### Instruction:" and "### Response:", the end of a text behind answers
  //   chatml    <|im_start|>user ... <|im_end|>, as Qwen's
  //   llama3    <|start_header_id|>user<|end_header_id|> ... <|eot_id|>
  // Else a JSON file with the fields above: {"begin": "", "user": ["before", "after"], ...,
  // "ends_answers": true}, of which `assistant` must be there. InvalidArgument with the names, or
  // naming the file, its line and column, or the key.
  static absl::StatusOr<ChatTemplate> FromNameOrFile(const std::string& name_or_path);
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view json);
  static std::vector<std::string> PresetNames();

  const Around& of(ChatRole role) const {
    return role == ChatRole::kSystem ? system : role == ChatRole::kUser ? user : assistant;
  }
  // The text of turns; parts that are empty are left out.
  std::vector<ChatPart> Render(const std::vector<Turn>& turns) const;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_CHAT_TEMPLATE_H_
