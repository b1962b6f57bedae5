#ifndef BRIGADE_LAUNCH_CHANNEL_H_
#define BRIGADE_LAUNCH_CHANNEL_H_

// Messages between the launcher and its agent on a host, over two pipes, which may lead through
// ssh.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace brigade::launch {

// Fields of anything; the first one says what it is.
using Message = std::vector<std::string>;

// What a shell on the way says before the first message is a message "noise" with a line each.
// Errors of a channel are final.
//
// Threads  One at a time.
class Channel {
 public:
  // Of a message. The largest one is an order to start the kMostSlots ranks of a host: half a MiB,
  // and variables and arguments, of which the system lets a process have 6 MiB.
  static constexpr size_t kMostBytes = size_t{16} << 20;

  // Takes both ends, which must not be those of others, since it makes them non-blocking.
  Channel(int input, int output);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // For poll: -1 when there is nothing to wait for.
  int input() const { return input_; }
  int output() const { return unsent_.empty() ? -1 : output_; }
  // Bytes that Send has taken and the pipe has not.
  size_t unsent() const { return unsent_.size(); }

  // Takes a message; Flush writes what the pipe takes now. Nothing happens once nobody reads.
  void Send(const Message& message);
  void Flush();
  // No message follows: the other side reads the end.
  void CloseOutput();

  // Reads what is there: false at the end. InvalidArgument for what is no message.
  absl::StatusOr<bool> Read();
  // The next whole message that was read.
  absl::StatusOr<std::optional<Message>> Next();

 private:
  int input_, output_;
  bool has_begun_ = false;
  std::string received_, unsent_;
};

// Numbers in messages. InvalidArgument for a field that is not there or no number.
absl::StatusOr<int> NumberIn(const Message& message, size_t field);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_CHANNEL_H_
