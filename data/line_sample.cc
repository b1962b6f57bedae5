#include "brigade/data/line_sample.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/printable.h"

namespace brigade::data {
namespace {

// "line 1, column " is where JsonHandler says that something is.
constexpr absl::string_view kColumn = "line 1, column ";

// Keeps the values of some keys as they come.
class LineHandler : public checkpoint::JsonHandler {
 public:
  LineHandler(const LineKeys& keys, LineSample& sample) : keys_(keys), sample_(sample) {}

  bool null() override { return Other("null"); }
  bool boolean(bool value) override { return Other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return OtherNumber(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return OtherNumber(absl::StrCat(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return OtherNumber(device::Printable(text, 64));
  }

  bool string(string_t& text) override {
    if (depth_ == 0) return Other("a string");
    if (depth_ == 1 && field_ != kNone) {
      if (field_ == kMessages) return Other("a string");
      values_[field_] = std::move(text);
      return true;
    }
    if (is_message() && field_in_message_ != kNone) {
      message_[field_in_message_] = std::move(text);
      return true;
    }
    return depth_ == 2 && in_messages_ ? Other("a string") : true;
  }

  bool start_object(std::size_t) override { return Open(true); }
  bool start_array(std::size_t) override { return Open(false); }
  bool end_object() override {
    if (is_message() && !AddMessage()) return false;
    --depth_;
    field_in_message_ = kNone;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 1) in_messages_ = false;
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ == 1) return Key(FieldOf(text), field_, seen_, text);
    if (!is_message()) return true;
    const Field field = text == "role" ? kRole : text == "content" ? kContent : kNone;
    return Key(field, field_in_message_, seen_in_message_, text);
  }

  // Behind the last byte: which kind of line it is.
  absl::Status Finish() {
    const bool has_turns = seen_[kPrompt] || seen_[kAnswer];
    if (int{seen_[kMessages]} + int{seen_[kText]} + int{has_turns} != 1) {
      return absl::InvalidArgumentError(absl::StrCat("the line has ", Names(), "; it needs ",
                                                     keys_.messages, ", or ", keys_.text, ", or ",
                                                     keys_.prompt, " and ", keys_.answer));
    }
    if (seen_[kText]) sample_.text = std::move(values_[kText]);
    if (has_turns) {
      if (!seen_[kPrompt] || !seen_[kAnswer]) {
        return absl::InvalidArgumentError(
            absl::StrCat("the line has no ", seen_[kPrompt] ? keys_.answer : keys_.prompt));
      }
      if (seen_[kSystem]) sample_.turns.push_back({ChatRole::kSystem, std::move(values_[kSystem])});
      sample_.turns.push_back({ChatRole::kUser, std::move(values_[kPrompt])});
      sample_.turns.push_back({ChatRole::kAssistant, std::move(values_[kAnswer])});
    }
    const bool has_answer =
        std::any_of(sample_.turns.begin(), sample_.turns.end(),
                    [](const Turn& turn) { return turn.role == ChatRole::kAssistant; });
    if (!seen_[kText] && !has_answer) {
      return absl::InvalidArgumentError(
          absl::StrCat(keys_.messages, " has no turn of the assistant, so nothing to learn"));
    }
    return absl::OkStatus();
  }

 private:
  enum Field { kPrompt, kAnswer, kSystem, kMessages, kText, kRole, kContent, kFields, kNone };
  using Seen = std::array<bool, kFields>;

  // Inside an object of the messages.
  bool is_message() const { return in_messages_ && depth_ == 3; }

  Field FieldOf(const std::string& key) const {
    return key == keys_.prompt     ? kPrompt
           : key == keys_.answer   ? kAnswer
           : key == keys_.system   ? kSystem
           : key == keys_.messages ? kMessages
           : key == keys_.text     ? kText
                                   : kNone;
  }

  bool Key(Field field, Field& current, Seen& seen, const std::string& name) {
    current = field;
    if (field == kNone) return true;
    if (seen[field]) {
      return Fail(device::Printable(name, 64), " is given twice, again at ", Line());
    }
    return seen[field] = true;
  }

  bool Open(bool is_object) {
    const bool is_line = depth_ == 0 && is_object;
    const bool is_messages = depth_ == 1 && field_ == kMessages && !is_object;
    const bool is_one = depth_ == 2 && in_messages_ && is_object;
    if (!is_line && !is_messages && !is_one && !Other(is_object ? "an object" : "an array")) {
      return false;
    }
    in_messages_ = in_messages_ || is_messages;
    if (is_one) {
      seen_in_message_ = {};
      field_in_message_ = kNone;
      message_ = {};
    }
    ++depth_;
    return true;
  }

  bool AddMessage() {
    for (const auto& [field, name] : {std::pair(kRole, "role"), std::pair(kContent, "content")}) {
      if (!seen_in_message_[field]) {
        return Fail(keys_.messages, "[", sample_.turns.size(), "] has no ", name, ", at ", Line());
      }
    }
    const absl::StatusOr<ChatRole> role = ParseChatRole(message_[kRole]);
    if (!role.ok()) return Fail(role.status().message(), ", at ", Line());
    sample_.turns.push_back({*role, std::move(message_[kContent])});
    return true;
  }

  // A value that is no string: wrong where one is wanted, else passed over.
  bool Other(absl::string_view what) {
    const std::string wrong = Wrong(what);
    return wrong.empty() || Fail(wrong, ", at ", Line());
  }
  bool OtherNumber(absl::string_view what) {
    const std::string wrong = Wrong(what);
    return wrong.empty() || Fail(wrong, ", at ", LineOfNumber());
  }
  // What is wrong with a value here; empty: nothing.
  std::string Wrong(absl::string_view what) const {
    if (depth_ == 0) return absl::StrCat("the line is ", what, ", not an object");
    if (depth_ == 1 && field_ != kNone) {
      return absl::StrCat(keys_of(field_), " is ", what, ", not ",
                          field_ == kMessages ? "an array" : "a string");
    }
    if (!in_messages_) return "";
    const std::string message = absl::StrCat(keys_.messages, "[", sample_.turns.size(), "]");
    if (depth_ == 2) return absl::StrCat(message, " is ", what, ", not an object");
    if (is_message() && field_in_message_ != kNone) {
      return absl::StrCat(message, field_in_message_ == kRole ? ".role" : ".content", " is ", what,
                          ", not a string");
    }
    return "";
  }

  const std::string& keys_of(Field field) const {
    return field == kPrompt     ? keys_.prompt
           : field == kAnswer   ? keys_.answer
           : field == kSystem   ? keys_.system
           : field == kMessages ? keys_.messages
                                : keys_.text;
  }

  std::string Names() const {
    std::string names;
    for (const Field field : {kPrompt, kAnswer, kMessages, kText}) {
      if (seen_[field]) absl::StrAppend(&names, names.empty() ? "" : " and ", keys_of(field));
    }
    return names.empty() ? "nothing to read" : names;
  }

  const LineKeys& keys_;
  LineSample& sample_;
  int64_t depth_ = 0;
  bool in_messages_ = false;
  // Of the value that comes next, in the line's object and in a message.
  Field field_ = kNone, field_in_message_ = kNone;
  Seen seen_ = {}, seen_in_message_ = {};
  std::array<std::string, kFields> values_, message_;
};

// The message for a line of a file: the column apart, and no "line 1".
LineError ErrorOf(const absl::Status& status) {
  LineError error;
  const absl::string_view message = status.message();
  // The parser's place is in front of what it has read, a handler's behind.
  const size_t parser = message.find(absl::StrCat("parse error at ", kColumn));
  const size_t at =
      parser == absl::string_view::npos ? message.rfind(kColumn) : message.find(kColumn, parser);
  std::string text(message);
  if (at != absl::string_view::npos) {
    const size_t digits = at + kColumn.size();
    size_t end = digits;
    while (end < message.size() && absl::ascii_isdigit(static_cast<unsigned char>(message[end]))) {
      ++end;
    }
    if (!absl::SimpleAtoi(message.substr(digits, end - digits), &error.column)) error.column = 0;
    // "..., at line 1, column 3" ends there; the parser's own words go on behind a colon.
    absl::string_view before = message.substr(0, at);
    if (absl::ConsumeSuffix(&before, "parse error at ") || absl::ConsumeSuffix(&before, ", at ")) {
      absl::string_view behind = message.substr(end);
      absl::ConsumePrefix(&behind, ": ");
      text = absl::StrCat(before, behind);
    }
  }
  error.message = absl::StrReplaceAll(text, {{"\n", ";"}});
  return error;
}

}  // namespace

absl::Status CheckKeys(const LineKeys& keys) {
  const std::array<const std::string*, 5> all = {&keys.prompt, &keys.answer, &keys.system,
                                                 &keys.messages, &keys.text};
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->empty()) return absl::InvalidArgumentError("the name of a key is empty");
    for (size_t j = 0; j < i; ++j) {
      if (*all[i] != *all[j]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the key ", device::Quoted(*all[i]), " is named for two things"));
    }
  }
  return absl::OkStatus();
}

std::optional<LineError> ParseLine(absl::string_view line, const LineKeys& keys,
                                   LineSample& sample) {
  sample = {};
  LineHandler handler(keys, sample);
  absl::Status status = checkpoint::ReadJson(line, handler);
  if (status.ok()) status = handler.Finish();
  if (status.ok()) return std::nullopt;
  return ErrorOf(status);
}

}  // namespace brigade::data
