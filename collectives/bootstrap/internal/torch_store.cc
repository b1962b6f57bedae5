#include "brigade/collectives/bootstrap/internal/torch_store.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::device::SteadyTime;

// The requests in use.
enum class Request : char { kValidate = 0, kSet = 1, kGet = 3, kWait = 6 };

constexpr uint32_t kMagicNumber = 0x3C85F7CE;
// The answer to kWait when the key is set.
constexpr char kStopWaiting = 0;
constexpr uint64_t kMostValueBytes = 256;

template <typename T>
void AppendNumber(std::string& bytes, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t ReadNumber(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    number |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return number;
}

void AppendRequest(std::string& bytes, Request request) {
  bytes.push_back(static_cast<char>(request));
}

void AppendString(std::string& bytes, absl::string_view string) {
  AppendNumber<uint64_t>(bytes, string.size());
  bytes.append(string.data(), string.size());
}

void AppendWait(std::string& bytes, absl::string_view key) {
  AppendRequest(bytes, Request::kWait);
  AppendNumber<uint64_t>(bytes, 1);
  AppendString(bytes, key);
}

}  // namespace

absl::StatusOr<TorchStore> TorchStore::Create(Socket socket, SteadyTime deadline) {
  std::string hello;
  AppendRequest(hello, Request::kValidate);
  AppendNumber(hello, kMagicNumber);
  const absl::Status sent = socket.Send(hello, deadline);
  if (!sent.ok()) return sent;
  return TorchStore(std::move(socket));
}

absl::Status TorchStore::SendAndWait(const std::string& requests, SteadyTime deadline) {
  const absl::Status sent = socket_.Send(requests, deadline);
  if (!sent.ok()) return sent;
  const absl::StatusOr<std::string> answer = socket_.Receive(1, deadline);
  if (!answer.ok()) return answer.status();
  if (answer->front() != kStopWaiting) return absl::UnavailableError("it speaks another protocol");
  return absl::OkStatus();
}

absl::Status TorchStore::Set(absl::string_view key, absl::string_view value, SteadyTime deadline) {
  std::string requests;
  AppendRequest(requests, Request::kSet);
  AppendString(requests, key);
  AppendString(requests, value);
  // Nothing answers to kSet itself.
  AppendWait(requests, key);
  return SendAndWait(requests, deadline);
}

absl::StatusOr<std::string> TorchStore::Get(absl::string_view key, SteadyTime deadline) {
  std::string request;
  AppendWait(request, key);
  const absl::Status is_set = SendAndWait(request, deadline);
  if (!is_set.ok()) return is_set;
  request.clear();
  AppendRequest(request, Request::kGet);
  AppendString(request, key);
  const absl::Status sent = socket_.Send(request, deadline);
  if (!sent.ok()) return sent;
  const absl::StatusOr<std::string> length = socket_.Receive(sizeof(uint64_t), deadline);
  if (!length.ok()) return length.status();
  const uint64_t bytes = ReadNumber(*length);
  if (bytes > kMostValueBytes) {
    return absl::UnavailableError(
        absl::StrCat("a value of ", bytes, " bytes, of at most ", kMostValueBytes));
  }
  return socket_.Receive(bytes, deadline);
}

}  // namespace brigade::collectives::internal
