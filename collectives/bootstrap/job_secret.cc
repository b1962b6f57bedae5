#include "brigade/collectives/bootstrap/job_secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"

namespace brigade::collectives {
namespace {

static_assert(JobSecret::kBytes == crypto_auth_hmacsha256_KEYBYTES);

// libsodium asks for it before its first use; it may be called again, from any thread.
void StartSodium() {
  if (sodium_init() < 0) std::abort();  // no source of randomness
}

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

JobSecret JobSecret::Random() {
  StartSodium();
  JobSecret secret;
  randombytes_buf(secret.bytes_.data(), kBytes);
  return secret;
}

absl::StatusOr<JobSecret> JobSecret::FromHex(absl::string_view hex) {
  StartSodium();
  hex = absl::StripAsciiWhitespace(hex);
  JobSecret secret;
  size_t bytes = 0;
  const char* end = nullptr;
  if (hex.size() != 2 * kBytes ||
      sodium_hex2bin(secret.bytes_.data(), kBytes, hex.data(), hex.size(), nullptr, &bytes, &end) !=
          0 ||
      bytes != kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a secret of ", 2 * kBytes, " hexadecimal digits"));
  }
  return secret;
}

absl::StatusOr<JobSecret> JobSecret::FromFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    const std::string why = absl::StrCat("'", path, "': ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(why) : absl::FailedPreconditionError(why);
  }
  const auto close_file = absl::MakeCleanup([fd] { close(fd); });
  struct stat status = {};
  const char* wrong = nullptr;
  if (fstat(fd, &status) != 0) {
    wrong = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    wrong = "not a regular file";
  } else if (status.st_uid != geteuid()) {
    wrong = "another user's file";
  } else if ((status.st_mode & 077) != 0) {
    wrong = "open to others: its mode must be 0600";
  }
  if (wrong != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "': ", wrong));
  }
  char text[4 * kBytes];
  const ssize_t bytes = read(fd, text, sizeof(text));
  if (bytes < 0) {
    return absl::FailedPreconditionError(absl::StrCat("'", path, "': ", std::strerror(errno)));
  }
  absl::StatusOr<JobSecret> secret = FromHex(absl::string_view(text, static_cast<size_t>(bytes)));
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", secret.status().message()));
}

absl::StatusOr<std::optional<JobSecret>> JobSecret::FromEnvironment(const EnvironmentGetter& get) {
  const char* const hex = get("BRIGADE_JOB_SECRET");
  const char* const path = get("BRIGADE_JOB_SECRET_FILE");
  if (hex == nullptr && path == nullptr) return std::nullopt;
  if (hex != nullptr && path != nullptr) {
    return absl::InvalidArgumentError(
        "BRIGADE_JOB_SECRET and BRIGADE_JOB_SECRET_FILE are both set");
  }
  const absl::StatusOr<JobSecret> secret = hex != nullptr ? FromHex(hex) : FromFile(path);
  if (secret.ok()) return *secret;
  return absl::Status(
      secret.status().code(),
      absl::StrCat(hex != nullptr ? "BRIGADE_JOB_SECRET: " : "BRIGADE_JOB_SECRET_FILE: ",
                   secret.status().message()));
}

std::string JobSecret::ToHex() const {
  char hex[2 * kBytes + 1];
  return sodium_bin2hex(hex, sizeof(hex), bytes_.data(), kBytes);
}

std::string JobSecret::Sign(const std::vector<std::string>& strings) const {
  StartSodium();
  const std::string text = PackFields(strings);
  unsigned char signature[crypto_auth_hmacsha256_BYTES];
  crypto_auth_hmacsha256(signature, Bytes(text), text.size(), bytes_.data());
  return std::string(reinterpret_cast<const char*>(signature), sizeof(signature));
}

JobSecret JobSecret::Derive(const std::vector<std::string>& strings) const {
  JobSecret derived;
  const std::string signature = Sign(strings);
  std::copy(signature.begin(), signature.end(), derived.bytes_.begin());
  return derived;
}

bool JobSecret::IsSignatureOf(absl::string_view signature,
                              const std::vector<std::string>& strings) const {
  StartSodium();
  const std::string text = PackFields(strings);
  return signature.size() == crypto_auth_hmacsha256_BYTES &&
         crypto_auth_hmacsha256_verify(Bytes(signature), Bytes(text), text.size(), bytes_.data()) ==
             0;
}

std::string Nonce() {
  StartSodium();
  std::string nonce(32, '\0');
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace brigade::collectives
