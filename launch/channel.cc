#include "brigade/launch/channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/printable.h"

namespace brigade::launch {
namespace {

// Before each message, with its length and a line's end.
constexpr absl::string_view kMark = "@brigade_launch ";
// Of a line before the first message.
constexpr size_t kMostNoise = 4096;

void CloseEnd(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

}  // namespace

Channel::Channel(int input, int output) : input_(input), output_(output) {
  for (const int end : {input, output}) fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
}

Channel::~Channel() {
  CloseEnd(input_);
  CloseEnd(output_);
}

void Channel::Send(const Message& message) {
  if (output_ < 0) return;
  const std::string packed = collectives::PackFields(message);
  absl::StrAppend(&unsent_, kMark, packed.size(), "\n", packed);
  Flush();
}

void Channel::Flush() {
  size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t wrote = write(output_, unsent_.data() + sent, unsent_.size() - sent);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno != EAGAIN) {
      CloseOutput();
      return;
    }
    if (wrote < 0) break;
    sent += static_cast<size_t>(wrote);
  }
  unsent_.erase(0, sent);
}

void Channel::CloseOutput() {
  unsent_.clear();
  CloseEnd(output_);
}

absl::StatusOr<bool> Channel::Read() {
  char bytes[1 << 16];
  const ssize_t got = read(input_, bytes, sizeof(bytes));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) {
    CloseEnd(input_);
    return false;
  }
  received_.append(bytes, static_cast<size_t>(got));
  return true;
}

absl::StatusOr<std::optional<Message>> Channel::Next() {
  // Behind what a shell has said without an end of the line.
  const size_t mark = has_begun_ ? 0 : received_.find(kMark.data());
  if (mark != 0 && mark != std::string::npos && received_.find('\n') > mark) {
    const std::string text = received_.substr(0, mark);
    received_.erase(0, mark);
    return Message{"noise", text};
  }
  const size_t end = received_.find('\n');
  if (end == std::string::npos) {
    if (received_.size() <= kMostNoise) return std::nullopt;
    return absl::InvalidArgumentError("a long line instead of a message");
  }
  absl::string_view line = absl::string_view(received_).substr(0, end);
  if (!absl::ConsumePrefix(&line, kMark)) {
    const std::string text(absl::StripSuffix(line, "\r"));
    if (has_begun_) {
      return absl::InvalidArgumentError(
          absl::StrCat(device::Quoted(text), " instead of a message"));
    }
    received_.erase(0, end + 1);
    return Message{"noise", text};
  }
  size_t size = 0;
  if (!absl::SimpleAtoi(line, &size) || size > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(device::Quoted(line), " is no length of a message"));
  }
  has_begun_ = true;
  if (received_.size() - end - 1 < size) return std::nullopt;
  absl::StatusOr<Message> message =
      collectives::UnpackFields(absl::string_view(received_).substr(end + 1, size));
  if (!message.ok()) return message.status();
  received_.erase(0, end + 1 + size);
  return *std::move(message);
}

absl::StatusOr<int> NumberIn(const Message& message, size_t field) {
  int number = 0;
  if (field < message.size() && absl::SimpleAtoi(message[field], &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat("message ", device::Quoted(message[0]), " has no number ", field));
}

}  // namespace brigade::launch
