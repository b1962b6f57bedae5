#include "brigade/collectives/bootstrap/job.h"

#include <sodium.h>

#include <cstdlib>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/bootstrap/fields.h"

namespace brigade::collectives {

std::string DigestOf(absl::string_view bytes) {
  if (sodium_init() < 0) std::abort();  // no source of randomness
  unsigned char hash[crypto_generichash_BYTES_MIN];
  crypto_generichash(hash, sizeof(hash), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(hash), 8));
}

std::string PackValues(const JobValues& values) {
  // One field that is always there.
  std::vector<std::string> fields = {"values"};
  for (const auto& [name, value] : values) {
    fields.push_back(name);
    fields.push_back(value);
  }
  return PackFields(fields);
}

absl::StatusOr<JobValues> UnpackValues(absl::string_view packed) {
  const absl::StatusOr<std::vector<std::string>> fields = UnpackFields(packed);
  if (!fields.ok()) return fields.status();
  if ((*fields)[0] != "values" || fields->size() % 2 != 1) {
    return absl::InvalidArgumentError("not the values of a job");
  }
  JobValues values;
  for (size_t i = 1; i < fields->size(); i += 2) {
    values.emplace_back((*fields)[i], (*fields)[i + 1]);
  }
  return values;
}

bool AreOfOneJob(const JobIdentity& a, absl::string_view name_of_other) {
  if (!a.name.empty() && !name_of_other.empty()) return a.name == name_of_other;
  return a.secret.has_value();
}

std::string Differences(const JobValues& other, const JobValues& own) {
  const std::map<std::string, std::string> others(other.begin(), other.end()),
      ours(own.begin(), own.end());
  std::vector<std::string> texts;
  for (const auto& [name, value] : ours) {
    const auto found = others.find(name);
    if (found == others.end()) {
      texts.push_back(absl::StrCat(name, " is not given, here it is ", value));
    } else if (found->second != value) {
      texts.push_back(absl::StrCat(name, " is ", found->second, ", not ", value));
    }
  }
  for (const auto& [name, value] : others) {
    if (ours.count(name) == 0)
      texts.push_back(absl::StrCat(name, " is ", value, ", not given here"));
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace brigade::collectives
