#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_SECRET_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_SECRET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::collectives {

// Returns the value of an environment variable, or null.
using EnvironmentGetter = std::function<const char*(const char* name)>;

// 32 bytes that the ranks of a job know, and nobody else: what connections prove to know.
class JobSecret {
 public:
  static constexpr size_t kBytes = 32;

  // Of a job without a secret: everybody knows it.
  static JobSecret Public() { return JobSecret(); }
  static JobSecret Random();
  // Of 64 hexadecimal digits, with white space around them. InvalidArgument, which does not repeat
  // the text.
  static absl::StatusOr<JobSecret> FromHex(absl::string_view hex);
  // The digits in a file. FailedPrecondition naming it if it is a link, no regular file, another
  // user's, or open to others; NotFound if there is none.
  static absl::StatusOr<JobSecret> FromFile(const std::string& path);
  // BRIGADE_JOB_SECRET, 64 hexadecimal digits, or what is in the file that BRIGADE_JOB_SECRET_FILE
  // names; nothing if neither is set. Errors name the variable; both set are one.
  static absl::StatusOr<std::optional<JobSecret>> FromEnvironment(const EnvironmentGetter& get);

  std::string ToHex() const;

  // 32 bytes that only one who knows the secret can make of these strings: HMAC-SHA-256 (RFC 2104).
  std::string Sign(const std::vector<std::string>& strings) const;
  // Another secret, of those who know this one and the strings.
  JobSecret Derive(const std::vector<std::string>& strings) const;
  // In a time that does not depend on where it differs.
  bool IsSignatureOf(absl::string_view signature, const std::vector<std::string>& strings) const;

  friend bool operator==(const JobSecret&, const JobSecret&) = default;

 private:
  JobSecret() = default;

  std::array<uint8_t, kBytes> bytes_ = {};
};

// 32 random bytes that nobody can foresee.
std::string Nonce();

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_JOB_SECRET_H_
